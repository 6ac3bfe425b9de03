"""Least-recently-used misses at many capacities in one pass, for reads without a lifetime.

Everything such a cache holds was touched at or after some position `oldest`, and position p is the last touch of its
key at time t when the key's next request comes after t. So request t hits when `previous[t] >= oldest`. What a capacity
holds is part of what any larger one holds: in ascending order of capacity, the first hit ends the work for a request.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from caches.errors import InputError

Array = NDArray[Any]


@njit(cache=True)
def link(key: Array, num_keys: int) -> tuple[Array, Array]:
    """previous[t] and next[t]: the neighbouring requests of the same key, int32; -1 and n where there is none."""
    n = key.size
    previous, following = np.empty(n, np.int32), np.full(n, n, np.int32)
    last = np.full(num_keys, -1, np.int32)
    for t in range(n):
        p = last[key[t]]
        previous[t] = p
        if p >= 0:
            following[p] = t
        last[key[t]] = t
    return previous, following


@njit(cache=True)
def _walk(previous: Array, following: Array, size: Array, capacities: Array) -> tuple[Array, Array]:
    m = capacities.size
    oldest, used = np.zeros(m, np.int64), np.zeros(m, np.int64)
    misses, miss_bytes = np.zeros(m, np.int64), np.zeros(m, np.int64)
    for t in range(previous.size):
        p, s = previous[t], np.int64(size[t])
        for j in range(m):
            if p >= oldest[j] and s <= capacities[j]:
                break
            misses[j] += 1
            miss_bytes[j] += s
            if s > capacities[j]:
                continue
            held, q = used[j] + s, oldest[j]
            while held > capacities[j]:
                if following[q] > t and size[q] <= capacities[j]:
                    held -= size[q]
                q += 1
            used[j], oldest[j] = held, q
    return misses, miss_bytes


@njit(cache=True)
def _size_changes(previous: Array, size: Array) -> int:
    for t in range(previous.size):
        if previous[t] >= 0 and size[previous[t]] != size[t]:
            return t
    return -1


def lru_misses(previous: Array, following: Array, size: Array, capacities: Array) -> tuple[Array, Array]:
    """Misses and missed bytes, both int64 of the shape of `capacities` (bytes, any order, at least one).

    previous, following: from `link`. size: int32 bytes per request; a key's size must never change (InputError names
    the request otherwise: replay each capacity with ShadowCache then). A response larger than a capacity always misses
    there and evicts nothing. Memory: 16 bytes per capacity beyond the inputs.
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
