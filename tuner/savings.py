"""What an experiment saved and what it was predicted to save, from the records of the ledger. docs/experiments.md says
what the numbers of a judgement are."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from caches.target import Arm
from tuner.account import value
from tuner.records import Decision, IntervalRecord, Judgement


@dataclass(frozen=True)
class Band:
    """mean: the estimate. low, high: ends of its confidence sequence; None while they are infinite."""

    mean: float
    low: float | None
    high: float | None

    def times(self, factor: float) -> Band:
        ends = [None if end is None else end * factor for end in (self.low, self.high)]
        low, high = ends if factor >= 0 else reversed(ends)
        return Band(self.mean * factor, low, high)


def saved_usd_per_1000(judgement: Judgement | None) -> Band | None:
    """By 1,000 requests of the treatment; None while nothing can be said."""
    cost = band_of({} if judgement is None else judgement.numbers, "cost_usd_per_1000")
    return None if cost is None else cost.times(-1.0)


def saved_percent(judgement: Judgement | None) -> Band | None:
    return band_of({} if judgement is None else judgement.numbers, "saving_percent")


def predicted_usd_per_1000(decisions: Sequence[Decision], intervals: Sequence[IntervalRecord]) -> float | None:
    """Mean of what the decisions of the treatment arm should have saved, by the requests of both arms in their
    intervals; None where none was predicted."""
    requests: dict[int, float] = defaultdict(float)
    for record in intervals:
        requests[record.index] += value(record, "requests") or 0.0
    predicted = {
        one.index: one.predicted_usd_per_1000
        for one in decisions
        if one.arm is Arm.TREATMENT and one.predicted_usd_per_1000 is not None
    }
    weight = sum(requests[index] for index in predicted)
    return sum(requests[index] * amount for index, amount in predicted.items()) / weight if weight > 0 else None


def band_of(numbers: Mapping[str, object], name: str) -> Band | None:
    """A named estimate of a judgement; None where it is not there or has no mean yet."""
    found = numbers.get(name)
    if not isinstance(found, Mapping):
        return None
    mean, low, high = (_finite(found.get(part)) for part in ("mean", "low", "high"))
    return None if mean is None else Band(mean, low, high)


def _finite(number: object) -> float | None:
    is_number = isinstance(number, int | float) and not isinstance(number, bool)
    return float(number) if is_number and math.isfinite(number) else None  # type: ignore[arg-type]
