"""Whether looking into a tier pays: what its hits save against what its lookups take, for each partition.

    value of a lookup = seconds saved, 0 for a miss - seconds that it took

both as exponentially weighted means over lookups. A tier whose value is negative is passed by for that partition,
except for one request in `probe_every`, which keeps the means alive.
"""

from __future__ import annotations

from dataclasses import dataclass

from caches.keys.request_key import Partition


@dataclass(frozen=True)
class WorthRule:
    """least, least_seconds: lookups and time before anything is concluded, because every cache begins cold. memory: of
    the means, in lookups."""

    least: int = 200
    least_seconds: float = 300.0
    memory: int = 500
    probe_every: int = 50


@dataclass
class _Means:
    lookups: int = 0
    since: float = 0.0
    passed_by: int = 0
    saved_seconds: float = 0.0
    took_seconds: float = 0.0


class Worth:
    """Of one tier."""

    def __init__(self, rule: WorthRule = WorthRule()) -> None:
        self._rule, self._of = rule, dict[Partition, _Means]()

    def wanted(self, partition: Partition, now_seconds: float) -> bool:
        """Whether this request should look; asked once for each."""
        means = self._of.setdefault(partition, _Means(since=now_seconds))
        known = means.lookups >= self._rule.least and now_seconds - means.since >= self._rule.least_seconds
        if not known or self.seconds(partition) >= 0:
            return True
        means.passed_by += 1
        return means.passed_by % self._rule.probe_every == 0

    def looked(
        self, partition: Partition, now_seconds: float, took_seconds: float, saved_seconds: float | None
    ) -> None:
        """saved_seconds: of a hit; None for a miss."""
        means = self._of.setdefault(partition, _Means(since=now_seconds))
        means.lookups += 1
        share = 1.0 / min(means.lookups, self._rule.memory)
        means.took_seconds += share * (took_seconds - means.took_seconds)
        means.saved_seconds += share * ((saved_seconds or 0.0) - means.saved_seconds)

    def seconds(self, partition: Partition) -> float:
        """What a lookup brings on average; 0 before any."""
        means = self._of.get(partition)
        return 0.0 if means is None else means.saved_seconds - means.took_seconds
