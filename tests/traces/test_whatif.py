"""The what-if surface against a shadow cache per setting, request by request; and its samples against the whole."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caches.errors import InputError
from caches.policies.catalog import ADMISSIONS, EVICTIONS
from caches.policies.pair import CachePolicy, in_miniature
from caches.policies.settings import Admission, AdmitAll, Eviction, Lru
from caches.shadow import kernel
from caches.shadow.cache import ShadowCache, requests_of
from caches.stats import Expiry
from traces.whatif import Sampling, Sums, Traffic, sampled_surface, surface
from traces.whatif_kernel import Ahead

NUM_KEYS, BLOCK_SECONDS = 9, 10.0
CAPACITIES = np.array([0.0, 3.5, 8.0, 20.0, 1000.0])
TTLS = np.array([0.5, 2.0, 6.0, 40.0, 1e9])
seeds = st.integers(0, 2**32 - 1)
HARD = tuple(name for name in ADMISSIONS if name != "all")


def traffic_of(seed: int, plain: bool, expiry: Expiry = Expiry.SINCE_WRITE, lifetime: float = 30.0) -> Traffic:
    """80 requests; sizes of a key may change. The last block ends before the last request."""
    rng = np.random.default_rng(seed)
    n = 80
    time = np.cumsum(rng.choice([0.0, 0.5, 1.0, 4.0], n))
    own_ttl = None if plain else rng.choice([np.nan, np.nan, 2.0, 6.0], n)
    operation = None if plain else rng.choice([0, 0, 0, 0, 0, 0, 1, 2], n)
    requests = requests_of(rng.integers(NUM_KEYS, size=n), time, rng.integers(0, 6, n), own_ttl, operation)
    blocks = int((time[-1] - time[0]) / BLOCK_SECONDS)
    edges = np.searchsorted(time, time[0] + BLOCK_SECONDS * np.arange(blocks + 1)).astype(np.int64)
    return Traffic(requests, NUM_KEYS, edges, rng.uniform(0.1, 2.0, n).astype(np.float32), lifetime, expiry)


def with_warmups(traffic: Traffic, seed: int) -> Traffic:
    """Up to four earlier requests at the beginning of each block."""
    rng = np.random.default_rng(seed)
    blocks = len(traffic.edges) - 1
    candidates, wanted = np.zeros((blocks, 4), np.int32), np.zeros(blocks, np.int64)
    for block, at in enumerate(traffic.edges[:-1]):
        wanted[block] = rng.integers(min(4, at) + 1)
        candidates[block, : wanted[block]] = rng.choice(at, wanted[block], replace=False) if at else []
    return replace(traffic, ahead=Ahead(candidates, wanted, float(traffic.requests.time[0]), BLOCK_SECONDS))


def by_shadow(
    traffic: Traffic, capacity: float, ttl: float, eviction: Eviction = Lru(), admission: Admission = AdmitAll()
) -> np.ndarray:
    """hits, GPU seconds of misses and of warm-ups, stale answers: (blocks, 4)."""
    cache = ShadowCache(
        traffic.requests, traffic.num_keys, capacity, ttl, traffic.expiry, eviction, admission, traffic.compute_seconds
    )
    rows, ahead = [], traffic.ahead
    for block, stop in enumerate(traffic.edges[1:]):
        at, warmed = cache.position, 0.0
        if ahead is not None:
            now = ahead.start + block * ahead.seconds
            fetched = cache.warm(ahead.candidates[block, : ahead.wanted[block]], now, now + ahead.seconds)
            warmed = float(traffic.compute_seconds[fetched].astype(np.float64).sum())
        told = cache.run_recording(int(stop))
        hit, missed = told.outcome == kernel.HIT, told.outcome == kernel.MISS
        stale = sum(1.0 - math.exp(-float(age) / traffic.answer_lifetime_seconds) for age in told.age_seconds[hit])
        compute = float(traffic.compute_seconds[at:stop][missed].astype(np.float64).sum())
        rows.append((hit.sum(), compute, warmed, stale))
    return np.array(rows).reshape(-1, 4)


def check(traffic: Traffic, sums: Sums, eviction: Eviction = Lru(), admission: Admission = AdmitAll()) -> None:
    for row, capacity in enumerate(CAPACITIES):
        for column, ttl in enumerate(TTLS):
            found = [part[0, row, column] for part in (sums.hits, sums.missed_compute, sums.warmup_compute)]
            expected = by_shadow(traffic, capacity, ttl, eviction, admission)
            np.testing.assert_array_equal(found[0], expected[:, 0])
            np.testing.assert_allclose(found[1], expected[:, 1], rtol=1e-12)
            np.testing.assert_allclose(found[2], expected[:, 2], rtol=1e-12)
            stale = sums.stale_answers[0, row, column]
            np.testing.assert_allclose(stale, expected[:, 3], rtol=1e-6, atol=1e-12)  # the record's ages are float32


@settings(deadline=None, max_examples=80)
@given(seeds, st.sampled_from(Expiry), st.sampled_from([30.0, 0.05]))
def test_plain_reads_equal_a_replay_per_setting(seed: int, expiry: Expiry, lifetime: float) -> None:
    traffic = traffic_of(seed, True, expiry, lifetime)
    assert traffic.plain
    check(traffic, surface(traffic, CAPACITIES, TTLS, 2))


@settings(deadline=None, max_examples=40)
@given(seeds, st.sampled_from(Expiry), st.booleans())
def test_lifetimes_writes_deletes_and_warmups_equal_a_replay_per_setting(
    seed: int, expiry: Expiry, warmed: bool
) -> None:
    traffic = traffic_of(seed, False, expiry)
    if warmed:
        traffic = with_warmups(traffic, seed)
    check(traffic, surface(traffic, CAPACITIES, TTLS))


@settings(deadline=None, max_examples=25)
@given(seeds, st.sampled_from(Expiry))
def test_warmups_before_plain_reads_equal_a_replay_per_setting(seed: int, expiry: Expiry) -> None:
    traffic = with_warmups(traffic_of(seed, True, expiry), seed)
    check(traffic, surface(traffic, CAPACITIES, TTLS))


@settings(deadline=None, max_examples=60)
@given(seeds, st.sampled_from(Expiry), st.booleans(), st.sampled_from(list(EVICTIONS)), st.sampled_from(["all", *HARD]))
def test_any_policy_equals_a_replay_per_setting(
    seed: int, expiry: Expiry, plain: bool, eviction: str, admission: str
) -> None:
    rules = CachePolicy(eviction, admission).rules
    traffic = replace(with_warmups(traffic_of(seed, plain, expiry), seed), rules=rules)
    check(traffic, surface(traffic, CAPACITIES, TTLS, 2), EVICTIONS[eviction], ADMISSIONS[admission])


def test_a_surface_of_sieve_by_hand() -> None:
    # a at 0 and 1 s, b at 2, a at 3, c at 4, a at 5: two bytes hold a and b; for c the hand passes over a, which was
    # hit, and b goes, so a hits at the end. By LRU too: b was used before a. At 6 s b: a miss, for which SIEVE's hand,
    # which was at c, takes c; LRU takes c as well. a at 7 hits.
    key, time = np.array([0, 0, 1, 0, 2, 0, 1, 0]), np.arange(8.0)
    traffic = Traffic(requests_of(key, time), 3, np.array([0, 8]), np.ones(8, np.float32), 10.0)
    sums = surface(replace(traffic, rules=CachePolicy("sieve").rules), np.array([1.0, 2.0]), np.array([99.0]))
    assert sums.hits[0, :, 0, 0].tolist() == [1, 4]


def test_what_is_counted_in_keys_is_smaller_in_a_sample() -> None:
    rules = CachePolicy("lru", "second-hit").rules
    assert in_miniature(rules, 0.25) == rules._replace(remembered=16_384)
    assert in_miniature(rules, 1e-9).remembered == 1


def test_a_surface_by_hand() -> None:
    # a at 0, 1, 5 s and b at 2, 3 s, one byte each, one GPU second a miss; one block of all five
    #   1 byte: a miss, a hit, b miss (throws a out), b hit, a miss
    #   2 bytes, 3 s since write: a miss, hit, b miss, hit, a of age 5 s miss; 9 s: a hits at last
    requests = requests_of(np.array([0, 0, 1, 1, 0]), np.array([0.0, 1.0, 2.0, 3.0, 5.0]))
    traffic = Traffic(requests, 2, np.array([0, 5]), np.ones(5, np.float32), 10.0)
    sums = surface(traffic, np.array([1.0, 2.0]), np.array([3.0, 9.0]))
    assert sums.reads.tolist() == [5]
    assert sums.hits[0, :, :, 0].tolist() == [[2, 2], [2, 3]]
    assert sums.missed_compute[0, :, :, 0].tolist() == [[3, 3], [3, 2]]
    young = 2 * (1 - math.exp(-0.1))
    assert sums.stale_answers[0, 1, :, 0] == pytest.approx([young, young + 1 - math.exp(-0.5)])


def test_only_reads_count_as_lookups() -> None:
    requests = requests_of(np.zeros(4), np.arange(4.0), None, None, np.array([0, 1, 2, 0]))
    traffic = Traffic(requests, 1, np.array([0, 2, 4]), np.ones(4, np.float32), 10.0)
    assert traffic.reads.tolist() == [1, 1]


def test_progress_ends_at_the_number_of_settings_that_differ() -> None:
    seen: list[tuple[int, int]] = []
    traffic = traffic_of(0, True)  # shorter than 1e9 s, and 8.0 and 8.5 bytes are the same
    surface(
        traffic,
        np.array([8.0, 8.5]),
        np.array([2.0, 1e9, 2e9]),
        progress=lambda done, total: seen.append((done, total)),
    )
    assert seen == [(1, 2), (2, 2)]


def zipf_traffic(n: int, seed: int = 0) -> Traffic:
    rng = np.random.default_rng(seed)
    keys = 20_000
    share = np.cumsum(np.arange(1, keys + 1) ** -0.9)
    key = rng.permutation(keys)[np.searchsorted(share, rng.random(n) * share[-1])]
    size = rng.integers(50, 500, keys)[key]
    edges = np.linspace(0, n, 11).astype(np.int64)
    compute = rng.uniform(0.05, 0.2, keys)[key].astype(np.float32)
    return Traffic(requests_of(key, np.arange(n) / 50.0, size), keys, edges, compute, 20_000.0)


def test_samples_meet_the_exact_surface_within_the_error_that_they_show() -> None:
    traffic, capacities, ttls = zipf_traffic(400_000), np.array([1e5, 5e5, 2e6]), np.array([100.0, 1000.0, 1e6])
    exact = surface(traffic, capacities, ttls)
    found = sampled_surface(traffic, capacities, ttls, Sampling(8, 160_000))
    assert found.share == pytest.approx(0.05)
    assert found.reads.tolist() == exact.reads.tolist()
    for name, most in (("hits", 0.08), ("missed_compute", 0.05), ("stale_answers", 0.5)):
        each = getattr(found, name).sum(axis=-1)  # sample, capacity, lifetime
        truth = getattr(exact, name)[0].sum(axis=-1)
        error = np.abs(each.mean(axis=0) - truth)
        assert (error < most * truth).all(), name  # 18 entries in the smallest: its few hot keys make what is stale
        shown = 2.365 * each.std(axis=0, ddof=1) / math.sqrt(8)  # Student's t of 7, 95 %
        assert (error < 2 * shown).all(), name


def test_all_keys_in_one_sample_are_the_exact_surface() -> None:
    traffic = traffic_of(3, False)
    exact, found = surface(traffic, CAPACITIES, TTLS), sampled_surface(traffic, CAPACITIES, TTLS, Sampling(1, 80))
    for name in ("hits", "missed_compute", "stale_answers"):
        np.testing.assert_allclose(getattr(found, name), getattr(exact, name), rtol=1e-12)


def test_warmups_of_all_keys_in_one_sample_are_the_exact_ones() -> None:
    traffic = with_warmups(traffic_of(4, False), 4)
    exact, found = surface(traffic, CAPACITIES, TTLS), sampled_surface(traffic, CAPACITIES, TTLS, Sampling(1, 80))
    np.testing.assert_allclose(found.warmup_compute, exact.warmup_compute, rtol=1e-12)
    np.testing.assert_allclose(found.hits, exact.hits, rtol=1e-12)


def test_a_trace_of_one_key_cannot_be_sampled() -> None:
    requests = requests_of(np.zeros(10), np.arange(10.0))
    traffic = Traffic(requests, 1, np.array([0, 10]), np.ones(10, np.float32), 10.0)
    with pytest.raises(InputError, match="sample: got no requests in one of the samples of keys"):
        sampled_surface(traffic, np.array([5.0]), np.array([5.0]), Sampling(2, 4))
