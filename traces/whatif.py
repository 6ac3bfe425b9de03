"""What a trace would have asked of the backend under every combination of capacity and lifetime.

Every setting is replayed on its own through the whole trace, so the surface is exact. Traces that are too long for that
are replayed in miniature, through samples of their keys (`caches.shadow.sampling`). Money is made of it elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caches.errors import InputError
from caches.policies.pair import PLAIN, in_miniature
from caches.policies.rules import Rules
from caches.policies.state import empty_state as empty_policy_state
from caches.shadow import kernel
from caches.shadow.cache import empty_state, limits_of
from caches.shadow.curve import link
from caches.shadow.offline import Bound, hit_bound
from caches.shadow.sampling import sample_of_keys, take
from caches.stats import Expiry
from traces.whatif_kernel import (
    HITS,
    MISSED_COMPUTE,
    STALE,
    SUMS,
    WARMUP_COMPUTE,
    Ahead,
    Columns,
    replay_any,
    replay_policy,
    replay_reads,
)

Array = NDArray[Any]
Progress = Callable[[int, int], None]  # done, of how many

EXACT_REQUESTS = 30_000_000  # longer traces are sampled
LARGEST_EXPONENT = 600.0  # exp of it and of its negative are well inside float64


@dataclass(frozen=True)
class Traffic:
    """requests: of n rows. edges: int64 (blocks + 1,), first request of each block of time, and the end; what comes
    after it is left out. compute_seconds: float32 (n,), GPU seconds of each request on a miss. answer_lifetime_seconds:
    mean time until an answer changes. ahead: warm-ups, None for none. expected_reads: float64 (blocks,), for requests
    that are themselves those of a share of a longer trace's keys: how many lookups they would be if all its keys were
    asked for equally often, which `sampled_surface` and `sampled_bounds` adjust to. rules: of eviction and admission,
    whose costs are compute_seconds."""

    requests: kernel.Requests
    num_keys: int
    edges: Array
    compute_seconds: Array
    answer_lifetime_seconds: float
    expiry: Expiry = Expiry.SINCE_WRITE
    ahead: Ahead | None = None
    expected_reads: Array | None = None
    rules: Rules = PLAIN.rules

    @property
    def lru(self) -> bool:
        """Whether the caches keep what was used last, and take everything in."""
        return self.rules == PLAIN.rules

    @property
    def plain(self) -> bool:
        """Whether they do, all are reads without lifetimes of their own, and nothing is fetched ahead."""
        return self.lru and not (self.requests.ttl.size or self.requests.operation.size or self.ahead is not None)

    @property
    def reads(self) -> Array:
        """Lookups in each block, (blocks,)."""
        if self.expected_reads is not None:
            return self.expected_reads
        operation, edges = self.requests.operation, self.edges
        if not operation.size:
            return np.diff(edges)
        upto = np.concatenate(([0], np.cumsum(operation == kernel.READ)))
        return np.asarray(np.diff(upto[edges]))


@dataclass(frozen=True)
class Sampling:
    """How to replay in miniature. samples: of different keys. requests: wanted in all of them together."""

    samples: int = 8
    requests: int = 16_000_000
    seed: int = 0


@dataclass(frozen=True)
class Sums:
    """Sums over each block of time for each setting; the axes are sample, capacity, lifetime, block. An exact surface
    has one sample. reads: (blocks,), of the whole trace, as all sums are. hits, stale_answers: numbers (the second an
    expectation). missed_compute, warmup_compute: GPU seconds. share: of the keys in each sample."""

    reads: Array
    hits: Array
    missed_compute: Array
    warmup_compute: Array
    stale_answers: Array
    share: float = 1.0

    @property
    def samples(self) -> int:
        return int(self.hits.shape[0])


def surface(
    traffic: Traffic,
    capacities: Array,
    ttls: Array,
    threads: int = 1,
    progress: Progress | None = None,
) -> Sums:
    """Exact, whatever the length. capacities: bytes. ttls: seconds."""
    sums = _replay(traffic, capacities, ttls, threads, progress)[None]
    return Sums(traffic.reads, sums[..., HITS], sums[..., MISSED_COMPUTE], sums[..., WARMUP_COMPUTE], sums[..., STALE])


def sampled_surface(
    traffic: Traffic,
    capacities: Array,
    ttls: Array,
    sampling: Sampling,
    threads: int = 1,
    progress: Progress | None = None,
) -> Sums:
    """An estimate from several samples of keys, each scaled to the whole trace.

    Misses and their GPU seconds are divided by the share of keys, and what is missing to the number of lookups, which
    is known, are hits: the adjustment of SHARDS-adj, because a sample has too few or too many requests by the few keys
    that are so popular that they nearly always hit. Stale answers follow the hits.
    """
    share, chosen = _draw(traffic, sampling)
    every = []
    for number in range(sampling.samples):
        part = _part(traffic, np.flatnonzero(chosen == number))
        every.append(_replay(part, capacities * share, ttls, threads, _in_part(progress, number, sampling.samples)))
    sums = np.array(every)
    reads = traffic.reads
    hits = reads - (_reads_of(traffic, chosen, sampling.samples)[:, None, None] - sums[..., HITS]) / share
    with np.errstate(invalid="ignore", divide="ignore"):
        per_hit = np.where(sums[..., HITS] > 0, sums[..., STALE] / sums[..., HITS], 0.0)
    missed, warmed = sums[..., MISSED_COMPUTE] / share, sums[..., WARMUP_COMPUTE] / share
    return Sums(reads, hits, missed, warmed, hits * per_hit, share)


def bounds(traffic: Traffic, capacities: Array, ttls: Array, threads: int = 1) -> Bound:
    """What no cache without warm-ups can exceed in hits over all blocks, (capacities, lifetimes)."""
    stop = int(traffic.edges[-1])
    requests = kernel.Requests(*(column[:stop] for column in traffic.requests))
    since_touch = traffic.expiry is Expiry.SINCE_TOUCH
    return hit_bound(requests, traffic.num_keys, capacities, ttls, since_touch, threads)


def sampled_bounds(traffic: Traffic, capacities: Array, ttls: Array, sampling: Sampling, threads: int = 1) -> Bound:
    """An estimate of `bounds` from the samples of `sampled_surface`, with the same adjustment; hits are not whole
    numbers."""
    share, chosen = _draw(traffic, sampling)
    parts = (_part(traffic, np.flatnonzero(chosen == number)) for number in range(sampling.samples))
    each = [bounds(part, capacities * share, ttls, threads) for part in parts]
    looked_up = _reads_of(traffic, chosen, sampling.samples).sum(axis=1)
    misses = np.array([reads - bound.hits for reads, bound in zip(looked_up, each, strict=True)]) / share
    return Bound(traffic.reads.sum() - misses.mean(axis=0), all(bound.exact for bound in each))


def _draw(traffic: Traffic, sampling: Sampling) -> tuple[float, Array]:
    """The share of keys in each sample, and which sample each request is in."""
    share = min(sampling.requests / sampling.samples / len(traffic.requests.key), 1.0 / sampling.samples)
    return share, sample_of_keys(traffic.num_keys, share, sampling.samples, sampling.seed)[traffic.requests.key]


def _reads_of(traffic: Traffic, chosen: Array, samples: int) -> Array:
    """Lookups of each sample in each block, int64 (samples, blocks)."""
    operation = traffic.requests.operation
    looked_up = operation == kernel.READ if operation.size else np.ones(len(chosen), np.bool_)
    counts = [np.concatenate(([0], np.cumsum((chosen == number) & looked_up))) for number in range(samples)]
    return np.array([np.diff(upto[traffic.edges]) for upto in counts])


def _part(traffic: Traffic, rows: Array) -> Traffic:
    """The traffic of those requests alone (positions, ascending)."""
    if not len(rows):
        raise InputError("sample: got no requests in one of the samples of keys, expected some (sample more)")
    requests, keys = take(traffic.requests, traffic.num_keys, rows)
    edges = np.searchsorted(rows, traffic.edges).astype(np.int64)
    ahead = None if traffic.ahead is None else _ahead_of(traffic.ahead, rows)
    compute = np.ascontiguousarray(traffic.compute_seconds[rows])
    rules = in_miniature(traffic.rules, keys / traffic.num_keys)
    part = replace(traffic, requests=requests, num_keys=keys, edges=edges, compute_seconds=compute, ahead=ahead)
    return replace(part, expected_reads=None, rules=rules)


def _ahead_of(ahead: Ahead, rows: Array) -> Ahead:
    """The candidates that are among those requests, in their order."""
    candidates, wanted = np.zeros_like(ahead.candidates), np.zeros_like(ahead.wanted)
    for block, many in enumerate(ahead.wanted):
        old = ahead.candidates[block, :many]
        place = np.minimum(np.searchsorted(rows, old), len(rows) - 1)
        kept = place[rows[place] == old]
        candidates[block, : len(kept)], wanted[block] = kept, len(kept)
    return ahead._replace(candidates=candidates, wanted=wanted)


def _in_part(progress: Progress | None, number: int, parts: int) -> Progress | None:
    """Progress of the number-th of equal parts."""
    if progress is None:
        return None
    return lambda done, total: progress(number * total + done, parts * total)


def _replay(traffic: Traffic, capacities: Array, ttls: Array, threads: int, progress: Progress | None) -> Array:
    """float64 (capacities, lifetimes, blocks, SUMS). Settings that cannot differ are replayed once."""
    columns = _columns(traffic)
    sums = np.empty((len(capacities), len(ttls), len(traffic.edges) - 1, SUMS))
    longest = _longest_age(traffic)
    first: dict[tuple[int, float], tuple[int, int]] = {}
    source: dict[tuple[int, int], tuple[int, int]] = {}
    for row, capacity in enumerate(capacities):
        for column, ttl in enumerate(ttls):
            same = (int(capacity), np.inf if ttl > longest else float(ttl))
            source[row, column] = first.setdefault(same, (row, column))
    work = {place: limits for limits, place in first.items()}

    def one(place: tuple[int, int]) -> None:
        capacity, ttl = work[place]
        limits = limits_of(capacity, ttl, traffic.expiry)
        if traffic.plain:
            replay_reads(columns, limits, np.empty(traffic.num_keys, np.int32), sums[place])
            return
        ahead = _no_warmups(traffic) if traffic.ahead is None else traffic.ahead
        keys, room, rules = traffic.num_keys, int(ahead.wanted.sum()), traffic.rules
        if traffic.lru:
            replay_any(columns, ahead, limits, empty_state(keys, room), sums[place])
        else:
            replay_policy(columns, ahead, limits, empty_policy_state(rules, keys, room), rules, sums[place])

    with ThreadPoolExecutor(threads, "whatif") as pool:
        for done, _ in enumerate(pool.map(one, work), 1):
            if progress is not None:
                progress(done, len(work))
    for place, origin in source.items():
        if place != origin:
            sums[place] = sums[origin]
    return sums


def _columns(traffic: Traffic) -> Columns:
    requests, lifetime = traffic.requests, traffic.answer_lifetime_seconds
    nothing, no_links = np.empty(0), np.empty(0, np.int32)
    decay, growth, following = nothing, nothing, no_links
    if traffic.plain:
        following = link(requests.key, traffic.num_keys)[1]
        exponent = (requests.time - requests.time[0]) / lifetime
        if exponent[-1] < LARGEST_EXPONENT:
            decay, growth = np.exp(-exponent), np.exp(exponent)
    return Columns(requests, following, traffic.compute_seconds, lifetime, decay, growth, traffic.edges)


def _longest_age(traffic: Traffic) -> float:
    """No age that a lifetime is compared with is above this many seconds."""
    time = traffic.requests.time
    return float(time[-1] - time[0]) + (0.0 if traffic.ahead is None else traffic.ahead.seconds)


def _no_warmups(traffic: Traffic) -> Ahead:
    blocks = len(traffic.edges) - 1
    return Ahead(np.zeros((blocks, 1), np.int32), np.zeros(blocks, np.int64), -np.inf, 0.0)
