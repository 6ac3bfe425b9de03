"""By the k-th latest use."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import TypeVar

from caches.policies.live.late_heap import LateHeap
from caches.policies.live.order import Order, Standing, Why
from caches.policies.settings import LruK

K = TypeVar("K", bound=Hashable)


class LruKOrder(Order[K]):
    """See Order. Uses are numbered. Those of keys that left are kept in the order in which they left."""

    def __init__(self, policy: LruK) -> None:
        self._policy = policy
        self._uses: dict[K, tuple[int, ...]] = {}  # the latest k, latest first
        self._names: OrderedDict[K, tuple[int, ...]] = OrderedDict()
        self._heap: LateHeap[K] = LateHeap(self._worth)
        self._returning: tuple[int, ...] = ()

    def used(self, key: K, capacity_bytes: int, now_seconds: float) -> None:
        self._use(key, self._heap.next_number(key))

    def came_back(self, key: K) -> bool:
        self._returning = self._names.pop(key, ())
        return bool(self._returning)

    def taken_in(
        self, key: K, size_bytes: int, cost: float, standing: Standing, capacity_bytes: int, now_seconds: float
    ) -> None:
        number = self._heap.next_number(key)
        if standing is not Standing.REWRITTEN:
            self._uses[key] = self._returning if standing is Standing.RETURNING else ()
            self._use(key, number)
        self._heap.push(key)

    def taken_out(self, key: K, why: Why, capacity_bytes: int) -> None:
        self._heap.remove(key)
        if why is Why.REWRITTEN:
            return
        self._names[key] = self._uses.pop(key)
        while len(self._names) > self._policy.kept * len(self._heap):
            self._names.popitem(last=False)

    def first_to_go(self, capacity_bytes: int, more_bytes: int) -> K:
        return self._heap.lowest()

    def _use(self, key: K, number: int) -> None:
        self._uses[key] = (number, *self._uses[key])[: self._policy.k]

    def _worth(self, key: K) -> float:
        uses = self._uses[key]
        return float(uses[-1]) if len(uses) == self._policy.k else -1.0
