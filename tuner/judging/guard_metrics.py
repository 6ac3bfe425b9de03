"""The measures that must not get worse, each as a share of something that an arm counts in an interval.

They are compared as costs are, by the difference of the arms interval by interval. A metric that is not measured is
NaN: nothing can be said of it, which is not the same as nothing to complain about.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caches.errors import InputError
from caches.target import Histogram
from tuner.judging.pairs import Pairs
from tuner.judging.quantile_test import threshold_near
from tuner.records import IntervalRecord

Array = NDArray[Any]
FAST_SECONDS = 0.1
P99_BEYOND = 0.01


@dataclass(frozen=True)
class GuardMetric:
    """name: the field of its margin. what: it is the share of. counts: of how many and out of how many, (n, 2, 2), by
    interval and arm, NaN where it is not measured. larger_is_worse: otherwise smaller is."""

    name: str
    what: str
    counts: Array
    larger_is_worse: bool = True


@dataclass(frozen=True)
class Buckets:
    """The histograms of both arms. counts: (n, 2, len(bounds) + 1), NaN where there was none."""

    bounds: tuple[float, ...]
    counts: Array

    def pooled(self, chosen: Array) -> Histogram:
        """Over cells, bool (n, 2)."""
        counts = np.nansum(self.counts[chosen], axis=0)
        return Histogram(self.bounds, tuple(int(count) for count in counts), math.nan)

    def split(self, bound: float) -> tuple[Array, Array]:
        """How many were at most a bound, and how many above it, (n, 2)."""
        place = self.bounds.index(bound) + 1
        return self.counts[:, :, :place].sum(axis=2), self.counts[:, :, place:].sum(axis=2)


def buckets_of(pairs: Pairs, histogram: Callable[[IntervalRecord], Histogram | None]) -> Buckets | None:
    """None where no interval has any. InputError where bounds differ."""
    found = [[histogram(one) for one in row] for row in pairs.rows]
    first = next((one for row in found for one in row if one is not None), None)
    if first is None:
        return None
    bounds = first.bounds
    if any(one is not None and one.bounds is not bounds and one.bounds != bounds for row in found for one in row):
        raise InputError("histograms: got several kinds of buckets, expected the same in all intervals")
    unknown = (math.nan,) * (len(bounds) + 1)
    return Buckets(bounds, np.array([[unknown if one is None else one.counts for one in row] for row in found], float))


@dataclass(frozen=True)
class Latencies:
    """Histograms of the time to the first token and of the whole answer; None where there are none at all."""

    ttft: Buckets | None
    latency: Buckets | None


def latencies_of(pairs: Pairs) -> Latencies:
    return Latencies(
        buckets_of(pairs, lambda one: one.ttft_seconds), buckets_of(pairs, lambda one: one.latency_seconds)
    )


def guard_metrics(pairs: Pairs, latencies: Latencies) -> tuple[GuardMetric, ...]:
    """Thresholds of latency are taken from the lead-in, from both arms under the control's settings."""
    ttft, latency = latencies.ttft, latencies.latency
    fast = f"requests answered from the cache within {FAST_SECONDS * 1000:g} ms"
    return (
        _slow("slow_ttft_ratio", "to the first token", ttft, pairs),
        _slow("slow_latency_ratio", "of the whole answer", latency, pairs),
        _ratio("error_ratio", "requests without an answer", ("errors", "requests"), pairs),
        _ratio("stale_ratio", "hits whose answer is outdated", ("stale_answers", "hits"), pairs),
        _ratio("wrong_hit_ratio", "verified hits that were wrong", ("wrong_hits", "verified_hits"), pairs),
        GuardMetric("fast_hit_ratio", fast, _fast(latency, pairs), larger_is_worse=False),
    )


def _column(pairs: Pairs, name: str) -> Array:
    """(n, 2)."""
    values = [[(one.window or {}).get(name) for one in row] for row in pairs.rows]
    return np.array(values, np.float64).reshape(-1, 2)


def _ratio(name: str, what: str, columns: Sequence[str], pairs: Pairs) -> GuardMetric:
    part, whole = (_column(pairs, column) for column in columns)
    return GuardMetric(name, what, np.stack((part, whole), axis=2))


def _slow(name: str, what: str, buckets: Buckets | None, pairs: Pairs) -> GuardMetric:
    before = None if buckets is None else buckets.pooled(np.stack((pairs.lead_in, pairs.lead_in), axis=1))
    threshold = None if before is None or not before.number else threshold_near(before, P99_BEYOND)
    if buckets is None or threshold is None:
        return GuardMetric(name, f"requests beyond the control's P99 {what}", np.full((len(pairs), 2, 2), math.nan))
    within, beyond = buckets.split(threshold)
    return GuardMetric(name, f"requests longer than {threshold:.3g} s {what}", np.stack((beyond, within + beyond), 2))


def _fast(buckets: Buckets | None, pairs: Pairs) -> Array:
    """Answered within the time by a cache: not more than were hits."""
    bounds = [] if buckets is None else [bound for bound in buckets.bounds if bound <= FAST_SECONDS * (1.0 + 1e-9)]
    if buckets is None or not bounds:
        return np.full((len(pairs), 2, 2), math.nan)
    within, _ = buckets.split(bounds[-1])
    return np.stack((np.minimum(within, _column(pairs, "hits")), pairs.requests), axis=2)
