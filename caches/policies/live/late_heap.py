"""The entry of the lowest value, where values only grow while an entry stays: caches.policies.heap in plain Python."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
SPARE = 64  # slots of entries that left, beside one for each entry held


class LateHeap(Generic[K]):
    """worth: an entry's value now. Equal values go by the number of the latest use, which no two entries share."""

    def __init__(self, worth: Callable[[K], float]) -> None:
        self._worth = worth
        self._slots: list[tuple[float, int, K]] = []
        self._latest: dict[K, int] = {}
        self._written: dict[K, int] = {}
        self._number = 0

    def __len__(self) -> int:
        """Entries held."""
        return len(self._latest)

    def next_number(self, key: K) -> int:
        """Of one more use of an entry, or of its being written."""
        self._number += 1
        self._latest[key] = self._number
        return self._number

    def push(self, key: K) -> None:
        """An entry that was just taken in, after `next_number`."""
        self._written[key] = self._latest[key]
        if len(self._slots) >= 2 * len(self._latest) + SPARE:
            self._slots = [slot for slot in self._slots if not self._left(slot)]
            heapq.heapify(self._slots)
        heapq.heappush(self._slots, (self._worth(key), self._latest[key], key))

    def remove(self, key: K) -> None:
        """Its slots are dropped later."""
        del self._latest[key], self._written[key]

    def lowest(self) -> K:
        """There must be one."""
        while True:
            slot = self._slots[0]
            key = slot[2]
            if self._left(slot):
                heapq.heappop(self._slots)
            elif slot[1] != self._latest[key]:
                heapq.heapreplace(self._slots, (self._worth(key), self._latest[key], key))
            else:
                return key

    def _left(self, slot: tuple[float, int, K]) -> bool:
        return slot[1] < self._written.get(slot[2], self._number + 1)
