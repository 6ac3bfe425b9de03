"""Key drift: in how many spellings a cache is asked for one request, what they differ in, and what that costs in hits.

With p(r | k) the share of a normalised key's requests that came as raw key r, and p(k) that key's share of all:

    H_k   = - sum over r of p(r | k) log2 p(r | k)          bits; 0 for a key with one spelling
    drift = sum over k of p(k) H_k  =  H(raw) - H(normalised)

The second form holds because a raw key has one normalised key (chain rule of entropy). It splits: over levels that are
each a function of the one below, the drift of each step is the difference of two entropies, and the steps add up to the
whole. A key of n spellings has at most log2 n bits.

Hits: an endless cache that starts empty misses once for each key, so 1 - keys / requests is what no cache can exceed.
At a stated capacity the least recently used leave (`caches/shadow/`). Sizes are those of the responses as recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from caches.errors import InputError
from caches.keys.levels import LEVELS, Level
from caches.shadow.cache import ShadowCache, requests_of
from traces.drift import entropy_bits
from traces.trace import Trace

CAUSES: Mapping[Level, str] = {
    Level.ORDER: "order of keys, layout",
    Level.ENCODING: "encoding, spaces",
    Level.TRACKING: "time, tracking",
    Level.OTHER: "defaults, left out",
    Level.WORDING: "inflection, small words",
}


@dataclass(frozen=True)
class Reach:
    """How far a key reaches. keys: how many there are. entropy_bits: of keys over requests. hit_ratio: of an endless
    cache; at_capacity: of one of the stated capacity, None where none is stated."""

    keys: int
    entropy_bits: float
    hit_ratio: float
    at_capacity: float | None


@dataclass(frozen=True)
class DriftLevel:
    """drift_bits: that this level takes away from the one below, by its cause; None at the lowest."""

    level: Level
    reach: Reach
    drift_bits: float | None


@dataclass(frozen=True)
class KeyDrift:
    """requests: of which the levels are known. levels: from the lowest. in_use: the key of the cache that was recorded,
    which is none of the levels; None where it is known of other requests too. capacity_bytes: as stated."""

    requests: int
    levels: tuple[DriftLevel, ...]
    in_use: Reach | None
    capacity_bytes: int | None

    @property
    def drift_bits(self) -> float:
        """Between the lowest level and the highest."""
        return self.levels[0].reach.entropy_bits - self.levels[-1].reach.entropy_bits


def key_drift(by_level: Mapping[Level, Trace], in_use: Trace, capacity_bytes: int | None = None) -> KeyDrift:
    """by_level: the same requests with the keys of each level. in_use: those of the source with the keys as recorded.
    Raises InputError where the levels are not of the same requests."""
    levels: list[DriftLevel] = []
    requests = len(by_level[LEVELS[0]])
    for level in LEVELS:
        trace = by_level[level]
        if len(trace) != requests:
            raise InputError(f"key drift: got {len(trace):,} requests at {level}, expected {requests:,}")
        reach = reach_of(trace, capacity_bytes)
        # but for rounding it is never below 0
        drift = max(levels[-1].reach.entropy_bits - reach.entropy_bits, 0.0) if levels else None
        levels.append(DriftLevel(level, reach, drift))
    recorded = reach_of(in_use, capacity_bytes) if len(in_use) == requests else None
    return KeyDrift(requests, tuple(levels), recorded, capacity_bytes)


def reach_of(trace: Trace, capacity_bytes: int | None = None) -> Reach:
    keys, entropy = trace.num_keys, entropy_bits(np.bincount(trace.key, minlength=trace.num_keys))
    at_capacity = None if capacity_bytes is None else _hit_ratio(trace, capacity_bytes)
    return Reach(keys, entropy, 1.0 - keys / len(trace), at_capacity)


def _hit_ratio(trace: Trace, capacity_bytes: int) -> float:
    requests = requests_of(trace.key, trace.arrival_seconds, trace.size_bytes, operation=trace.operation)
    cache = ShadowCache(requests, trace.num_keys, float(capacity_bytes))
    cache.run(len(trace))
    found = cache.stats()
    return found.hits / max(found.hits + found.misses, 1)
