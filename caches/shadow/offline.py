"""What no cache of a capacity can beat, even one that knows the future: upper bounds on hits.

- Entries of one size: MIN of L. A. Belady, A study of replacement algorithms for a virtual-storage computer, IBM
  Systems Journal 5 (1966): evict what is needed last. Exact for a cache that admits every response, as ours does.
- Any sizes: PFOO-L of D. S. Berger, N. Beckmann, M. Harchol-Balter, Practical bounds on optimal caching with variable
  object sizes, SIGMETRICS 2018. A hit needs its entry's bytes from the request before until the hit; the bytes so
  needed, over time, must not exceed the capacity on average, and the cheapest hits are taken first. It may refuse a
  response and it may keep more than the capacity for a while, so it is never below the best that is possible.

A lifetime makes a hit impossible where the request before is at least that far away; that holds whether age runs from
the write or from the last touch. Where it runs from the write, a key of which nothing is ever evicted shows how many of
its requests must miss in any case, which is a second bound. Lifetimes of requests' own are left out: they only shorten.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from caches.shadow import kernel
from caches.shadow.curve import link

Array = NDArray[Any]
U, ONE, SIX = np.uint64, np.uint64(1), np.uint64(6)
WORD = np.uint64(63)


class Reuses(NamedTuple):
    """Every request that could hit, cheapest first: `cost` bytes x requests (float64) until it, `size` bytes (int64),
    `gap` seconds (float64) since the request before."""

    cost: Array
    size: Array
    gap: Array


@njit(cache=True)
def _reuses(requests: kernel.Requests, num_keys: int) -> tuple[Array, Array, Array]:
    """Unsorted. An entry may have been written at any earlier request of its key since a delete: its size counts as the
    smallest of them."""
    key, time, size, _, operation = requests
    n = key.size
    last, least = np.full(num_keys, -1, np.int32), np.zeros(num_keys, np.int64)
    cost, sizes, gap = np.empty(n, np.float64), np.empty(n, np.int64), np.empty(n, np.float64)
    found = 0
    for t in range(n):
        k = U(key[t])
        what = operation[t] if operation.size > 0 else kernel.READ
        p = last[k]
        if p >= 0 and what == kernel.READ:
            cost[found], sizes[found] = np.float64(least[k]) * (t - p), least[k]
            gap[found] = time[t] - time[U(p)]
            found += 1
        least[k] = size[t] if p < 0 else min(least[k], np.int64(size[t]))
        last[k] = -1 if what == kernel.DELETE else t
    return cost[:found], sizes[:found], gap[:found]


def reuses_of(requests: kernel.Requests, num_keys: int) -> Reuses:
    """Memory: 24 bytes per request, twice that while sorting."""
    cost, size, gap = _reuses(requests, num_keys)
    order = np.argsort(cost, kind="stable")
    return Reuses(cost[order], size[order], gap[order])


@njit(cache=True, nogil=True)
def pfoo_l_hits(reuses: Reuses, capacity: int, ttl_seconds: float, steps: int) -> int:
    """Upper bound on hits for any sizes. steps: requests of the trace, during each of which `capacity` can be held."""
    cost, size, gap = reuses
    room, hits = np.float64(capacity) * steps, 0
    for i in range(cost.size):
        if size[i] <= capacity and gap[i] < ttl_seconds:
            room -= cost[i]
            if room < 0.0:
                break
            hits += 1
    return hits


@njit(cache=True, nogil=True)
def endless_hits(requests: kernel.Requests, num_keys: int, ttl_seconds: float) -> int:
    """Hits of a cache with room for everything whose entries live so long from the write."""
    key, time, _, _, operation = requests
    written, hits = np.full(num_keys, -1, np.int32), 0
    for t in range(key.size):
        k = U(key[t])
        w = written[k]
        what = operation[t] if operation.size > 0 else kernel.READ
        if what == kernel.READ and w >= 0 and not time[t] - time[U(w)] >= ttl_seconds:
            hits += 1
        else:
            written[k] = -1 if what == kernel.DELETE else t
    return hits


@njit(cache=True)
def highest_bit(word: np.uint64) -> np.uint64:
    """The highest bit that is set; word is not 0."""
    bit = np.uint64(0)
    for shift in (32, 16, 8, 4, 2, 1):
        if word >> U(shift):
            word >>= U(shift)
            bit += U(shift)
    return bit


@njit(cache=True, nogil=True)
def min_hits(time: Array, following: Array, entries: int, ttl_seconds: float) -> int:
    """Hits of Belady's MIN for plain reads of entries of one size, of which `entries` fit.

    following: int32, the next request of the same key, n for none (`caches.shadow.curve.link`). An entry is known by
    the position that needs it next, so what is held is a set of positions. It is kept as a tree of 64 branches: a bit
    says that there is something below it.
    """
    n = time.size
    base, width = [0], (n >> 6) + 1
    while width > 1:
        base.append(base[-1] + width)
        width = (width >> 6) + 1
    tree, top = np.zeros(base[-1] + 1, np.uint64), len(base) - 1
    hits, held, useless = 0, 0, 0
    for t in range(n):
        if entries == 0:
            break
        if tree[t >> 6] >> U(t & 63) & ONE:  # somebody kept what is asked for now
            hits += 1
            held -= 1
            clear_place(tree, base, t)
        elif held + useless == entries:
            if useless > 0:
                useless -= 1
            else:
                place = 0
                for level in range(top, -1, -1):
                    place = (place << 6) + int(highest_bit(tree[base[level] + place]))
                clear_place(tree, base, place)
                held -= 1
        p = following[t]
        if p < n and not time[p] - time[t] >= ttl_seconds:
            held += 1
            for level in range(top + 1):
                tree[base[level] + (p >> 6)] |= ONE << U(p & 63)
                p >>= 6
        else:
            useless += 1
    return hits


@njit(cache=True)
def clear_place(tree: Array, base: list[int], place: int) -> None:
    """Takes a position out of the set, and every bit above it that has nothing below any more."""
    for level in range(len(base)):
        word = base[level] + (place >> 6)
        tree[word] &= ~(ONE << U(place & 63))
        if tree[word] != 0:
            break
        place >>= 6


class Bound(NamedTuple):
    """hits: int64 (capacities, lifetimes). exact: whether a cache could reach it in the column without lifetimes."""

    hits: Array
    exact: bool


def hit_bound(
    requests: kernel.Requests,
    num_keys: int,
    capacities: Array,
    ttls: Array,
    since_touch: bool = False,
    threads: int = 1,
) -> Bound:
    """The most hits that a cache without warm-ups can have, for each capacity (bytes) with each lifetime (seconds, may
    be infinite)."""
    n, size = len(requests.key), requests.size
    alike = not requests.operation.size and size.min() == size.max() > 0
    following = link(requests.key, num_keys)[1] if alike else np.empty(0, np.int32)
    reuses = None if alike else reuses_of(requests, num_keys)

    def one(ttl: float) -> list[int]:
        limit = n if since_touch else endless_hits(requests, num_keys, ttl)
        most = []
        for capacity in capacities:
            if reuses is None:
                hits = min_hits(requests.time, following, min(int(capacity) // int(size[0]), n), ttl)
            else:
                hits = pfoo_l_hits(reuses, int(capacity), ttl, n)
            most.append(min(hits, limit))
        return most

    longest = float(requests.time[-1] - requests.time[0])
    effective = [np.inf if ttl > longest else float(ttl) for ttl in ttls]
    distinct = list(dict.fromkeys(effective))
    with ThreadPoolExecutor(threads, "bound") as pool:
        found = dict(zip(distinct, pool.map(one, distinct), strict=True))
    return Bound(np.array([found[ttl] for ttl in effective]).T, alike)
