"""Samples of a trace by a hash of the key, for caches in miniature.

A cache that sees only the requests of a share R of the keys, and holds a share R of the bytes, behaves as the whole one
does on average: C. Waldspurger, N. Park, A. Garthwaite, I. Ahmad, Efficient MRC construction with SHARDS, FAST 2015.
How far it is off depends on which popular keys were drawn, so several samples of different keys show the error.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from caches.errors import InputError
from caches.shadow import kernel
from caches.shadow.cache import requests_of

Array = NDArray[Any]

NO_SAMPLE = -1


def key_hash(keys: int, seed: int) -> Array:
    """A 64-bit hash of each key number, uint64 (keys,)."""
    return mixed(np.arange(1, keys + 1, dtype=np.uint64), seed)


def mixed(values: Array, seed: int) -> Array:
    """A 64-bit hash of each number (uint64), uint64 of the same shape: the finalizer of splitmix64 (G. L. Steele,
    D. Lea, C. H. Flood, Fast splittable pseudorandom number generators, OOPSLA 2014)."""
    with np.errstate(over="ignore"):
        state = values * np.uint64(0x9E3779B97F4A7C15)
        state += np.uint64((seed * 0xD1B54A32D192ED03) % 2**64)
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(state ^ (state >> np.uint64(31)))


def sample_of_keys(keys: int, share: float, samples: int, seed: int) -> Array:
    """Which of several samples without common keys each key is in, int32 (keys,); NO_SAMPLE for none.

    share: of all keys in each sample. Raises InputError where the samples together ask for more than all keys.
    """
    if not 0 < share * samples <= 1:
        raise InputError(f"share: got {samples} samples of {share} of the keys, expected above 0 and at most 1 in all")
    place = key_hash(keys, seed).astype(np.float64) / 2.0**64 / share
    return np.where(place < samples, place, NO_SAMPLE).astype(np.int32)


def take(requests: kernel.Requests, num_keys: int, rows: Array) -> tuple[kernel.Requests, int]:
    """The requests at those positions (ascending), keys numbered anew in their old order; and the number of keys."""
    key = requests.key[rows]
    present = np.zeros(num_keys, np.bool_)
    present[key] = True
    number = np.cumsum(present, dtype=np.int64) - 1
    own_ttl = requests.ttl[rows] if requests.ttl.size else None
    operation = requests.operation[rows] if requests.operation.size else None
    return requests_of(number[key], requests.time[rows], requests.size[rows], own_ttl, operation), int(present.sum())
