"""S3-FIFO and SIEVE: entries stay where they are while they are hit."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

from caches.policies.live.order import Order, Standing, Why
from caches.policies.live.sized import SizedQueue
from caches.policies.settings import S3Fifo

K = TypeVar("K", bound=Hashable)
MOST_HITS = 3


class S3FifoOrder(Order[K]):
    """See Order."""

    def __init__(self, policy: S3Fifo) -> None:
        self._policy = policy
        self._small: SizedQueue[K] = SizedQueue()
        self._main: SizedQueue[K] = SizedQueue()
        self._ghost: SizedQueue[K] = SizedQueue()
        self._hits: dict[K, int] = {}
        self._rewritten: tuple[SizedQueue[K], int] = (self._small, 0)
        self._crowded = False  # once it evicted

    def used(self, key: K, capacity_bytes: int, now_seconds: float) -> None:
        self._hits[key] = min(self._hits[key] + 1, MOST_HITS)

    def came_back(self, key: K) -> bool:
        if key not in self._ghost:
            return False
        self._ghost.take(key)
        return True

    def taken_in(
        self, key: K, size_bytes: int, cost: float, standing: Standing, capacity_bytes: int, now_seconds: float
    ) -> None:
        full = not self._crowded and self._small.size_bytes >= int(capacity_bytes * self._policy.small)
        queue, hits = self._main if standing is Standing.RETURNING or full else self._small, 0
        if standing is Standing.REWRITTEN:
            queue, hits = self._rewritten
        queue.add(key, size_bytes)
        self._hits[key] = hits

    def taken_out(self, key: K, why: Why, capacity_bytes: int) -> None:
        queue = self._queue_of(key)
        size_bytes, hits = queue.take(key), self._hits.pop(key)
        self._crowded = self._crowded or why is Why.EVICTED
        if why is Why.REWRITTEN:
            self._rewritten = queue, hits
        elif why is Why.EVICTED and queue is self._small:
            self._remember(key, size_bytes, int(capacity_bytes * self._policy.ghost))

    def first_to_go(self, capacity_bytes: int, more_bytes: int) -> K:
        if self._main.size_bytes <= capacity_bytes - int(capacity_bytes * self._policy.small):
            while self._small:
                key = self._small.oldest
                if self._hits[key] < self._policy.uses:
                    return key
                self._main.add(key, self._small.take(key))
                self._hits[key] = 0
        while self._hits[self._main.oldest] > 0:
            key = self._main.oldest
            self._hits[key] -= 1
            self._main.move_to_end(key)
        return self._main.oldest

    def _queue_of(self, key: K) -> SizedQueue[K]:
        return self._small if key in self._small else self._main

    def _remember(self, key: K, size_bytes: int, room: int) -> None:
        if size_bytes <= room:
            while self._ghost.size_bytes + size_bytes > room:
                self._ghost.take(self._ghost.oldest)
            self._ghost.add(key, size_bytes)


class _Node(Generic[K]):
    """A key between its neighbours in a circle; one without a key is where the circle begins and ends."""

    __slots__ = ("hit", "key", "newer", "older")

    def __init__(self, key: K | None = None) -> None:
        self.key, self.hit = key, False
        self.older: _Node[K] = self
        self.newer: _Node[K] = self


class SieveOrder(Order[K]):
    """See Order."""

    def __init__(self) -> None:
        self._circle: _Node[K] = _Node()
        self._hand = self._circle
        self._nodes: dict[K, _Node[K]] = {}
        self._rewritten_hit = False

    def used(self, key: K, capacity_bytes: int, now_seconds: float) -> None:
        self._nodes[key].hit = True

    def taken_in(
        self, key: K, size_bytes: int, cost: float, standing: Standing, capacity_bytes: int, now_seconds: float
    ) -> None:
        node, circle = _Node(key), self._circle
        node.hit = standing is Standing.REWRITTEN and self._rewritten_hit
        node.older, node.newer = circle.older, circle
        circle.older.newer = circle.older = node
        self._nodes[key] = node

    def taken_out(self, key: K, why: Why, capacity_bytes: int) -> None:
        node = self._nodes.pop(key)
        if why is Why.REWRITTEN:
            self._rewritten_hit = node.hit
        if node is self._hand:
            self._hand = node.newer
        node.older.newer, node.newer.older = node.newer, node.older

    def first_to_go(self, capacity_bytes: int, more_bytes: int) -> K:
        node = self._or_oldest(self._hand)
        while node.hit:
            node.hit = False
            node = self._or_oldest(node.newer)
        self._hand = node
        assert node.key is not None
        return node.key

    def _or_oldest(self, node: _Node[K]) -> _Node[K]:
        return node.newer if node is self._circle else node
