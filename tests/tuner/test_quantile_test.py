"""Tails of latencies from histograms."""

from __future__ import annotations

import pytest

from caches.target import Arm, Histogram
from tests.tuner.interval_records import arms, record
from tuner.experiment import Stage, Stretch
from tuner.judging.guard_metrics import buckets_of, guard_metrics, latencies_of
from tuner.judging.pairs import pairs_of
from tuner.judging.quantile_test import threshold_near

LEAD_IN = (Stretch(0, Stage.LEAD_IN, 0),)


@pytest.mark.parametrize(
    ("counts", "threshold"),
    [
        ((920, 60, 15, 5), 0.1),  # beyond 0.1: 2 %, beyond 1: 0.5 %: as near, and the lower one counts
        ((900, 85, 10, 5), 0.1),  # 1.5 % and 0.5 %
        ((900, 50, 41, 9), 1.0),
        ((1000, 0, 0, 0), None),
        ((0, 0, 0, 1000), None),  # all above: no bound parts them
        ((0, 0, 0, 0), None),
    ],
)
def test_the_threshold_is_the_bound_nearest_to_the_p99(counts: tuple[int, ...], threshold: float | None) -> None:
    found = threshold_near(Histogram((0.01, 0.1, 1.0), counts, 0.0), 0.01)
    assert found == threshold


def test_thresholds_come_from_the_lead_in_of_both_arms() -> None:
    """Together 15 of 2,000 are beyond 1 s and 400 beyond 0.1 s: the first is nearer to 1 %."""
    control, _ = arms(2, lambda index, arm: 1.0)
    _, treatment = arms(2, lambda index, arm: 1.0, counts=(600, 200, 195, 5))
    pairs = pairs_of(control, treatment, LEAD_IN)
    slow = guard_metrics(pairs, latencies_of(pairs))[0]
    assert slow.what == "requests longer than 1 s to the first token"
    assert slow.counts.tolist() == [[[10.0, 1000.0], [5.0, 1000.0]]] * 2


def test_fast_hits_are_not_more_than_hits() -> None:
    """800 within 100 ms; one arm counts 700 hits only."""
    control = [record(0, Arm.CONTROL, 1.0, window={"hits": 700.0})]
    pairs = pairs_of(control, [record(0, Arm.TREATMENT, 1.0)], LEAD_IN)
    assert guard_metrics(pairs, latencies_of(pairs))[-1].counts[0, :, 0].tolist() == [700.0, 800.0]


def test_an_interval_without_histogram_is_unknown_and_others_count() -> None:
    control, treatment = arms(2, lambda index, arm: 1.0)
    blind = [record(0, Arm.TREATMENT, 1.0, counts=None), treatment[1]]
    buckets = buckets_of(pairs_of(control, blind, LEAD_IN), lambda one: one.ttft_seconds)
    assert buckets is not None
    within, beyond = buckets.split(1.0)
    assert [within[1].tolist(), beyond[1].tolist()] == [[990.0, 990.0], [10.0, 10.0]]
    assert within[0, 1] != within[0, 1]  # NaN
