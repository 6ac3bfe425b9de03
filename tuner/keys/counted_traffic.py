"""Traffic features that take no memory of the past but the interval before: counted over all keys, not only the sample.

A sample of keys says little about entropy, since a few popular keys that are in it or not make much of it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs.traffic import DRIFT, ENTROPY, ONE_HIT

Array = NDArray[Any]

MOST_REQUESTS = 1_000_000  # in an interval, beyond which only the sample is looked at: sorting them takes a while
COUNTED = (ENTROPY, DRIFT, ONE_HIT)


class CountedTraffic:
    """`add` the keys of an interval's requests, then `close` it."""

    def __init__(self, most_requests: int = MOST_REQUESTS) -> None:
        self._most, self._number = most_requests, 0
        self._ids: list[Array] = []
        self._before: tuple[Array, Array] | None = None  # keys of the interval before, and how often each was asked for

    def add(self, ids: Array) -> None:
        """uint64, by request."""
        self._number += len(ids)
        self._ids = [*self._ids, ids] if self._number <= self._most else []

    def skip(self) -> None:
        """Ends an interval of which nobody asks: the next one has none before it."""
        self._before, self._ids, self._number = None, [], 0

    def close(self) -> dict[int, float]:
        """By place in envs.traffic.FEATURES; without those that are not known."""
        before, number = self._before, self._number
        ids, self._ids, self._number = self._ids, [], 0
        if number > self._most:
            self._before = None
            return {}
        keys, count = np.unique(np.concatenate([np.zeros(0, np.uint64), *ids]), return_counts=True)
        self._before = (keys, count)
        if number == 0:
            return {}
        found = {ENTROPY: max(float(np.log2(number) - count @ np.log2(count) / number), 0.0)}
        found[ONE_HIT] = float((count == 1).mean())
        if before is not None and len(before[0]):
            found[DRIFT] = _divergence((keys, count / number), (before[0], before[1] / before[1].sum()))
        return found


def _divergence(now: tuple[Array, Array], before: tuple[Array, Array]) -> float:
    """Jensen-Shannon, in bits, of two distributions over sorted keys."""
    every = np.union1d(now[0], before[0])
    p, q = np.zeros(len(every)), np.zeros(len(every))
    p[np.searchsorted(every, now[0])] = now[1]
    q[np.searchsorted(every, before[0])] = before[1]
    with np.errstate(divide="ignore", invalid="ignore"):
        of_p, of_q = p * np.log2(2.0 * p / (p + q)), q * np.log2(2.0 * q / (p + q))
    return float(np.clip(0.5 * (np.nansum(of_p) + np.nansum(of_q)), 0.0, 1.0))
