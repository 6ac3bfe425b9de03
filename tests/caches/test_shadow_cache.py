"""What the contract does not cover: how the shadow cache is cut, forked, saved, recorded and how much it takes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caches.errors import InputError, Mismatch
from caches.shadow import kernel
from caches.shadow.cache import ShadowCache, requests_of
from caches.stats import CacheStats, Expiry

NUM_KEYS = 9
seeds = st.integers(0, 2**32 - 1)


def random_requests(seed: int, count: int = 60) -> kernel.Requests:
    rng = np.random.default_rng(seed)
    return requests_of(
        rng.integers(NUM_KEYS, size=count),
        np.cumsum(rng.choice([0.0, 0.5, 1.0, 4.0], count)),
        rng.integers(0, 6, count),
        rng.choice([np.nan, np.nan, 2.0, 6.0], count),
        rng.choice([0, 0, 0, 0, 0, 0, 1, 2], count),
    )


def random_cache(seed: int, requests: kernel.Requests | None = None) -> ShadowCache:
    rng = np.random.default_rng(seed)
    return ShadowCache(
        random_requests(seed) if requests is None else requests,
        NUM_KEYS,
        int(rng.integers(1, 20)),
        float(rng.choice([3.0, 8.0, np.inf])),
        Expiry(int(rng.integers(2))),
    )


@dataclass(frozen=True)
class Snapshot:
    """Everything that can be seen of a cache."""

    position: int
    stats: CacheStats
    resident: tuple[int, ...]

    @staticmethod
    def of(cache: ShadowCache) -> Snapshot:
        return Snapshot(cache.position, cache.stats(), tuple(cache.resident_keys().tolist()))


def play(cache: ShadowCache, seed: int, stop: int) -> list[Snapshot]:
    """Requests in random pieces, warm-ups and changes of settings between them, to request `stop`."""
    rng, seen = np.random.default_rng(seed), []
    while cache.position < stop:
        cache.run(min(stop, cache.position + int(rng.integers(1, 8))))
        now = float(cache.requests.time[cache.position - 1])
        if rng.random() < 0.4:
            candidates = rng.choice(cache.position, min(4, cache.position), replace=False)
            cache.warm(candidates, now, now + float(rng.choice([0.0, 2.0, 5.0])))
        if rng.random() < 0.4:
            cache.apply(int(rng.integers(0, 20)), float(rng.choice([2.0, 6.0, np.inf])), now)
        seen.append(Snapshot.of(cache))
    return seen


@settings(deadline=None)
@given(seeds, st.lists(st.integers(0, 60), max_size=8))
def test_running_in_pieces_is_running_at_once(seed: int, cuts: list[int]) -> None:
    whole, pieces = random_cache(seed), random_cache(seed)
    whole.run(60)
    for cut in [*sorted(cuts), 60]:
        pieces.run(cut)
    assert Snapshot.of(pieces) == Snapshot.of(whole)


@settings(deadline=None)
@given(seeds, st.integers(1, 59))
def test_a_fork_goes_on_as_its_origin_would_and_leaves_it_alone(seed: int, cut: int) -> None:
    cache = random_cache(seed)
    play(cache, seed, cut)
    before = Snapshot.of(cache)
    one, other = cache.fork(), cache.fork()
    told = play(one, seed + 1, 60)
    assert Snapshot.of(cache) == before
    assert Snapshot.of(other) == before
    other.apply(0, 1.0, float(other.requests.time[-1]))
    assert play(cache, seed + 1, 60) == told


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("states")


@settings(deadline=None, max_examples=40)
@given(seed=seeds, cut=st.integers(1, 59))
def test_a_restored_cache_goes_on_identically(folder: Path, seed: int, cut: int) -> None:
    cache = random_cache(seed)
    play(cache, seed, cut)
    path = folder / "state.npz"
    cache.save(path)
    restored = ShadowCache.restore(path, cache.requests)
    assert (restored.limits, restored.expiry) == (cache.limits, cache.expiry)
    assert Snapshot.of(restored) == Snapshot.of(cache)
    assert play(restored, seed + 1, 60) == play(cache, seed + 1, 60)
    assert [entry.name for entry in folder.iterdir()] == ["state.npz"]


def test_a_state_of_another_trace_is_refused_with_both_lengths(tmp_path: Path) -> None:
    cache = random_cache(0)
    cache.save(tmp_path / "state.npz")
    with pytest.raises(Mismatch, match="got a state over 60 requests, expected 59"):
        ShadowCache.restore(tmp_path / "state.npz", random_requests(0, 59))


@settings(deadline=None)
@given(seeds)
def test_recording_agrees_with_the_counters(seed: int) -> None:
    cache, silent = random_cache(seed), random_cache(seed)
    parts = [cache.run_recording(stop) for stop in (0, 20, 20, 60)]
    silent.run(60)
    assert Snapshot.of(cache) == Snapshot.of(silent)
    outcome = np.concatenate([part.outcome for part in parts])
    age = np.concatenate([part.age_seconds for part in parts])
    stats = cache.stats()
    assert (outcome == kernel.HIT).sum() == stats.hits
    assert (outcome == kernel.MISS).sum() == stats.misses
    assert (outcome == kernel.OTHER).sum() == stats.writes + stats.deletes
    assert stats.miss_bytes == cache.requests.size[outcome == kernel.MISS].sum()
    assert np.isnan(age[outcome != kernel.HIT]).all()
    assert (age[outcome == kernel.HIT] >= 0).all()


@settings(deadline=None, max_examples=50)
@given(seeds)
def test_room_for_warm_ups_grows_without_a_trace(seed: int) -> None:
    """A cache that had room for every warm-up from the start goes the same way as one that grows."""
    growing, roomy = random_cache(seed), random_cache(seed)
    room = np.zeros(1_000, np.int32)
    roomy.state = roomy.state._replace(warm_at=room, warm_key=room.copy(), warm_time=np.zeros(1_000))
    assert play(growing, seed, 60) == play(roomy, seed, 60)
    assert int(growing.state.cursor[kernel.LISTED]) <= len(growing.state.warm_at) < 1_000
    assert len(roomy.state.warm_at) == 1_000


def test_memory_is_12_bytes_a_key_and_16_a_warm_up() -> None:
    num_keys = 1_000
    requests = requests_of(np.arange(num_keys), np.arange(num_keys, dtype=float))
    cache = ShadowCache(requests, num_keys, num_keys, ttl_seconds=10.0)
    fixed = cache.state.cursor.nbytes + cache.state.counts.nbytes
    assert fixed == 8 * (kernel.CURSORS + kernel.COUNTS)
    assert sum(array.nbytes for array in cache.state) == fixed + 12 * num_keys
    cache.run(num_keys)
    assert sum(array.nbytes for array in cache.state) == fixed + 12 * num_keys
    fetched = cache.warm(np.arange(100), 1_000.0, 1_000.0)
    assert len(fetched) == 100
    assert sum(array.nbytes for array in cache.state) == fixed + 12 * num_keys + 16 * 100


def test_columns_take_16_bytes_a_request_and_are_not_copied_when_they_fit() -> None:
    key, time, size = np.zeros(50, np.int32), np.zeros(50), np.zeros(50, np.int32)
    requests = requests_of(key, time, size)
    assert sum(column.nbytes for column in requests) == 16 * 50
    assert np.shares_memory(requests.key, key)
    assert np.shares_memory(requests.time, time)


def test_without_sizes_capacity_counts_entries() -> None:
    # two entries fit: 0 1 2 | 0 misses, its place taken by 2
    cache = ShadowCache(requests_of(np.array([0, 1, 2, 0, 2]), np.arange(5.0)), 3, 2)
    assert cache.run_recording(5).outcome.tolist() == [kernel.MISS] * 4 + [kernel.HIT]
    assert cache.stats().used_bytes == 2


def test_fractions_of_a_byte_are_dropped() -> None:
    cache = ShadowCache(requests_of(np.array([0, 1, 0]), np.arange(3.0)), 2, 1.9)
    cache.run(3)
    assert cache.stats().misses == 3


@pytest.mark.parametrize(("capacity", "ttl", "named"), [(-1, 1.0, "capacity_bytes"), (1, 0.0, "ttl_seconds")])
def test_bad_settings_are_named_and_change_nothing(capacity: int, ttl: float, named: str) -> None:
    requests = requests_of(np.array([0, 0]), np.arange(2.0))
    with pytest.raises(InputError, match=f"{named}: got"):
        ShadowCache(requests, 1, capacity, ttl)
    cache = ShadowCache(requests, 1, 1)
    cache.run(1)
    before = Snapshot.of(cache), cache.limits
    with pytest.raises(InputError, match=f"{named}: got"):
        cache.apply(capacity, ttl, 1.0)
    assert (Snapshot.of(cache), cache.limits) == before


def test_a_lifetime_that_is_no_number_is_named() -> None:
    with pytest.raises(InputError, match="ttl_seconds: got nan"):
        ShadowCache(requests_of(np.array([0]), np.zeros(1)), 1, 1, np.nan)


def test_there_is_no_way_back_and_none_past_the_end() -> None:
    cache = ShadowCache(requests_of(np.array([0, 0, 0]), np.arange(3.0)), 1, 1)
    cache.run(2)
    with pytest.raises(InputError, match="stop: got 1, expected from 2 to 3"):
        cache.run(1)
    with pytest.raises(InputError, match="stop: got 4, expected from 2 to 3"):
        cache.run_recording(4)


def test_only_earlier_requests_can_be_fetched_ahead() -> None:
    cache = ShadowCache(requests_of(np.array([0, 0, 0]), np.arange(3.0)), 1, 1)
    cache.run(2)
    with pytest.raises(InputError, match="expected from 0 to before 2"):
        cache.warm(np.array([2]), 1.0, 2.0)
    assert cache.warm(np.array([], np.int32), 1.0, 2.0).tolist() == []
