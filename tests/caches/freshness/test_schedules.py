"""Schedules: the contract of all, and what each formula says, worked out by hand."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caches.errors import InputError
from caches.freshness.lifetime import Bounded, Bounds, Context, EntryFacts, Verdict
from caches.freshness.schedules import (
    NAMES,
    ByHazard,
    ByLoad,
    ByQuality,
    BySampling,
    Fixed,
    load_share,
    quality_share,
    schedule_of,
    useful_rounds,
)
from tests.contracts.lifetime_contract import LifetimeContract

USEFUL, WRONG, STALE = Verdict.USEFUL, Verdict.WRONG, Verdict.STALE


class TestFixed(LifetimeContract):
    schedule = Fixed()


class TestByLoad(LifetimeContract):
    schedule = ByLoad()


class TestByQuality(LifetimeContract):
    schedule = ByQuality()


class TestBySampling(LifetimeContract):
    schedule = BySampling()


class TestByHazard(LifetimeContract):
    schedule = ByHazard()


def test_the_catalogue_has_all() -> None:
    assert [type(schedule_of(name)) for name in NAMES] == [Fixed, ByLoad, ByQuality, BySampling, ByHazard]
    with pytest.raises(InputError, match="freshness: got 'other', expected fixed, load"):
        schedule_of("other")


@pytest.mark.parametrize(
    ("qps", "error_rate", "share"),
    [
        (0.0, None, 1.5),
        (9.0, 0.0, 1.8),  # 1.5 + 0.3 log10(10)
        (9.0, 0.4, 1.0),  # 1.5 - 0.8 + 0.3
        (99.0, 0.0, 2.0),  # 1.5 + 0.6, cut
        (0.0, 1.0, 0.5),  # 1.5 - 2, cut
        (999.0, 0.7, 1.0),  # 1.5 - 1.4 + 0.9
        (None, 0.9, 1.0),  # nothing was asked
    ],
)
def test_load(qps: float | None, error_rate: float | None, share: float) -> None:
    assert load_share(qps, error_rate) == pytest.approx(share)


@given(qps=st.floats(0, 1e6), more=st.floats(0, 1e6), errors=st.floats(0, 1), fewer=st.floats(0, 1))
def test_load_rises_with_requests_and_falls_with_errors(qps: float, more: float, errors: float, fewer: float) -> None:
    assert load_share(qps + more, errors) >= load_share(qps, errors)
    assert load_share(qps, errors * fewer) >= load_share(qps, errors)


@pytest.mark.parametrize(
    ("entropy", "logprob", "feedback", "share"),
    [
        (None, None, (), 1.0),
        (0.0, 0.0, (USEFUL,) * 3, 1.5),
        (8.0, -math.inf, (WRONG,) * 3, 0.3),
        (8.0, -math.inf, (STALE, WRONG, STALE), 0.3),
        # certainty 1 - 2/8, confidence 0.5, feedback 7/12: 0.3 + 1.2 (0.45 + 0.15 + 0.7/12)
        (2.0, math.log(0.5), (), 0.3 + 1.2 * (0.45 + 0.15 + 0.7 / 12)),
        # (1.2 - 0.8) / 3.6 of the way from 7/12 to 1
        (None, None, (USEFUL, WRONG), 0.3 + 1.2 * (0.9 * 7 / 12 + 0.1 * (7 / 12 + 5 / 12 / 9))),
        (None, None, (WRONG, USEFUL, USEFUL, USEFUL), 0.3 + 1.2 * (0.9 * 7 / 12 + 0.1)),  # the latest three
    ],
)
def test_quality(entropy: float | None, logprob: float | None, feedback: tuple[Verdict, ...], share: float) -> None:
    assert quality_share(entropy, logprob, feedback) == pytest.approx(share)


@given(bits=st.floats(0, 8), more=st.floats(0, 8), logprob=st.floats(-50, 0), surer=st.floats(0, 1))
def test_quality_falls_with_entropy_and_rises_with_confidence_and_praise(
    bits: float, more: float, logprob: float, surer: float
) -> None:
    share = quality_share(bits, logprob, ())
    assert 0.3 <= share <= 1.5
    assert quality_share(bits + more, logprob, ()) <= share
    assert quality_share(bits, logprob * surer, ()) >= share
    assert quality_share(bits, logprob, (WRONG,)) < share < quality_share(bits, logprob, (USEFUL,))


def test_rounds() -> None:
    assert useful_rounds(0.0, 1.0) == math.inf
    assert useful_rounds(0.5, 0.0) == math.inf
    assert useful_rounds(math.log(2.0), 1.0) == pytest.approx(1.0)
    assert useful_rounds(1.0, math.log(1.125)) == pytest.approx(8.0)


@pytest.mark.parametrize(
    ("temperature", "top_p", "share"),
    [
        (0.0, None, 1.0),
        (None, 0.5, 1.0),  # not stated is not known
        (math.log(1.125), None, 1.0),
        (math.log(2.0), None, 1 / 8),
        (2 * math.log(2.0), 0.5, 1 / 8),
        (2.0, 1.0, 0.1),  # 1 / (8 (e^2 - 1)) = 0.0196, cut at the operator's bound
    ],
)
def test_sampling(temperature: float | None, top_p: float | None, share: float) -> None:
    entry = EntryFacts(0.0, 1_000.0, temperature=temperature, top_p=top_p)
    assert Bounded(BySampling()).lifetime(entry, Context(0.0)) == pytest.approx(1_000.0 * share)


@given(temperature=st.floats(0, 2), top_p=st.floats(0, 1), less=st.floats(0, 1))
def test_more_variety_never_lives_longer(temperature: float, top_p: float, less: float) -> None:
    assert useful_rounds(temperature * less, top_p) >= useful_rounds(temperature, top_p)
    assert useful_rounds(temperature, top_p * less) >= useful_rounds(temperature, top_p)


def test_hazard_keeps_the_budget_and_does_not_run_ahead() -> None:
    entry = EntryFacts(0.0, 3_600.0)
    known = Context(0.0, change_rate=1e-4, longest_age_seconds=1e9)
    seconds = ByHazard(0.05).lifetime(entry, known)
    changes = 1e-4 * seconds
    assert 1.0 - (1.0 - math.exp(-changes)) / changes == pytest.approx(0.05)
    assert ByHazard(0.05).lifetime(entry, Context(0.0, change_rate=1e-4, longest_age_seconds=100.0)) == 200.0
    assert ByHazard(0.05).lifetime(entry, Context(0.0, change_rate=math.inf, longest_age_seconds=100.0)) == 0.0
    nothing = Context(0.0, change_rate=0.0, longest_age_seconds=1e9)
    assert Bounded(ByHazard(), Bounds(longest_share=3.0)).lifetime(entry, nothing) == 3 * 3_600.0


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Bounds(shortest_share=0.0), "shortest_share: got 0.0, expected above 0, up to 1"),
        (lambda: Bounds(longest_share=0.9), "longest_share: got 0.9, expected 1 or more"),
        (lambda: Bounds(longest_seconds=0.0), "longest_seconds: got 0.0, expected above 0"),
        (lambda: BySampling(0.0), "full_rounds: got 0.0, expected above 0"),
        (lambda: ByHazard(1.0), "stale_budget: got 1.0, expected above 0, below 1"),
    ],
)
def test_what_makes_no_sense_is_refused(make: object, told: str) -> None:
    with pytest.raises(InputError, match=told):
        make()  # type: ignore[operator]
