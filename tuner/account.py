"""What the records of an arm say in sums: cost, hits, latencies. None where nothing is known, never zero."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from caches.histograms import added, quantile
from caches.target import Arm, Histogram
from envs.reward import CAUSES
from tuner.records import IntervalRecord

P99 = 0.99


@dataclass(frozen=True)
class Totals:
    """Of one arm over intervals. intervals: how many; known: of how many cost and requests are known, and all else is
    over these. Ratios are over all their requests, latencies quantiles of all of them together."""

    intervals: int
    known: int
    requests: float | None
    usd: float | None
    usd_by_cause: dict[str, float] | None
    hit_ratio: float | None
    stale_ratio: float | None
    p99_ttft_seconds: float | None
    p99_latency_seconds: float | None

    @property
    def usd_per_1000(self) -> float | None:
        return None if self.usd is None or not self.requests else 1000.0 * self.usd / self.requests


def usd_per_1000(record: IntervalRecord) -> float | None:
    """What 1,000 requests of the interval cost; None without requests too."""
    spent, requests = cost_usd(record), value(record, "requests")
    return None if spent is None or not requests else 1000.0 * spent / requests


def cost_usd(record: IntervalRecord) -> float | None:
    """Over all causes; None where one of them is not known."""
    costs = [value(record, f"{cause}_usd") for cause in CAUSES]
    return None if None in costs else sum(cost for cost in costs if cost is not None)


def value(record: IntervalRecord, name: str) -> float | None:
    return None if record.window is None else record.window.get(name)


def of_arm(records: Iterable[IntervalRecord], arm: Arm) -> list[IntervalRecord]:
    return [record for record in records if record.arm is arm]


def totals(records: Sequence[IntervalRecord]) -> Totals:
    """Of the records of one arm."""
    known = [record for record in records if cost_usd(record) is not None and value(record, "requests") is not None]
    causes = {cause: _sum(known, f"{cause}_usd") for cause in CAUSES}
    by_cause = {cause: amount for cause, amount in causes.items() if amount is not None}
    return Totals(
        intervals=len(records),
        known=len(known),
        requests=_sum(known, "requests"),
        usd=sum(by_cause.values()) if known else None,
        usd_by_cause=by_cause if known else None,
        hit_ratio=_ratio(known, "hits", "requests"),
        stale_ratio=_ratio(known, "stale_answers", "hits"),
        p99_ttft_seconds=_p99([record.ttft_seconds for record in known]),
        p99_latency_seconds=_p99([record.latency_seconds for record in known]),
    )


def _sum(records: Sequence[IntervalRecord], name: str) -> float | None:
    found = [amount for record in records if (amount := value(record, name)) is not None]
    return sum(found) if found else None


def _ratio(records: Sequence[IntervalRecord], part: str, whole: str) -> float | None:
    """Over intervals in which both are known; None where the whole is 0."""
    both = [
        (above, below)
        for record in records
        if (above := value(record, part)) is not None and (below := value(record, whole)) is not None
    ]
    below = sum(one[1] for one in both)
    return sum(one[0] for one in both) / below if below > 0 else None


def _p99(histograms: Sequence[Histogram | None]) -> float | None:
    """Of all together; None where one is missing or has other buckets."""
    found = [histogram for histogram in histograms if histogram is not None]
    if len(found) < len(histograms) or len({histogram.bounds for histogram in found}) != 1:
        return None
    return quantile(added(found), P99)
