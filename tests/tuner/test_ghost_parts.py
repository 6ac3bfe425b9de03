"""What live ghosts are made of: counted traffic, the history of costs, and errors of sums over a sample."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caches.shadow.sampling import mixed
from envs.ghost_kernels import BACKEND_USD, HITS, MISSES, STALE_USD, TALLIES
from envs.interval import COLUMN, STATS
from envs.journal import GROUPS, places
from envs.traffic import DRIFT, ENTROPY, ONE_HIT, traffic_table
from tests.tuner.ghost_traffic import asked
from tuner.keys.counted_traffic import CountedTraffic
from tuner.keys.estimates import parts_of, standard_error, stated, with_competition
from tuner.keys.history import History
from tuner.keys.past import PastTraffic
from tuner.keys.view import Totals

Array = np.ndarray[Any, Any]
intervals_of_keys = st.lists(st.lists(st.integers(0, 6), max_size=12), min_size=1, max_size=8)


@settings(deadline=None, max_examples=100)
@given(intervals_of_keys)
def test_counted_traffic_is_that_of_training(intervals: list[list[int]]) -> None:
    counted = CountedTraffic()
    key = np.array([k for keys in intervals for k in keys], np.int32)
    tokens, edges = np.ones(len(key), np.int32), np.cumsum([0, *map(len, intervals)]).astype(np.int64)
    for keys, expected in zip(intervals, traffic_table(key, tokens, tokens, edges, 7), strict=True):
        for part in np.array_split(np.array(keys, np.uint64), 3):
            counted.add(mixed(part, 5))
        found = counted.close()
        for place in (ENTROPY, DRIFT, ONE_HIT):
            np.testing.assert_allclose(found.get(place, np.nan), expected[place], atol=1e-9)


def test_too_many_requests_are_not_counted_nor_compared_with() -> None:
    counted = CountedTraffic(most_requests=3)
    told = []
    for keys in ([1, 2], [1, 2, 3, 4], [1, 2], [1, 2]):
        counted.add(np.array(keys[:1], np.uint64))
        counted.add(np.array(keys[1:], np.uint64))
        told.append(sorted(counted.close()))
    assert told == [[ENTROPY, ONE_HIT], [], [ENTROPY, ONE_HIT], [ENTROPY, DRIFT, ONE_HIT]]


def test_history_is_told_from_when_all_were_there() -> None:
    history = History()
    history.add(["a", "b"], np.array([1.0, 2.0]), np.array([True, False]))
    history.add(["a", "c"], np.array([3.0, 4.0]), np.array([False, True]))
    assert history.table(["a", "c"])[0].tolist() == [[3.0], [4.0]]
    assert history.table(["a"])[0].tolist() == [[1.0, 3.0]]
    assert history.table(["a"])[1].tolist() == [[True, False]]
    assert history.table(["c", "d"])[0].shape == (2, 0)
    history.keep(["c"])
    assert history.table(["a"])[0].shape == (1, 0)


def test_history_keeps_the_latest() -> None:
    history = History(most=10)
    for number in range(57):
        names = ["a", "b"] if number >= 50 else ["a"]
        history.add(names, np.full(len(names), float(number)), np.zeros(len(names), np.bool_))
    usd, unsafe = history.table(["a"])
    assert usd.tolist() == [[float(number) for number in range(47, 57)]]
    assert unsafe.shape == (1, 10)
    assert history.table(["a", "b"])[0].tolist() == [[float(number) for number in range(50, 57)]] * 2


def test_the_error_of_a_sum_is_that_of_drawing_its_keys() -> None:
    """Five thousand keys that add different amounts: 400 samples spread as their errors say on average."""
    amounts = np.random.default_rng(0).exponential(1.0, 5_000)
    found, errors = [], []
    for seed in range(400):
        ids = mixed(np.arange(5_000, dtype=np.uint64), seed)
        kept = places(ids) < 0.2
        parts = np.bincount((ids[kept] % np.uint64(GROUPS)).astype(int), amounts[kept], GROUPS)
        found.append(amounts[kept].sum() / 0.2)
        errors.append(float(standard_error(parts, 0.2)))
    assert np.mean(found) == pytest.approx(amounts.sum(), rel=0.01)
    assert np.sqrt(np.mean(np.square(errors))) == pytest.approx(np.std(found), rel=0.1)
    assert standard_error(parts, 1.0) == 0.0


def test_a_sample_with_too_few_requests_has_more_hits_in_all() -> None:
    """Half of the keys had 60 of 200 requests, 30 of which missed: of 100 that half of them should have, 70 hit."""
    rows = np.zeros((1, STATS))
    for name, value in {
        "requests": 60,
        "hits": 30,
        "stale_answers": 3.0,
        "compute_usd": 6.0,
        "memory_usd": 1.0,
    }.items():
        rows[0, COLUMN[name]] = value
    rows[0, COLUMN["staleness_usd"]] = 0.3
    every = stated(rows, 0.5, 200.0)[0]
    assert every[COLUMN["requests"]] == 200.0
    assert every[COLUMN["hits"]] == 140.0
    assert every[COLUMN["hit_ratio"]] == 0.7
    assert every[COLUMN["compute_usd"]] == 12.0
    assert every[COLUMN["memory_usd"]] == 2.0
    assert every[COLUMN["staleness_usd"]] == pytest.approx(0.3 * 70 / 30 / 0.5)
    assert rows[0, COLUMN["hits"]] == 30.0  # what was handed in stays


def test_a_group_adds_what_the_estimate_changes_by() -> None:
    """The slope of `stated` in each group's tallies, by a small difference."""
    rng = np.random.default_rng(0)
    tallies = rng.uniform(1.0, 2.0, (1, GROUPS, TALLIES))

    def usd(of: np.ndarray) -> float:
        rows = np.zeros((1, STATS))
        sums = of[0].sum(axis=0)
        rows[0, COLUMN["hits"]], rows[0, COLUMN["requests"]] = sums[HITS], sums[HITS] + sums[MISSES]
        rows[0, COLUMN["compute_usd"]], rows[0, COLUMN["staleness_usd"]] = sums[BACKEND_USD], sums[STALE_USD]
        every = stated(rows, 0.25, 1_500.0)[0]
        return float(every[COLUMN["compute_usd"]] + every[COLUMN["staleness_usd"]])

    parts = parts_of(tallies, 0.25, 1_500.0)
    for group in (0, 7, 63):
        more = tallies.copy()
        more[0, group] *= 1.0 + 1e-6
        assert (usd(more) - usd(tallies)) / 1e-6 * 0.25 == pytest.approx(parts[0, group], rel=1e-3, abs=1e-3)


def test_what_a_group_takes_from_the_others_is_worth_what_room_is() -> None:
    """Costs fall by 2 a byte: a group that holds 3 bytes adds 6; where room is worth nothing, it adds nothing."""
    sizes = np.array([10.0, 8.0, 9.0, 11.0, 12.0, *[10.0] * 8])
    held, parts = np.full((13, GROUPS), 3.0), np.ones((13, GROUPS))
    np.testing.assert_allclose(with_competition(parts, held, 100.0 - 2.0 * sizes, sizes), 7.0)
    np.testing.assert_array_equal(with_competition(parts, held, np.full(13, 5.0), sizes), parts)
    np.testing.assert_array_equal(with_competition(parts, held, sizes, np.full(13, 10.0)), parts)


def test_totals_are_by_arm() -> None:
    totals, batch = Totals(), asked([1, 2, 1], [1.0, 2.0, 3.0])
    totals.add(replace(batch, treatment=np.array([False, True, False])))
    totals.add(batch)
    assert totals.requests.tolist() == [5, 1]
    assert totals.sums() == (6.0, 300.0, 30.0)


def past_of(weights: Array, intervals: int, seed: int, rate: float = 1.0) -> PastTraffic:
    """Each key of so much weight asks that often in each interval, for 2 USD a time where it is even and 1 where it is
    odd; 5 USD are no key's. Of fewer keys only those are followed whose place is below the rate."""
    past = PastTraffic()
    ids = mixed(np.arange(len(weights), dtype=np.uint64), seed)
    usd = weights * np.where(np.arange(len(weights)) % 2, 1.0, 2.0)
    group, mine = (ids % np.uint64(GROUPS)).astype(int), places(ids) < rate
    by_group = [np.bincount(group, one * mine, GROUPS) for one in (usd, weights)]
    for _ in range(intervals):
        past.add(ids.repeat(weights))
        past.close(by_group[0], by_group[1], rate, float(usd.sum()) + 5.0)
    return past


def test_how_concentrated_past_traffic_is() -> None:
    """A key of half of all requests, and 500 of one each: a quarter, and 500 times a millionth; seeds differ by which
    keys come together."""
    weights = np.array([500, *[1] * 500])
    assert past_of(weights, 11, 0).concentration() is None
    found = [past_of(weights, 12, seed).concentration() for seed in range(5)]
    np.testing.assert_allclose(np.array(found, float), 0.25 + 500e-6, rtol=0.01)
    alike = past_of(np.ones(2_000, np.int64), 12, 1).concentration()
    assert alike == pytest.approx(1.0 / 2_000.0, rel=0.1)


@pytest.mark.parametrize(("share", "rate"), [(0.5, 1.0), (0.05, 1.0), (0.5, 0.5)])
def test_luck_is_how_far_random_splits_differ(share: float, rate: float) -> None:
    """Beside 2,000 splits at random, in which each arm bears its share of the 5 USD."""
    rng = np.random.default_rng(0)
    weights = rng.geometric(0.05, 1_000)
    usd = weights * np.where(np.arange(1_000) % 2, 1.0, 2.0)
    treated = rng.random((2_000, 1_000)) < share

    def unit(mine: Array, part: float) -> Array:
        return (mine @ usd + part * 5.0) / (mine @ weights)

    luck = (unit(treated, share) - unit(~treated, 1.0 - share)) / ((usd.sum() + 5.0) / weights.sum())
    found = [past_of(weights, 12, seed, rate).luck_ratio(share) for seed in range(20)]
    assert np.median(np.array(found, float)) == pytest.approx(luck.std(), rel=0.1)
    assert np.std(np.array(found, float)) < 0.3 * luck.std()


def test_nothing_is_said_of_a_past_without_costs_or_requests() -> None:
    past, none = PastTraffic(), np.zeros(GROUPS)
    for _ in range(20):
        past.close(none, none, 1.0, 5.0)
    assert (past.intervals, past.concentration(), past.luck_ratio(0.5)) == (0, None, None)
    for _ in range(20):
        past.add(mixed(np.arange(3, dtype=np.uint64), 0))
        past.close(none, none, 1.0, np.nan)
    assert past.luck_ratio(0.5) is None
