from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import jensenshannon
from scipy.stats import entropy

from envs.traffic import (
    DRIFT,
    ENTROPY,
    FEATURES,
    NEW_KEY,
    ONE_HIT,
    OUTPUT,
    PROMPT,
    REQUESTS,
    traffic_table,
    warmup_candidates,
)

NUM_KEYS = 7
intervals_of_keys = st.lists(st.lists(st.integers(0, NUM_KEYS - 1), max_size=12), min_size=2, max_size=8)


def columns(intervals: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Keys in order, and where each interval begins."""
    key = np.array([k for keys in intervals for k in keys], np.int32)
    return key, np.cumsum([0, *map(len, intervals)]).astype(np.int64)


def brute_force(intervals: list[list[int]], prompt: np.ndarray, output: np.ndarray, edges: np.ndarray) -> np.ndarray:
    table = np.full((len(intervals), len(FEATURES)), np.nan)
    for i, keys in enumerate(intervals):
        table[i, REQUESTS] = len(keys)
        if not keys:
            continue
        p, part = np.bincount(keys, minlength=NUM_KEYS), slice(edges[i], edges[i + 1])
        earlier = {k for before in intervals[:i] for k in before}
        table[i, ENTROPY] = entropy(p, base=2)
        if i > 0 and intervals[i - 1]:
            q = np.bincount(intervals[i - 1], minlength=NUM_KEYS)
            table[i, DRIFT] = jensenshannon(p, q, base=2) ** 2
        table[i, ONE_HIT] = (p == 1).sum() / (p > 0).sum()
        table[i, NEW_KEY] = len(set(keys) - earlier) / len(set(keys))
        table[i, PROMPT], table[i, OUTPUT] = prompt[part].mean(), output[part].mean()
    return table


@settings(deadline=None, max_examples=200)
@given(intervals_of_keys, st.integers(0, 2**32 - 1))
def test_table_equals_the_textbook_formulas(intervals: list[list[int]], seed: int) -> None:
    key, edges = columns(intervals)
    rng = np.random.default_rng(seed)
    prompt, output = rng.integers(1, 4_000, (2, len(key)), dtype=np.int32)
    table = traffic_table(key, prompt, output, edges, NUM_KEYS)
    np.testing.assert_allclose(table, brute_force(intervals, prompt, output, edges), atol=1e-7)


def test_table_by_hand() -> None:
    # 0 0 1 1 | nothing | 0 2 2 2 | 1 0 1 0
    key, edges = columns([[0, 0, 1, 1], [], [0, 2, 2, 2], [1, 0, 1, 0]])
    tokens = np.arange(12, dtype=np.int32)
    table = traffic_table(key, tokens, tokens, edges, 3)
    nan = np.nan
    # the last: p = (1/2, 1/2, 0), q = (1/4, 0, 3/4); half of each key's p log2(2p/(p+q)) + q log2(2q/(p+q))
    drift = 0.5 * (0.5 * np.log2(4 / 3) + 0.25 * np.log2(2 / 3) + 0.5 * 1 + 0.75 * 1)
    np.testing.assert_allclose(table[:, REQUESTS], [4, 0, 4, 4])
    np.testing.assert_allclose(table[:, ENTROPY], [1.0, nan, 2 - 0.75 * np.log2(3), 1.0])
    np.testing.assert_allclose(table[:, DRIFT], [nan, nan, nan, drift])
    np.testing.assert_allclose(table[:, ONE_HIT], [0.0, nan, 0.5, 0.0])
    np.testing.assert_allclose(table[:, NEW_KEY], [1.0, nan, 0.5, 0.0])
    np.testing.assert_allclose(table[:, PROMPT], [1.5, nan, 5.5, 9.5])


def test_drift_is_one_between_strangers_and_zero_between_equals() -> None:
    key, edges = columns([[0, 1], [1, 0], [2, 3]])
    tokens = np.ones(6, np.int32)
    assert traffic_table(key, tokens, tokens, edges, 4)[1:, DRIFT].tolist() == [0.0, 1.0]


def brute_force_ranking(intervals: list[list[int]], wanted: int, decay: float) -> list[list[int]]:
    """Keys by decayed count, best first, ties by key: of those requested in the interval before or ranked last time."""
    ranked: list[list[int]] = [[]]
    for i in range(1, len(intervals)):
        score = {k: sum(intervals[j].count(k) * decay ** (i - 1 - j) for j in range(i)) for k in range(NUM_KEYS)}
        pool = set(intervals[i - 1]) | set(ranked[-1])
        ranked.append(sorted(pool, key=lambda k: (-round(score[k], 6), k))[:wanted])
    return ranked


@settings(deadline=None, max_examples=200)
@given(intervals_of_keys, st.integers(1, 4), st.sampled_from([0.5, 0.7, 0.9]))
def test_candidates_are_the_most_popular_keys_of_the_past(
    intervals: list[list[int]], wanted: int, decay: float
) -> None:
    key, edges = columns(intervals)
    chosen, number = warmup_candidates(key, edges, NUM_KEYS, wanted, decay)
    ranked = brute_force_ranking(intervals, wanted, decay)
    for i, best in enumerate(ranked):
        assert number[i] == len(best)
        assert key[chosen[i, : number[i]]].tolist() == best
        for position in chosen[i, : number[i]]:  # the latest request of its key before the interval
            assert position < edges[i]
            assert key[position] not in key[position + 1 : edges[i]]


@settings(deadline=None)
@given(intervals_of_keys, intervals_of_keys)
def test_candidates_know_nothing_of_what_is_to_come(past: list[list[int]], future: list[list[int]]) -> None:
    last = len(past)  # the interval that begins where the past ends
    told = []
    for rest in (future, [[0], [0]]):
        key, edges = columns([*past, *rest])
        chosen, number = warmup_candidates(key, edges, NUM_KEYS, 3, 0.7)
        told.append([chosen[i, : number[i]].tolist() for i in range(last + 1)])
    assert told[0] == told[1]


@pytest.mark.parametrize("wanted", [0, 1])
def test_no_traffic_before_means_no_candidates(wanted: int) -> None:
    key, edges = columns([[], [], [3, 3]])
    chosen, number = warmup_candidates(key, edges, NUM_KEYS, wanted, 0.7)
    assert chosen.shape == (3, wanted)
    assert number.tolist() == [0, 0, 0]
