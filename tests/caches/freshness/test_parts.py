"""The load of namespaces, evidence of change, what is remembered of the latest keys."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caches.errors import InputError
from caches.freshness.change_rate import Look, change_rate
from caches.freshness.evidence import Evidence
from caches.freshness.load_meter import Load, LoadMeter
from caches.freshness.recent import Recent
from caches.keys.request_key import Partition

HERE, THERE = Partition("a", "x"), Partition("a", "y")


def test_load_is_that_of_the_latest_whole_period() -> None:
    meter: LoadMeter[str] = LoadMeter(10.0)
    assert meter.load("a", 5.0) is None
    for second in range(20):
        meter.asked("a", 100.0 + second)
    assert meter.load("a", 119.0) == Load(1.0, None)  # of the first ten seconds
    for failed in (True, False, False):
        meter.called("a", failed, 119.0)
    assert meter.load("a", 120.0) == Load(1.0, 1 / 3)
    assert meter.load("a", 129.9) == Load(1.0, 1 / 3)
    assert meter.load("a", 130.0) == Load(0.0, None)
    assert meter.load("a", 1_000.0) == Load(0.0, None)
    assert meter.load("b", 1_000.0) is None


def test_after_a_pause_the_period_before_was_empty() -> None:
    meter: LoadMeter[str] = LoadMeter(10.0)
    meter.asked("a", 100.0)
    meter.asked("a", 125.0)
    assert meter.load("a", 125.0) == Load(0.0, None)
    assert meter.load("a", 130.0) == Load(0.1, None)


def test_a_clock_that_is_set_back_begins_anew() -> None:
    meter: LoadMeter[str] = LoadMeter(10.0)
    meter.asked("a", 100.0)
    meter.asked("a", 50.0)
    assert meter.load("a", 60.0) == Load(0.1, None)
    with pytest.raises(InputError, match=r"period_seconds: got 0"):
        LoadMeter(0.0)


def test_evidence_is_kept_by_partition_and_an_estimate_is_due_every_few_looks() -> None:
    evidence = Evidence(kept=5, every=3)
    due = [evidence.record(HERE, Look(10.0 + number, number == 1)) for number in range(4)]
    assert due == [False, False, True, True]
    assert evidence.rate(HERE) is None
    found = evidence.estimate(HERE)
    assert found == evidence.rate(HERE) == change_rate(evidence.looks(HERE))
    assert not evidence.record(HERE, Look(1.0, False))
    assert (evidence.looks(THERE), evidence.rate(THERE)) == ((), None)
    assert evidence.estimate(THERE) is None
    for _ in range(9):
        evidence.record(HERE, Look(2.0, False))
    assert evidence.looks(HERE) == (Look(2.0, False),) * 5


def test_what_is_reported_stale_counts_as_a_change_where_its_age_is_known() -> None:
    evidence = Evidence(every=2)
    assert not evidence.report_stale(HERE, None)
    assert not evidence.report_stale(HERE, 0.0)
    assert not evidence.report_stale(HERE, 60.0)
    assert evidence.report_stale(HERE, 30.0)
    assert evidence.looks(HERE) == (Look(60.0, True), Look(30.0, True))
    evidence.estimate(HERE)
    (told,) = evidence.told()
    assert (told.partition, told.looks, told.changed, told.reported_stale) == (HERE, 2, 2, 4)
    assert told.rate is not None
    assert told.rate.high == math.inf


@given(most=st.integers(1, 5), keys=st.lists(st.integers(0, 9)))
def test_only_the_latest_keys_are_remembered(most: int, keys: list[int]) -> None:
    recent: Recent[int, int] = Recent(most)
    for place, key in enumerate(keys):
        recent.note(key, place)
    kept = list(dict.fromkeys(reversed(keys)))[:most]
    for key in range(10):
        expected = len(keys) - 1 - keys[::-1].index(key) if key in kept else None
        assert recent.get(key) == expected
    assert len(recent) == len(kept)
    for key in kept:
        recent.drop(key)
        recent.drop(key)
    assert len(recent) == 0
