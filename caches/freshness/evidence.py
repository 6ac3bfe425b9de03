"""Looks at answers that were asked for again, kept by partition, and the change rate that they say.

The rate is found anew after every few looks, not with each: a lookup only reads what was found last.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from caches.freshness.change_rate import ChangeRate, Look, change_rate
from caches.freshness.recent import Recent
from caches.keys.request_key import Partition

KEPT = 1_000  # looks of a partition, the latest
EVERY = 20  # looks between two estimates
MOST_PARTITIONS = 10_000  # clients name them


@dataclass
class _Known:
    looks: deque[Look]
    since: int = 0
    rate: ChangeRate | None = None
    reported_stale: int = 0


@dataclass(frozen=True)
class Told:
    """Of a partition. rate: as found last; None before `EVERY` looks."""

    partition: Partition
    looks: int
    changed: int
    reported_stale: int
    rate: ChangeRate | None = field(default=None)


class Evidence:
    """kept: looks of a partition, the latest. every: looks between two estimates. recorded: looks since it was made."""

    def __init__(self, kept: int = KEPT, every: int = EVERY) -> None:
        self._kept, self._every = kept, every
        self._known: Recent[Partition, _Known] = Recent(MOST_PARTITIONS)
        self.recorded = 0

    def record(self, partition: Partition, look: Look) -> bool:
        """Whether an estimate is due, which `estimate` makes."""
        known = self._of(partition)
        known.looks.append(look)
        self.recorded += 1
        known.since += 1
        return known.since >= self._every

    def report_stale(self, partition: Partition, age_seconds: float | None) -> bool:
        """Somebody says that an answer was outdated. With its age it counts as a look that saw a change: nobody reports
        what has not changed, so it can only make lifetimes shorter. Returns as `record`."""
        known = self._of(partition)
        known.reported_stale += 1
        if age_seconds is None or not age_seconds > 0.0:
            return False
        return self.record(partition, Look(age_seconds, changed=True))

    def looks(self, partition: Partition) -> tuple[Look, ...]:
        known = self._known.get(partition)
        return () if known is None else tuple(known.looks)

    def all_looks(self) -> dict[Partition, tuple[Look, ...]]:
        return {partition: tuple(known.looks) for partition, known in self._known.items() if known.looks}

    def restore(self, looks: Mapping[Partition, Sequence[Look]]) -> None:
        """What an earlier process knew, with the rates that it says."""
        for partition, some in looks.items():
            self._of(partition).looks.extend(some)
            self.estimate(partition)

    def found(self, partition: Partition, rate: ChangeRate | None) -> None:
        """What `change_rate` says of `looks`, wherever that was worked out."""
        known = self._of(partition)
        known.rate, known.since = rate, 0

    def estimate(self, partition: Partition) -> ChangeRate | None:
        """Works it out here, and keeps it."""
        rate = change_rate(self.looks(partition))
        self.found(partition, rate)
        return rate

    def rate(self, partition: Partition) -> ChangeRate | None:
        """As found last; for the path of requests."""
        known = self._known.get(partition)
        return None if known is None else known.rate

    def told(self) -> list[Told]:
        return [
            Told(partition, len(known.looks), sum(look.changed for look in known.looks), known.reported_stale, rate)
            for partition, known in sorted(self._known.items())
            for rate in [known.rate]
        ]

    def _of(self, partition: Partition) -> _Known:
        return self._known.known_or(partition, lambda: _Known(deque(maxlen=self._kept)))
