"""Reading the requests of a share of the keys only, for traces that are larger than memory.

Whether a key is kept depends on a hash of its value, so all its requests are, wherever they stand in the source; why a
share of the keys says something about all of them: `caches.shadow.sampling`. What is known of the whole trace without
holding it, the number of requests over time, is counted on the way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caches.shadow.sampling import mixed

Array = NDArray[Any]

MOST_BINS = 2**20


class Tally:
    """How many of a stream of times, in seconds from 0 on, fall between any two. Bins are `bin_seconds` wide, a second
    until there would be too many; inside one the times are taken to be spread evenly."""

    def __init__(self, most_bins: int = MOST_BINS) -> None:
        self.bin_seconds = 1.0
        self._most = most_bins
        self._counts = np.zeros(0, np.int64)

    def add(self, seconds: Array) -> None:
        """seconds: not negative, in any order."""
        if not len(seconds):
            return
        while float(seconds.max()) >= self._most * self.bin_seconds:
            self._widen()
        new = np.bincount((seconds / self.bin_seconds).astype(np.int64), minlength=len(self._counts))
        new[: len(self._counts)] += self._counts
        self._counts = new

    @property
    def total(self) -> int:
        return int(self._counts.sum())

    def between(self, edges: Array) -> Array:
        """float64 (len(edges) - 1,): how many from each edge to the next, seconds."""
        upto = np.concatenate(([0], np.cumsum(self._counts)))
        return np.diff(np.interp(edges, self.bin_seconds * np.arange(len(upto)), upto))

    def _widen(self) -> None:
        self.bin_seconds *= 2.0
        even = np.pad(self._counts, (0, len(self._counts) % 2))
        self._counts = even.reshape(-1, 2).sum(axis=1)


@dataclass(frozen=True, eq=False)
class KeySample:
    """What a sample stands for. share: of the keys. requests, lookups: of the whole trace over time; a lookup is a
    request that reads. span_seconds: from its first request to its last."""

    share: float
    requests: Tally
    lookups: Tally
    span_seconds: float


def drawn(keys: Any, share: float, seed: int) -> Array:
    """Which values of a pyarrow array of keys are in the sample, bool (n,)."""
    from pandas.util import hash_array  # half a second, which commands that draw nothing need not pay

    encoded = keys.dictionary_encode()
    distinct = encoded.dictionary.to_numpy(zero_copy_only=False)
    texts = np.asarray(distinct, object) if not np.issubdtype(distinct.dtype, np.integer) else distinct
    kept = mixed(hash_array(texts, categorize=False), seed) < np.uint64(min(share * 2.0**64, 2.0**64 - 1))
    return np.asarray(kept[encoded.indices.to_numpy()])
