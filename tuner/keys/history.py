"""What ghosts cost in the intervals before, as far back as any control policy looks."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

INTERVALS = 1_500  # the what-if controller at its longest memory leaves out what is older than 1,375


class History:
    """By lane, its cost in USD and whether it broke a constraint, interval after interval; those of which nothing is
    known are left out."""

    def __init__(self, most: int = INTERVALS) -> None:
        self._most, self._length = most, 0
        self._usd: dict[Hashable, Array] = {}
        self._unsafe: dict[Hashable, Array] = {}
        self._since: dict[Hashable, int] = {}

    def keep(self, names: Sequence[Hashable]) -> None:
        """Forgets all others."""
        for table in (self._usd, self._unsafe, self._since):
            for gone in [name for name in table if name not in set(names)]:
                del table[gone]

    def add(self, names: Sequence[Hashable], usd: Array, unsafe: NDArray[np.bool_]) -> None:
        """One interval: (lanes,) each."""
        if self._length == 2 * self._most:
            self._shift()
        for name in names:
            if name not in self._usd:
                self._usd[name] = np.full(2 * self._most, np.nan)
                self._unsafe[name] = np.zeros(2 * self._most, np.bool_)
                self._since[name] = self._length
        for name, cost, broke in zip(names, usd.tolist(), unsafe.tolist(), strict=True):
            self._usd[name][self._length] = cost
            self._unsafe[name][self._length] = broke
        self._length += 1

    def table(self, names: Sequence[Hashable]) -> tuple[Array, NDArray[np.bool_]]:
        """(lanes, intervals) each, oldest first, from when all of them were there."""
        since = max((self._since.get(name, self._length) for name in names), default=self._length)
        part = slice(max(since, self._length - self._most), self._length)
        if part.start == part.stop:
            return np.zeros((len(names), 0)), np.zeros((len(names), 0), np.bool_)
        return (
            np.stack([self._usd[name][part] for name in names]),
            np.stack([self._unsafe[name][part] for name in names]),
        )

    def _shift(self) -> None:
        """Only the latest half stays."""
        gone = self._length - self._most
        for table in (self._usd, self._unsafe):
            for array in table.values():
                array[: self._most] = array[gone : self._length]
        self._since = {name: max(since - gone, 0) for name, since in self._since.items()}
        self._length = self._most
