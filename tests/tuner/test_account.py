"""Sums over the records of an arm, what was saved and predicted, and limits in the ledger's memory."""

from __future__ import annotations

from dataclasses import replace

import pytest

from caches.target import Arm, Histogram
from envs.reward import CAUSES
from tests.api.rest.history import SPACE, Told, decision, judgement, record
from tuner.account import cost_usd, of_arm, totals, usd_per_1000
from tuner.loop.limits import limits_memory, limits_of
from tuner.records import IntervalRecord
from tuner.savings import Band, band_of, predicted_usd_per_1000, saved_percent, saved_usd_per_1000

TOLD = Told()


def interval(number: int, **changes: float | None) -> IntervalRecord:
    """Of the control arm: 100 requests, 40 hits, 5 causes of 0.01 USD, but for the changes."""
    window = {"requests": 100.0, "hits": 40.0, "stale_answers": 2.0} | {f"{cause}_usd": 0.01 for cause in CAUSES}
    return replace(record(TOLD, number, Arm.CONTROL), window={**window, **changes})


def test_totals_are_over_what_is_known() -> None:
    """Two of four: one knows no cost of memory, of one nothing is known."""
    records = [
        interval(1),
        interval(2, requests=300.0, hits=0.0, stale_answers=0.0),
        interval(3, memory_usd=None),
        replace(interval(4), window=None),
    ]
    found = totals(records)
    assert (found.intervals, found.known) == (4, 2)
    assert found.requests == 400.0
    assert found.usd == pytest.approx(0.1)
    assert found.usd_by_cause == pytest.approx(dict.fromkeys(CAUSES, 0.02))
    assert found.usd_per_1000 == pytest.approx(0.25)
    assert found.hit_ratio == pytest.approx(0.1)
    assert found.stale_ratio == pytest.approx(0.05)


def test_nothing_known_is_none_and_never_zero() -> None:
    for records in ([], [replace(interval(1), window=None)], [interval(1, slow_usd=None)]):
        found = totals(records)
        assert (found.known, found.requests, found.usd, found.usd_per_1000, found.hit_ratio) == (0, *(None,) * 4)
        assert (found.usd_by_cause, found.p99_ttft_seconds) == (None, None)
    idle = totals([interval(1, requests=0.0, hits=0.0)])
    assert (idle.known, idle.requests, idle.hit_ratio, idle.usd_per_1000) == (1, 0.0, None, None)


def test_cost_per_1000_needs_cost_and_requests() -> None:
    assert cost_usd(interval(1)) == pytest.approx(0.05)
    assert usd_per_1000(interval(1)) == pytest.approx(0.5)
    assert usd_per_1000(interval(1, requests=0.0)) is None
    assert usd_per_1000(interval(1, requests=None)) is None
    assert usd_per_1000(interval(1, compute_usd=None)) is None


def test_p99_is_of_all_requests_together() -> None:
    """50 below 1 s, and 50 of which 49 lie from 1 to 2 s and one from 2 to 4 s: the 99th is the last of the 49."""
    bounds = (1.0, 2.0, 4.0)
    ones = replace(interval(1), ttft_seconds=Histogram(bounds, (50, 0, 0, 0), 25.0))
    others = replace(interval(2), ttft_seconds=Histogram(bounds, (0, 49, 1, 0), 80.0))
    assert totals([ones, others]).p99_ttft_seconds == pytest.approx(2.0)
    assert totals([ones, replace(others, ttft_seconds=None)]).p99_ttft_seconds is None
    odd = replace(others, ttft_seconds=Histogram((1.0,), (1, 0), 0.5))
    assert totals([ones, odd]).p99_ttft_seconds is None


def test_records_of_an_arm() -> None:
    records = [record(TOLD, number, arm) for number in range(3) for arm in Arm]
    assert [(one.arm, len(of_arm(records, one.arm))) for one in records[:2]] == [(Arm.CONTROL, 3), (Arm.TREATMENT, 3)]


# --- savings ----------------------------------------------------------------------------------------------------------


def test_a_saving_is_the_cost_turned_round() -> None:
    """Cost −0.004, from −0.007 to −0.001: a saving of 0.004, from 0.001 to 0.007."""
    said = replace(judgement(TOLD, 20), numbers={"cost_usd_per_1000": {"mean": -0.004, "low": -0.007, "high": -0.001}})
    assert saved_usd_per_1000(said) == Band(0.004, 0.001, 0.007)
    assert saved_percent(said) is None
    assert saved_percent(judgement(TOLD, 20)) is not None
    assert saved_usd_per_1000(None) is None


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ({}, None),
        ({"x": None}, None),
        ({"x": 3.0}, None),
        ({"x": {"mean": None, "low": 1.0, "high": 2.0}}, None),
        ({"x": {"mean": float("nan")}}, None),
        ({"x": {"mean": True}}, None),
        ({"x": {"mean": 1, "low": None, "high": float("inf")}}, Band(1.0, None, None)),
        ({"x": {"mean": 1.5, "low": 1.0, "high": 2.0}}, Band(1.5, 1.0, 2.0)),
    ],
)
def test_an_estimate_is_read_from_a_judgement(numbers: dict[str, object], expected: Band | None) -> None:
    assert band_of(numbers, "x") == expected


def test_an_unknown_end_stays_unknown_on_its_side() -> None:
    assert Band(1.0, None, 2.0).times(-3.0) == Band(-3.0, -6.0, None)
    assert Band(1.0, 0.5, None).times(2.0) == Band(2.0, 1.0, None)


def test_predictions_are_weighed_by_requests() -> None:
    """0.01 over 100 requests and 0.03 over 300 are 0.025 together; what was not predicted or is control's is out."""
    records = [interval(1), interval(2, requests=300.0), interval(3)]
    said = [
        replace(decision(TOLD, 1, Arm.TREATMENT), predicted_usd_per_1000=0.01),
        replace(decision(TOLD, 2, Arm.TREATMENT), predicted_usd_per_1000=0.03),
        replace(decision(TOLD, 3, Arm.TREATMENT), predicted_usd_per_1000=None),
        replace(decision(TOLD, 3, Arm.CONTROL), predicted_usd_per_1000=9.0),
    ]
    assert predicted_usd_per_1000(said, records) == pytest.approx(0.025)
    assert predicted_usd_per_1000(said, []) is None
    assert predicted_usd_per_1000([], records) is None


# --- limits -----------------------------------------------------------------------------------------------------------


def test_limits_come_back_from_the_memory() -> None:
    assert limits_of(limits_memory(SPACE)) == SPACE
    assert limits_of({}) is None
    assert limits_of({"limits": {"cache_size": 1}}) is None
