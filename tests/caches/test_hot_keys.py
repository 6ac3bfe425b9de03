"""Ranking of candidates for a warm-up, by hand and beside counts over all requests."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from caches.hot_keys import HotKeys, HotRule
from caches.tiers.tier import Answer
from tests.contracts.tier_contract import PARTITIONS, key_of


def answer(written: float = 0.0, compute: float = 1.0) -> Answer:
    return Answer(b"", written, compute_seconds=compute)


def test_popularity_halves_and_misses_that_take_long_count_more() -> None:
    hot = HotKeys(HotRule(half_life_seconds=10.0))
    for _ in range(4):
        hot.seen(key_of(1), answer(), 0.0)
    hot.seen(key_of(2), answer(compute=3.0), 20.0)
    ranked = hot.ranked(20.0, ttl_seconds=1e9)
    assert [(one.key, one.over) for one in ranked] == [(key_of(2), False), (key_of(1), False)]
    assert [one.worth for one in ranked] == pytest.approx([3.0, 1.0])  # four, halved twice


def test_what_is_left_of_a_lifetime_counts_and_what_is_over_is_whole() -> None:
    hot = HotKeys()
    for number, written in ((1, 0.0), (2, 75.0), (3, 100.0)):
        hot.seen(key_of(number), answer(written), 100.0)
    found = {one.key: (round(one.worth, 9), one.over) for one in hot.ranked(100.0, ttl_seconds=100.0)}
    assert found == {key_of(1): (1.0, True), key_of(2): (0.75, False), key_of(3): (1.0, False)}


def test_a_share_of_the_best_is_given() -> None:
    hot = HotKeys()
    for number in range(10):
        for _ in range(number + 1):
            hot.seen(key_of(number), answer(), 0.0)
    assert [one.key for one in hot.ranked(0.0, 1e9, share=0.25)] == [key_of(9), key_of(8)]
    assert hot.ranked(0.0, 1e9, share=0.0) == []
    assert HotKeys().ranked(0.0, 1e9) == []


def test_the_less_popular_half_is_forgotten() -> None:
    hot = HotKeys(HotRule(most=4))
    for number, times in ((0, 5), (1, 1), (2, 4), (3, 1)):
        for _ in range(times):
            hot.seen(key_of(number), answer(), 0.0)
    hot.seen(key_of(9), answer(), 0.0)
    assert len(hot) == 3
    assert {one.key for one in hot.ranked(0.0, 1e9)} == {key_of(0), key_of(2), key_of(9)}


@given(st.lists(st.tuples(st.integers(0, 5), st.floats(0.0, 5.0)), min_size=1, max_size=60))
def test_popularity_is_the_sum_over_all_requests(requests: list[tuple[int, float]]) -> None:
    hot, now, at = HotKeys(HotRule(half_life_seconds=7.0)), 0.0, list[tuple[int, float]]()
    for number, wait in requests:
        now += wait
        at.append((number, now))
        hot.seen(key_of(number), answer(now), now)
    now += 3.0
    for one in hot.ranked(now, ttl_seconds=1e12):
        expected = sum(0.5 ** ((now - time) / 7.0) for number, time in at if key_of(number) == one.key)
        assert one.worth == pytest.approx(expected, rel=1e-9)


@dataclass(frozen=True)
class Seen:
    """number: of the key. at: when it was asked for. written, compute: of the answer that it got."""

    number: int
    at: float
    written: float
    compute: float


SEEN = st.lists(
    st.builds(Seen, st.integers(0, 7), st.floats(0.0, 90.0), st.floats(0.0, 90.0), st.floats(0.1, 9.0)), max_size=40
)


@given(SEEN, st.floats(0.0, 1.0))
def test_ranking_is_that_of_the_formula_over_all_requests(every: list[Seen], share: float) -> None:
    """Popularity x what is left x what a miss takes, from the whole record; the last answer counts."""
    hot, now, ttl = HotKeys(HotRule(half_life_seconds=20.0)), 100.0, 60.0
    for one in sorted(every, key=lambda one: one.at):
        hot.seen(key_of(one.number), answer(one.written, one.compute), one.at)
    expected: dict[int, float] = {}
    for number in {one.number for one in every}:
        mine = sorted((one for one in every if one.number == number), key=lambda one: one.at)
        popularity = sum(0.5 ** ((now - one.at) / 20.0) for one in mine)
        left = 1.0 - (now - mine[-1].written) / ttl
        expected[number] = popularity * mine[-1].compute * (left if left > 0 else 1.0)
    ranked = hot.ranked(now, ttl, share)
    assert len(ranked) == round(share * len(expected))
    assert [one.worth for one in ranked] == pytest.approx(sorted(expected.values(), reverse=True)[: len(ranked)])
    by_key = {key_of(number): worth for number, worth in expected.items()}
    assert [one.worth for one in ranked] == pytest.approx([by_key[one.key] for one in ranked])


def test_only_requests_of_some_partitions() -> None:
    hot = HotKeys()
    for partition in range(3):
        hot.seen(key_of(1, partition), answer(), 0.0)
    found = hot.ranked(0.0, 1e9, among=lambda partition: partition.namespace == "x")
    assert {one.key.partition for one in found} == {PARTITIONS[0], PARTITIONS[2]}


def test_long_questions_are_not_kept() -> None:
    hot = HotKeys(HotRule(longest_question=10))
    short, long = replace(key_of(1), question="a" * 10), replace(key_of(2), question="a" * 11)
    for key in (short, long, long):
        hot.seen(key, answer(), 0.0)
    assert [one.key for one in hot.ranked(0.0, 1e9)] == [replace(long, question=None), short]


def test_what_another_saw_is_learnt_once() -> None:
    hot = HotKeys(HotRule(half_life_seconds=10.0))
    hot.seen(key_of(1), answer(), 0.0)
    for _ in range(2):
        hot.learn(key_of(1), answer(), 4.0, 0.0)
        hot.learn(key_of(2), answer(compute=3.0), 2.0, 0.0)
    hot.learn(key_of(1), answer(), 1.0, 10.0)  # it is more here
    assert [(one.key, one.popularity, one.worth) for one in hot.ranked(10.0, 1e12)] == [
        (key_of(2), 1.0, pytest.approx(3.0)),
        (key_of(1), 2.0, pytest.approx(2.0)),
    ]


def test_what_keys_stand_for_by_hand() -> None:
    """At half-lives of ln 2 seconds a popularity of 3 is that of 3 requests a second. Where answers are kept for 2 s
    one in 7 misses, and takes 0.7 s: 0.3 s a second."""
    hot = HotKeys(HotRule(half_life_seconds=math.log(2.0)))
    for _ in range(3):
        hot.seen(key_of(1), answer(compute=0.7), 5.0)
    hot.seen(replace(key_of(2), partition=PARTITIONS[1]), answer(), 5.0)
    keys, weights = hot.weights(5.0, 2.0, lambda partition: partition != PARTITIONS[1])
    assert keys == [key_of(1).id]
    np.testing.assert_allclose(weights, [[3.0, 0.3]])
    assert hot.weights(5.0, 2.0)[1].shape == (2, 2)
    assert HotKeys().weights(0.0, 1.0)[1].shape == (0, 2)
