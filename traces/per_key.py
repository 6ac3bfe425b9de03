"""Columns that are drawn once per key.

A drawn column is a function of (seed, stream, key id) alone. So a key has one value however often, when and
beside whatever other traffic it is requested, and no table of keys is needed.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from traces.trace import FloatArray, Int32Array

Int64Array = NDArray[np.int64]
UInt64Array = NDArray[np.uint64]

_INT32_MAX = 2**31 - 1


def mix(values: UInt64Array) -> UInt64Array:
    """The finaliser of SplitMix64 (Steele, Lea and Flood, 2014), a bijection that scatters close numbers."""
    z = values + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def per_key_uniform(ids: Int64Array, seed: int, stream: int) -> FloatArray:
    """One number in (0, 1) per request, the same for requests of the same id."""
    salt = np.random.SeedSequence(seed, spawn_key=(stream,)).generate_state(1, np.uint64)
    bits = mix(mix(ids.astype(np.uint64)) ^ salt)
    return ((bits >> np.uint64(11)).astype(np.float64) + 0.5) / 2.0**53


def per_key_lognormal(ids: Int64Array, median: float, sigma: float, seed: int, stream: int) -> Int32Array:
    """One whole number from 1 on per request, lognormal over ids, the same for requests of the same id.

    median: of the distribution. sigma: standard deviation of its natural logarithm.
    """
    values = median * np.exp(sigma * ndtri(per_key_uniform(ids, seed, stream)))
    whole: Int32Array = np.clip(values.round(), 1, _INT32_MAX).astype(np.int32)
    return whole
