"""How much single keys weigh in the traffic of the past: what an experiment has to know before it begins.

Keys are taken together in groups by their hash. Whatever a key adds, the sums of groups differ by it, so the sum of the
squares of what keys add is that of how far the groups are from their mean, times n / (n - 1) with n groups. It is right
on average, and needs no table of keys.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

INTERVALS = 288  # that are looked back at: as long as an experiment by default
LEAST = 12  # intervals that say anything
BINS = 4_096  # of keys, for requests alone


class PastTraffic:
    """`add` the keys of an interval's requests, then `close` it."""

    def __init__(self, most: int = INTERVALS) -> None:
        self._bins: deque[Array] = deque(maxlen=most)  # of each interval, requests by bin
        self._groups: deque[Array] = deque(maxlen=most)  # cost and requests by group, (2, groups)
        self._in_all: deque[Array] = deque(maxlen=most)  # cost and requests, (2,)
        self._now = np.zeros(BINS)

    @property
    def intervals(self) -> int:
        """Of which something is known."""
        return len(self._groups)

    def add(self, ids: Array) -> None:
        """uint64, by request, of all keys."""
        self._now += np.bincount((ids % np.uint64(BINS)).astype(np.int64), minlength=BINS)

    def close(self, usd: Array, requests: Array, rate: float, usd_in_all: float) -> None:
        """usd, requests: (groups,), what each group of the followed keys added under the control's settings. rate: how
        many of the keys these are. usd_in_all: of all keys, with what is no key's; NaN where it is not known."""
        requests_in_all = float(self._now.sum())
        if requests_in_all:
            self._bins.append(self._now.astype(np.float32))
        if requests_in_all and np.isfinite(usd_in_all):
            # of fewer keys fewer squares come together
            self._groups.append(np.stack((usd, requests)) / np.sqrt(rate))
            self._in_all.append(np.array([usd_in_all, requests_in_all]))
        self._now = np.zeros(BINS)

    def concentration(self) -> float | None:
        """As in tuner/judging/sample_ratio.py. None where too little is known."""
        if len(self._bins) < LEAST:
            return None
        by_bin = np.asarray(np.sum(self._bins, axis=0, dtype=np.float64))
        total = by_bin.sum()
        return float(np.clip(_squares(by_bin) / total**2, 1.0 / total, 1.0))

    def luck_ratio(self, share: float) -> float | None:
        """Standard deviation, over random splits with that share of the keys, of how far the arms' costs per request
        would have differed under one setting, over the cost. None where too little is known."""
        if len(self._groups) < LEAST:
            return None
        (usd, requests), (usd_in_all, requests_in_all) = np.sum(self._groups, axis=0), np.sum(self._in_all, axis=0)
        if not usd_in_all > 0:
            return None
        # a key that costs what its requests cost on average leaves the cost per request as it is
        over = usd - usd_in_all / requests_in_all * requests
        return float(np.sqrt(_squares(over) / (share * (1.0 - share))) / usd_in_all)


def _squares(sums: Array) -> float:
    """Sum of the squares of what keys add, from sums over groups of them."""
    return float(np.square(sums - sums.mean()).sum() * len(sums) / (len(sums) - 1.0))
