from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caches.errors import InputError
from caches.shadow.cache import ShadowCache, requests_of
from caches.shadow.curve import link, lru_misses
from caches.stats import CacheStats

keys_of_a_trace = st.lists(st.integers(0, 8), min_size=1, max_size=80).map(lambda keys: np.array(keys, np.int32))
sizes_of_keys = st.lists(st.integers(0, 9), min_size=9, max_size=9).map(lambda sizes: np.array(sizes, np.int32))
capacities_of_caches = st.lists(st.integers(0, 40), min_size=1, max_size=6).map(np.array)


def replayed(key: np.ndarray, size: np.ndarray, capacity: int) -> CacheStats:
    cache = ShadowCache(requests_of(key, np.arange(len(key), dtype=float), size), 9, capacity)
    cache.run(len(key))
    return cache.stats()


@settings(deadline=None)
@given(keys_of_a_trace)
def test_link_finds_the_neighbouring_requests_of_a_key(key: np.ndarray) -> None:
    previous, following = link(key, 9)
    for t, k in enumerate(key):
        earlier, later = np.flatnonzero(key[:t] == k), np.flatnonzero(key[t + 1 :] == k)
        assert previous[t] == (earlier[-1] if len(earlier) else -1)
        assert following[t] == (later[0] + t + 1 if len(later) else len(key))


@settings(deadline=None, max_examples=200)
@given(keys_of_a_trace, sizes_of_keys, capacities_of_caches)
def test_one_pass_equals_a_replay_per_capacity(key: np.ndarray, sizes: np.ndarray, capacities: np.ndarray) -> None:
    size = sizes[key]
    misses, miss_bytes = lru_misses(*link(key, 9), size, capacities)
    expected = [replayed(key, size, int(capacity)) for capacity in capacities]
    assert misses.tolist() == [stats.misses for stats in expected]
    assert miss_bytes.tolist() == [stats.miss_bytes for stats in expected]


@settings(deadline=None)
@given(keys_of_a_trace, sizes_of_keys, capacities_of_caches, st.randoms())
def test_the_order_of_capacities_does_not_matter(
    key: np.ndarray, sizes: np.ndarray, capacities: np.ndarray, random: object
) -> None:
    shuffled = np.arange(len(capacities))
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    links, size = link(key, 9), sizes[key]
    straight, mixed = lru_misses(*links, size, capacities), lru_misses(*links, size, capacities[shuffled])
    for one, other in zip(straight, mixed, strict=True):
        assert one[shuffled].tolist() == other.tolist()


def test_a_curve_by_hand() -> None:
    # a1 b2 a1 c3 b2 a1, distinct bytes 6
    # 0 bytes: nothing is ever held. 2: b throws out a, c is refused, so the last b and then a: a b | a - | b | a,
    #   all miss but b at the fifth: a(1) b(2, a out) a(1, b out) c(refused) b(2, a out) a -> all 6 miss
    # 3: a b hold 3: third hits; c (3) throws both out; b, a miss -> 5
    # 6: only the first of each key misses -> 3
    key, size = np.array([0, 1, 0, 2, 1, 0], np.int32), np.array([1, 2, 1, 3, 2, 1], np.int32)
    misses, miss_bytes = lru_misses(*link(key, 3), size, np.array([6, 0, 3, 2]))
    assert misses.tolist() == [3, 6, 5, 6]
    assert miss_bytes.tolist() == [6, 10, 9, 10]


def test_a_smaller_cache_that_refuses_may_hit_where_a_larger_one_evicted() -> None:
    # a1 b5 a1: with 2 bytes b is refused and a hits; with 5 bytes b throws a out
    key, size = np.array([0, 1, 0], np.int32), np.array([1, 5, 1], np.int32)
    misses, _ = lru_misses(*link(key, 2), size, np.array([2, 5, 6]))
    assert misses.tolist() == [2, 3, 2]


def test_a_size_that_changes_is_named_with_its_request() -> None:
    key, size = np.array([0, 1, 0, 1], np.int32), np.array([5, 7, 5, 8], np.int32)
    with pytest.raises(InputError, match="size of request 3: got 8, expected 7 as before for its key"):
        lru_misses(*link(key, 2), size, np.array([10]))
