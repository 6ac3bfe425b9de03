"""The clairvoyant bounds: against a search through every choice, against replays, and against libCacheSim's Belady."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caches.shadow import kernel
from caches.shadow.cache import ShadowCache, requests_of
from caches.shadow.curve import link
from caches.shadow.offline import endless_hits, hit_bound, min_hits, pfoo_l_hits, reuses_of
from caches.stats import Expiry

NEVER = float("inf")
TTLS = (0.5, 2.0, 6.0, NEVER)
seeds = st.integers(0, 2**32 - 1)
keys_of_a_trace = st.lists(st.integers(0, 4), min_size=1, max_size=12).map(lambda keys: np.array(keys, np.int32))


def most_hits(key: tuple[int, ...], entries: int) -> int:
    """Over every choice of whom to evict when a response comes in; every response is admitted."""

    @cache
    def best(t: int, held: frozenset[int]) -> int:
        if t == len(key):
            return 0
        if key[t] in held:
            return 1 + best(t + 1, held)
        if len(held) < entries:
            return best(t + 1, held | {key[t]})
        return max(best(t + 1, (held - {victim}) | {key[t]}) for victim in held)

    return best(0, frozenset()) if entries else 0


def most_hits_by_bytes(key: np.ndarray, size: np.ndarray, capacity: int) -> int:
    """Over every choice of what to keep after each request, the response just given among it or not."""

    @cache
    def best(t: int, held: frozenset[int]) -> int:
        if t == len(key):
            return 0
        k = int(key[t])
        there, hit = sorted(held | {k}), k in held
        choices = (frozenset(there[i] for i in range(len(there)) if mask >> i & 1) for mask in range(2 ** len(there)))
        return hit + max(best(t + 1, kept) for kept in choices if sum(int(size[one]) for one in kept) <= capacity)

    return best(0, frozenset())


@settings(deadline=None, max_examples=300)
@given(keys_of_a_trace, st.integers(0, 5))
def test_min_finds_the_most_hits_that_any_eviction_can(key: np.ndarray, entries: int) -> None:
    found = min_hits(np.arange(len(key), dtype=float), link(key, 5)[1], entries, NEVER)
    assert found == most_hits(tuple(key.tolist()), entries)


def test_min_by_hand() -> None:
    # two entries, a b c a b c: c comes in, and b (needed after a) goes; a hits; b comes in for a; c hits
    key = np.array([0, 1, 2, 0, 1, 2], np.int32)
    following = link(key, 3)[1]
    assert min_hits(np.arange(6.0), following, 2, NEVER) == 2
    assert min_hits(np.arange(6.0), following, 3, NEVER) == 3
    assert min_hits(np.arange(6.0), following, 3, 3.0) == 0  # each comes back after just three seconds


@pytest.mark.parametrize("n", [63, 64, 65, 4095, 4096, 4097, 300_000])
def test_min_at_the_edges_of_its_tree(n: int) -> None:
    """All keys come once and then once more in the same order. With room for all of them each hits the second time;
    with k entries the first k - 1 can be kept while the others pass through the last one. LRU keeps none."""
    key = np.concatenate((np.arange(n // 2), np.arange(n // 2))).astype(np.int32)
    following = link(key, n // 2)[1]
    assert min_hits(np.arange(float(len(key))), following, n // 2, NEVER) == n // 2
    lru = ShadowCache(requests_of(key, np.arange(len(key))), n // 2, n // 4)
    lru.run(len(key))
    assert lru.stats().hits == 0
    assert min_hits(np.arange(float(len(key))), following, n // 4, NEVER) >= n // 4 - 1


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=9).map(np.array),
    st.lists(st.integers(1, 5), min_size=4, max_size=4).map(np.array),
    st.integers(0, 12),
)
def test_pfoo_l_is_never_below_the_best_that_is_possible(key: np.ndarray, sizes: np.ndarray, capacity: int) -> None:
    requests = requests_of(key, np.arange(len(key)), sizes[key])
    bound = pfoo_l_hits(reuses_of(requests, 4), capacity, NEVER, len(key))
    assert bound >= most_hits_by_bytes(key, sizes, capacity)


def test_pfoo_l_by_hand() -> None:
    # a3 b1 b1 a3: b needs 1 byte for 1 request, a 3 bytes for 3: 10 in all; 4 requests of 2 bytes are room for 8
    requests = requests_of(np.array([0, 1, 1, 0]), np.arange(4), np.array([3, 1, 1, 3]))
    reuses = reuses_of(requests, 2)
    assert reuses.cost.tolist() == [1.0, 9.0]
    assert [pfoo_l_hits(reuses, capacity, NEVER, 4) for capacity in (0, 1, 2, 3)] == [0, 1, 1, 2]
    assert pfoo_l_hits(reuses, 3, 3.0, 4) == 1  # a comes back after three seconds


def test_an_endless_cache_by_hand() -> None:
    # a at 0, 1, 2, 3, 4 s: written at 0, gone at 2 and written again, gone at 4
    requests = requests_of(np.zeros(5), np.arange(5.0))
    assert endless_hits(requests, 1, 2.0) == 2
    assert endless_hits(requests, 1, NEVER) == 4
    written = requests_of(np.zeros(5), np.arange(5.0), operation=np.array([0, 1, 2, 0, 0]))
    assert endless_hits(written, 1, NEVER) == 1  # a read that misses, a write, a delete, a miss, a hit


@settings(deadline=None, max_examples=100)
@given(seeds, st.sampled_from(Expiry), st.booleans(), st.booleans())
def test_no_replay_exceeds_the_bound(seed: int, expiry: Expiry, plain: bool, alike: bool) -> None:
    rng = np.random.default_rng(seed)
    n, capacities = 60, np.array([0.0, 2.0, 7.0, 15.0, 100.0])
    requests = requests_of(
        rng.integers(9, size=n),
        np.cumsum(rng.choice([0.0, 0.5, 1.0, 4.0], n)),
        np.full(n, 2) if alike else rng.integers(0, 6, n),
        None if plain else rng.choice([np.nan, np.nan, 2.0, 6.0], n),
        None if plain else rng.choice([0, 0, 0, 0, 0, 0, 1, 2], n),
    )
    bound = hit_bound(requests, 9, capacities, np.array(TTLS), expiry is Expiry.SINCE_TOUCH, 2)
    assert bound.exact == (alike and plain)
    for row, capacity in enumerate(capacities):
        for column, ttl in enumerate(TTLS):
            cache = ShadowCache(requests, 9, capacity, ttl, expiry)
            cache.run(n)
            assert cache.stats().hits <= bound.hits[row, column]


@settings(deadline=None, max_examples=50)
@given(seeds, st.sampled_from(Expiry))
def test_a_cache_with_room_for_everything_reaches_the_bound(seed: int, expiry: Expiry) -> None:
    rng = np.random.default_rng(seed)
    requests = requests_of(rng.integers(9, size=60), np.cumsum(rng.choice([0.0, 0.5, 1.0, 4.0], 60)))
    bound = hit_bound(requests, 9, np.array([9.0]), np.array(TTLS), expiry is Expiry.SINCE_TOUCH)
    for column, ttl in enumerate(TTLS):
        cache = ShadowCache(requests, 9, 9, ttl, expiry)
        cache.run(60)
        assert cache.stats().hits == bound.hits[0, column]


def test_the_same_hits_as_the_belady_of_other_people(shared_traces: Path, tmp_path: Path) -> None:
    """libCacheSim needs the next access in the file; its sizes are left out, so capacities count entries."""
    lcs = pytest.importorskip("libcachesim", reason="libcachesim is not installed (the extra `bench` has it)")
    pyarrow_csv = pytest.importorskip("pyarrow.csv")
    table = pyarrow_csv.read_csv(shared_traces / "kv" / "adaptsize_cdn_sample.csv.zst")
    key = np.unique(table["key"].to_numpy(), return_inverse=True)[1].astype(np.int32)
    n, keys = len(key), int(key.max()) + 1
    following = link(key, keys)[1]
    records = np.zeros(n, np.dtype([("time", "<u4"), ("id", "<u8"), ("size", "<u4"), ("next", "<i8")]))
    records["time"], records["id"], records["size"] = np.arange(n), key, 1
    records["next"] = np.where(following < n, following + 1, np.iinfo(np.int64).max)  # its clock starts at 1
    path = tmp_path / "belady.oracleGeneral"
    records.tofile(path)
    for entries in (100, 1_000, 10_000):
        reader = lcs.TraceReader(str(path), lcs.TraceType.ORACLE_GENERAL_TRACE)
        ratio, _ = lcs.Belady(entries).process_trace(reader)
        assert n - round(ratio * n) == min_hits(np.arange(float(n)), following, entries, NEVER)


def test_a_delete_ends_what_can_be_hit() -> None:
    operation = np.array([kernel.READ, kernel.DELETE, kernel.READ])
    requests = requests_of(np.zeros(3), np.arange(3.0), operation=operation)
    assert hit_bound(requests, 1, np.array([10.0]), np.array([NEVER])).hits.tolist() == [[0]]
