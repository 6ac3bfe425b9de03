"""The change rate against independent answers: closed forms, Clopper's and Pearson's interval, simulated truth."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.stats import binom

from caches.errors import InputError
from caches.freshness.change_rate import Look, _at_most, change_rate, interval, safe_age_seconds
from caches.semantic.verification import clopper_pearson

LOOKS = st.lists(st.builds(Look, st.floats(0.5, 1e5), st.booleans()), min_size=1, max_size=60)


def test_without_looks_nothing_is_known() -> None:
    assert change_rate([]) is None
    with pytest.raises(InputError, match=r"age_seconds: got 0.0, expected above 0"):
        change_rate([Look(0.0, True)])


def test_with_equal_ages_it_is_the_interval_of_a_share() -> None:
    for changed, looks in ((0, 20), (3, 20), (19, 20), (20, 20), (50, 400)):
        ages = np.full(looks, 100.0)
        low, high = interval(ages, changed)
        expected = clopper_pearson(changed, looks)
        assert -math.expm1(-100.0 * low) == pytest.approx(expected[0], abs=1e-8)
        assert -math.expm1(-100.0 * high) == pytest.approx(expected[1], abs=1e-8)
        rate = change_rate([Look(100.0, number < changed) for number in range(looks)])
        assert rate is not None
        assert -math.expm1(-100.0 * rate.rate) == pytest.approx(changed / looks)


def test_without_a_change_only_the_whole_age_counts() -> None:
    """exp(-rate sum) = 0.025 at the upper end."""
    rate = change_rate([Look(age, False) for age in (10.0, 200.0, 790.0)])
    assert rate is not None
    assert (rate.rate, rate.low) == (0.0, 0.0)
    assert rate.high == pytest.approx(-math.log(0.025) / 1_000.0)
    assert (rate.looks, rate.changed, rate.longest_age_seconds) == (3, 0, 790.0)


def test_where_all_changed_there_is_no_upper_end() -> None:
    rate = change_rate([Look(10.0, True), Look(20.0, True)])
    assert rate is not None
    assert (rate.rate, rate.high) == (math.inf, math.inf)
    assert rate.low > 0.0


@given(looks=LOOKS)
@settings(max_examples=30, deadline=None)
def test_no_rate_is_more_likely(looks: list[Look]) -> None:
    found = change_rate(looks)
    assert found is not None
    if not 0 < found.changed < found.looks:
        return

    def unlikely(log_rate: float) -> float:
        return -sum(
            math.log(-math.expm1(-math.exp(log_rate) * look.age_seconds) or 5e-324)
            if look.changed
            else -math.exp(log_rate) * look.age_seconds
            for look in looks
        )

    best = minimize_scalar(unlikely, bounds=(-30.0, 10.0), method="bounded", options={"xatol": 1e-10})
    assert unlikely(math.log(found.rate)) <= best.fun + 1e-6 * max(1.0, abs(best.fun))


@given(looks=LOOKS)
@settings(max_examples=30, deadline=None)
def test_the_ends_are_in_order_and_a_change_more_moves_both_up(looks: list[Look]) -> None:
    ages = np.array([look.age_seconds for look in looks])
    ends = [interval(ages, changed) for changed in range(len(looks) + 1)]
    assert all(0.0 <= low < high for low, high in ends)
    assert [low for low, _ in ends] == sorted(low for low, _ in ends)
    assert [high for _, high in ends] == sorted(high for _, high in ends)


@pytest.mark.parametrize("coins", [1, 2, 7, 64, 100, 1_000])
def test_sums_of_equal_coins_are_binomial(coins: int) -> None:
    for chance in (1e-6, 0.02, 0.5, 0.97):
        for count in {0, coins // 3, coins - 1, coins}:
            found = _at_most(np.full(coins, chance), count)
            assert found == pytest.approx(float(binom.cdf(count, coins, chance)), abs=1e-10)


def test_sums_of_unequal_coins_against_all_ways_that_they_can_fall() -> None:
    chances = np.array([0.1, 0.5, 0.9, 0.3])
    ways = dict.fromkeys(range(5), 0.0)
    for fall in range(16):
        heads = np.array([fall >> place & 1 for place in range(4)], bool)
        ways[int(heads.sum())] += float(np.where(heads, chances, 1 - chances).prod())
    for count in range(5):
        assert _at_most(chances, count) == pytest.approx(sum(ways[one] for one in range(count + 1)))


@pytest.mark.parametrize("true_rate", [1e-5, 1e-4, 2e-3])
def test_the_interval_holds_the_truth_as_often_as_it_says(true_rate: float) -> None:
    """Ages as of hits, up to an hour, and a few far older. Of 2,000 repetitions a share of 95 % would be below 93.5 %
    once in a thousand times; the interval is exact, so it may hold more often."""
    rng = np.random.default_rng(7)
    ages = np.concatenate([rng.uniform(1.0, 3_600.0, 50), rng.uniform(3_600.0, 86_400.0, 5)])
    counts = (rng.random((2_000, len(ages))) < -np.expm1(-true_rate * ages)).sum(axis=1)
    ends = {count: interval(ages, count) for count in set(counts.tolist())}
    held = sum(ends[count][0] <= true_rate <= ends[count][1] for count in counts.tolist())
    above = sum(true_rate <= ends[count][1] for count in counts.tolist())
    assert held >= 0.935 * 2_000
    assert above >= 0.96 * 2_000


def test_changes_on_a_timetable_are_bounded_too() -> None:
    """A page that changes every 10,000 s, looked at after ages up to a fifth of that: changed with the chance age /
    10,000 s, so its rate near the beginning is 1 / 10,000 s, which the upper end covers."""
    rng = np.random.default_rng(8)
    ages = rng.uniform(1.0, 2_000.0, 200)
    counts = (rng.random((2_000, 200)) < ages / 10_000.0).sum(axis=1)
    high = {count: interval(ages, count)[1] for count in set(counts.tolist())}
    assert sum(high[count] >= 1e-4 for count in counts.tolist()) >= 0.96 * 2_000


@pytest.mark.parametrize("budget", [0.001, 0.02, 0.05, 0.3, 0.9])
def test_the_safe_age_has_that_share_of_stale_hits(budget: float) -> None:
    seconds = safe_age_seconds(1e-3, budget)
    ages = (np.arange(100_000) + 0.5) / 100_000 * seconds
    assert float(-np.expm1(-1e-3 * ages).mean()) == pytest.approx(budget, rel=1e-4)
    assert safe_age_seconds(2e-3, budget) == pytest.approx(seconds / 2)


def test_the_ends_of_the_safe_age() -> None:
    assert safe_age_seconds(0.0, 0.05) == math.inf
    assert safe_age_seconds(math.inf, 0.05) == 0.0
    with pytest.raises(InputError, match=r"stale_budget: got 0.0"):
        safe_age_seconds(1.0, 0.0)
