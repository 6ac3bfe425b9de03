"""Which key of the catalogue a request asks for: Zipf ranks, and keys that move between ranks."""

from __future__ import annotations

import numpy as np

from traces.per_key import Int64Array
from traces.synthetic.parts import Drift
from traces.trace import FloatArray

STEP_SECONDS = 600.0


def zipf_ranks(count: int, num_keys: int, alpha: float, rng: np.random.Generator) -> Int64Array:
    """`count` ranks from 0 to num_keys - 1; P(rank r) is proportional to (r + 1) ** -alpha."""
    cumulative = np.cumsum(np.arange(1, num_keys + 1, dtype=np.float64) ** -alpha)
    ranks = np.searchsorted(cumulative, rng.random(count) * cumulative[-1], side="right")
    # The product may round up to the very end of the last interval.
    capped: Int64Array = np.minimum(ranks, num_keys - 1)
    return capped


def drifting_keys(
    ranks: Int64Array, times: FloatArray, num_keys: int, drift: Drift, rng: np.random.Generator
) -> Int64Array:
    """The keys that hold these ranks at these times (ascending). At time 0 key and rank are one number."""
    key_of_rank = np.arange(num_keys, dtype=np.int64)
    steps = int(times[-1] // STEP_SECONDS) + 1 if len(times) else 0
    bounds = np.searchsorted(times, STEP_SECONDS * np.arange(steps + 1))
    keys = np.empty_like(ranks)
    pending = 0.0
    for step in range(steps):
        piece = slice(bounds[step], bounds[step + 1])
        keys[piece] = key_of_rank[ranks[piece]]
        pending += drift.reshuffled_per_hour * num_keys * STEP_SECONDS / 3600
        if pending >= 2 and num_keys >= 2:
            moved = rng.choice(num_keys, min(int(pending), num_keys), replace=False)
            key_of_rank[moved] = key_of_rank[np.roll(moved, 1)]
            pending -= int(pending)
    return keys
