"""Replays of one fixed setting that keep only sums per block of time: the inner loops of `traces.whatif`."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from caches.policies import kernel as policy_kernel
from caches.policies.rules import Rules
from caches.policies.state import State
from caches.shadow import kernel

Array = NDArray[Any]
U = np.uint64

HITS, MISSED_COMPUTE, WARMUP_COMPUTE, STALE = range(4)
SUMS = 4


class Columns(NamedTuple):
    """What every replay of a trace only reads; n rows. following: int32, the next request of the same key, from
    `caches.shadow.curve.link`. compute: float32, GPU seconds of a miss. lifetime: mean seconds until an answer changes.
    decay, growth: float64, exp(-time / lifetime) and exp(time / lifetime) from the trace's start on, or both empty
    where that would leave float64. edges: int64, first request of each block, and the end."""

    requests: kernel.Requests
    following: Array
    compute: Array
    lifetime: float
    decay: Array
    growth: Array
    edges: Array


class Ahead(NamedTuple):
    """Warm-ups at the beginning of each block. candidates: int32 (blocks, most), positions of earlier requests, best
    first. wanted: int64 (blocks,), how many of them. start, seconds: when the first block begins, and their length."""

    candidates: Array
    wanted: Array
    start: float
    seconds: float


@njit(cache=True, nogil=True)
def replay_reads(columns: Columns, limits: kernel.Limits, written: Array, sums: Array) -> None:
    """Plain reads without lifetimes of their own and without warm-ups, from an empty cache; the rules are the kernel's.

    A key's entry is one number: `written`, int32 (keys,), the request that wrote it, -1 for none. The queue of touches
    is walked as in `caches.shadow.curve`: position p is the last touch of its key when the next request comes later.
    sums: float64 (blocks, SUMS), overwritten.
    """
    (key, time, size, _, _), following, compute, lifetime, decay, growth, edges = columns
    capacity, ttl, since_touch = limits
    oldest, fresh, used = 0, 0, 0
    factored = decay.size > 0
    written[:] = -1
    for block in range(edges.size - 1):
        hits, missed, stale = 0, 0.0, 0.0
        for t in range(edges[block], edges[block + 1]):
            now = time[U(t)]
            while fresh < t and now - time[U(fresh)] >= ttl:  # what is too old goes
                k = U(key[U(fresh)])
                w = written[k]
                if (w >= 0 and following[U(fresh)] >= t) if since_touch else w == fresh:
                    used -= size[U(w)]
                    written[k] = -1
                fresh += 1

            k, s = U(key[U(t)]), np.int64(size[U(t)])  # no branches on hits, which no processor can guess
            w = written[k]
            hit, fits = w >= 0, s <= capacity
            born = w if hit else t
            if factored:
                stale += 1.0 - decay[U(t)] * growth[U(born)]
            else:
                stale += 1.0 - math.exp((time[U(born)] - now) / lifetime)
            hits += hit
            missed += compute[U(t)] * (not hit)
            written[k] = born if hit or fits else -1
            used += int(s * (fits and not hit))

            while used > capacity:  # what does not fit goes
                if following[U(oldest)] > t:
                    k = U(key[U(oldest)])
                    w = written[k]
                    if w >= 0:
                        used -= size[U(w)]
                        written[k] = -1
                oldest += 1
        sums[block, HITS], sums[block, MISSED_COMPUTE] = hits, missed
        sums[block, WARMUP_COMPUTE], sums[block, STALE] = 0.0, stale


@njit(cache=True, nogil=True)
def replay_any(columns: Columns, ahead: Ahead, limits: kernel.Limits, state: kernel.State, sums: Array) -> None:
    """Whatever a trace holds, through the replay kernel. state: empty, with room for all warm-ups; changed.
    sums: float64 (blocks, SUMS), overwritten."""
    record = _record(columns, ahead)
    for block in range(columns.edges.size - 1):
        at, stop, moment, candidates = _block(columns, ahead, block)
        taken = kernel.advance(columns.requests, state, limits, moment, candidates, stop, record)
        _add_up(columns, (at, stop, taken), record, sums[block])


@njit(cache=True, nogil=True)
def replay_policy(
    columns: Columns, ahead: Ahead, limits: kernel.Limits, state: State, rules: Rules, sums: Array
) -> None:
    """As `replay_any` under any eviction and admission policy; what a miss costs it is its GPU seconds."""
    record = _record(columns, ahead)
    for block in range(columns.edges.size - 1):
        at, stop, moment, candidates = _block(columns, ahead, block)
        taken = policy_kernel.advance(
            columns.requests, state, limits, moment, candidates, stop, record, rules, columns.compute
        )
        _add_up(columns, (at, stop, taken), record, sums[block])


@njit(cache=True)
def _record(columns: Columns, ahead: Ahead) -> kernel.Record:
    """For the longest block."""
    widest = 1
    for block in range(columns.edges.size - 1):
        widest = max(widest, columns.edges[block + 1] - columns.edges[block])
    fetched = np.empty(max(ahead.candidates.shape[1], 1), np.int32)
    return kernel.Record(fetched, np.empty(widest, np.uint8), np.zeros(widest, np.float32))


@njit(cache=True)
def _block(columns: Columns, ahead: Ahead, block: int) -> tuple[int, int, kernel.Moment, Array]:
    """First request, end, moment, and whom to fetch ahead."""
    at, now = columns.edges[block], ahead.start + block * ahead.seconds
    moment = kernel.Moment(at, now, now + ahead.seconds)
    return at, columns.edges[block + 1], moment, ahead.candidates[block, : ahead.wanted[block]]


@njit(cache=True)
def _add_up(columns: Columns, part: tuple[int, int, int], record: kernel.Record, sums: Array) -> None:
    """part: first request of a block, its end, and how many were fetched ahead."""
    at, stop, taken = part
    compute, outcome, age = columns.compute, record.outcome, record.age
    hits, missed, stale, warmed = 0, 0.0, 0.0, 0.0
    for i in range(stop - at):
        hit = outcome[U(i)] == kernel.HIT
        hits += hit
        stale += (1.0 - math.exp(-age[U(i)] / columns.lifetime)) * hit
        missed += compute[U(at + i)] * (outcome[U(i)] == kernel.MISS)
    for i in range(taken):
        warmed += compute[U(record.fetched[i])]
    sums[HITS], sums[MISSED_COMPUTE] = hits, missed
    sums[WARMUP_COMPUTE], sums[STALE] = warmed, stale
