"""Replays of one fixed setting that keep only sums per block of time: the inner loops of `traces.whatif`."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

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
    requests, _, compute, lifetime, _, _, edges = columns
    candidates, wanted, start, seconds = ahead
    widest = 0
    for block in range(edges.size - 1):
        widest = max(widest, edges[block + 1] - edges[block])
    fetched = np.empty(max(candidates.shape[1], 1), np.int32)
    outcome, age = np.empty(max(widest, 1), np.uint8), np.zeros(max(widest, 1), np.float32)
    record = kernel.Record(fetched, outcome, age)
    for block in range(edges.size - 1):
        at, stop, now = edges[block], edges[block + 1], start + block * seconds
        moment = kernel.Moment(at, now, now + seconds)
        taken = kernel.advance(requests, state, limits, moment, candidates[block, : wanted[block]], stop, record)
        hits, missed, stale, warmed = 0, 0.0, 0.0, 0.0
        for i in range(stop - at):
            hit = outcome[U(i)] == kernel.HIT
            hits += hit
            stale += (1.0 - math.exp(-age[U(i)] / lifetime)) * hit
            missed += compute[U(at + i)] * (outcome[U(i)] == kernel.MISS)
        for i in range(taken):
            warmed += compute[U(fetched[i])]
        sums[block, HITS], sums[block, MISSED_COMPUTE] = hits, missed
        sums[block, WARMUP_COMPUTE], sums[block, STALE] = warmed, stale
