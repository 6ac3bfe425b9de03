"""Least-recently-used misses at many capacities in one pass, for reads without a lifetime.

Everything such a cache holds was touched at or after some position `oldest`, and position p is the last touch of its
key at time t when the key's next request comes after t. So request t hits when `previous[t] >= oldest`. Among
capacities that every response fits into, what one holds is part of what any larger one holds: in ascending order of
capacity, the first hit there ends the work for a request. A capacity that refuses a response may keep what a larger one
evicts for it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from caches.errors import InputError

Array = NDArray[Any]


U = np.uint64  # for indices: Numba tests a signed one for being negative, which takes as long as the work itself
SPAN = 4096  # requests that every capacity goes through before the next ones: their columns stay in the fastest cache


@njit(cache=True)
def link(key: Array, num_keys: int) -> tuple[Array, Array]:
    """previous[t] and next[t]: the neighbouring requests of the same key, int32; -1 and n where there is none."""
    n = key.size
    previous, following = np.empty(n, np.int32), np.full(n, n, np.int32)
    last = np.full(num_keys, -1, np.int32)
    for t in range(n):
        p = last[U(key[t])]
        previous[t] = p
        if p >= 0:
            following[U(p)] = t
        last[U(key[t])] = t
    return previous, following


@njit(cache=True)
def _walk(previous: Array, following: Array, size: Array, capacities: Array) -> tuple[Array, Array]:
    """capacities: ascending. Of each span, a capacity looks at what missed at the one below it, or at everything up to
    the first that takes the largest response. Written without branches on hits, which no processor can guess."""
    m, n = capacities.size, previous.size
    nested = np.searchsorted(capacities, size.max())
    oldest, used = np.zeros(m, np.int64), np.zeros(m, np.int64)
    misses, miss_bytes = np.zeros(m, np.int64), np.zeros(m, np.int64)
    todo, missed = np.empty(SPAN, np.int32), np.empty(SPAN, np.int32)
    for start in range(0, n, SPAN):
        count = 0
        for j in range(m):
            if j <= nested:
                count = min(SPAN, n - start)
                for i in range(count):
                    todo[i] = start + i
            capacity, q, held, number, missed_bytes = capacities[j], oldest[j], used[j], 0, 0
            for i in range(count):
                t = todo[i]
                s = np.int64(size[U(t)])
                miss = (previous[U(t)] < q) | (s > capacity)
                missed[U(number)] = t
                number += miss
                missed_bytes += s * miss
                held += s * (miss & (s <= capacity))
                while held > capacity:
                    r = np.int64(size[U(q)])
                    held -= r * ((following[U(q)] > t) & (r <= capacity))
                    q += 1
            oldest[j], used[j] = q, held
            misses[j] += number
            miss_bytes[j] += missed_bytes
            todo, missed, count = missed, todo, number
    return misses, miss_bytes


@njit(cache=True)
def _size_changes(previous: Array, size: Array) -> int:
    """The first request whose size is not its key's, or -1."""
    changes = 0
    for t in range(previous.size):
        changes += size[U(previous[t] if previous[t] >= 0 else t)] != size[t]
    if changes > 0:
        for t in range(previous.size):
            if previous[t] >= 0 and size[previous[t]] != size[t]:
                return t
    return -1


def lru_misses(previous: Array, following: Array, size: Array, capacities: Array) -> tuple[Array, Array]:
    """Misses and missed bytes, both int64 of the shape of `capacities` (bytes, any order, at least one).

    previous, following: from `link`. size: int32 bytes per request; a key's size must never change (InputError names
    the request otherwise: replay each capacity with ShadowCache then). A response larger than a capacity always misses
    there and evicts nothing. Memory: 32 bytes per capacity beyond the inputs.
    """
    changed = _size_changes(previous, size)
    if changed >= 0:
        raise InputError(
            f"size of request {changed}: got {size[changed]}, expected {size[previous[changed]]} as before for its key"
        )
    order = np.argsort(capacities, kind="stable")
    misses, miss_bytes = _walk(previous, following, size, np.asarray(capacities, np.int64)[order])
    back = np.argsort(order, kind="stable")
    return misses[back], miss_bytes[back]
