"""Least frequently used with decay, the weighted sum of frequency and recency, and greedy-dual by size and cost."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Hashable
from typing import TypeVar

from caches.policies.live.late_heap import LateHeap
from caches.policies.live.order import Order, Standing, Why
from caches.policies.rules import fading_of
from caches.policies.settings import Lfu, LfuLru

K = TypeVar("K", bound=Hashable)


class LfuOrder(Order[K]):
    """See Order. Of each entry: its decayed uses at its latest one, and when that was."""

    def __init__(self, policy: Lfu) -> None:
        self._fading = fading_of(policy)
        self._uses: dict[K, tuple[float, float]] = {}
        self._heap: LateHeap[K] = LateHeap(self._worth)

    def used(self, key: K, capacity_bytes: int, now_seconds: float) -> None:
        self._heap.next_number(key)
        weight, since = self._uses[key]
        self._uses[key] = weight * math.exp(-self._fading * (now_seconds - since)) + 1.0, now_seconds

    def taken_in(
        self, key: K, size_bytes: int, cost: float, standing: Standing, capacity_bytes: int, now_seconds: float
    ) -> None:
        self._heap.next_number(key)
        if standing is not Standing.REWRITTEN:
            self._uses[key] = 1.0, now_seconds
        self._heap.push(key)

    def taken_out(self, key: K, why: Why, capacity_bytes: int) -> None:
        self._heap.remove(key)
        if why is not Why.REWRITTEN:
            del self._uses[key]

    def first_to_go(self, capacity_bytes: int, more_bytes: int) -> K:
        return self._heap.lowest()

    def _worth(self, key: K) -> float:
        weight, since = self._uses[key]
        return math.log(weight) + self._fading * since


class LfuLruOrder(Order[K]):
    """See Order. Entries in a queue for each count of uses, least recently used first, with the number of the latest
    use."""

    def __init__(self, policy: LfuLru) -> None:
        self._policy = policy
        self._queues: list[OrderedDict[K, int]] = [OrderedDict() for _ in range(policy.most_uses)]
        self._uses: dict[K, int] = {}
        self._number = 0

    def used(self, key: K, capacity_bytes: int, now_seconds: float) -> None:
        uses = self._uses[key]
        del self._queues[uses - 1][key]
        self._place(key, min(uses + 1, self._policy.most_uses))

    def taken_in(
        self, key: K, size_bytes: int, cost: float, standing: Standing, capacity_bytes: int, now_seconds: float
    ) -> None:
        self._place(key, self._uses[key] if standing is Standing.REWRITTEN else 1)

    def taken_out(self, key: K, why: Why, capacity_bytes: int) -> None:
        del self._queues[self._uses[key] - 1][key]
        if why is not Why.REWRITTEN:
            del self._uses[key]

    def first_to_go(self, capacity_bytes: int, more_bytes: int) -> K:
        told = self._policy
        ends = [(uses, *next(iter(queue.items()))) for uses, queue in enumerate(self._queues) if queue]
        oldest = min(number for _, _, number in ends)
        span = max(self._number - oldest, 1)

        def score(end: tuple[int, K, int]) -> tuple[float, int]:
            uses, _, number = end
            recency = (number - oldest) / span
            return told.frequency_weight * ((uses + 1) / told.most_uses) + told.recency_weight * recency, number

        return min(ends, key=score)[1]

    def _place(self, key: K, uses: int) -> None:
        self._number += 1
        self._uses[key] = uses
        self._queues[uses - 1][key] = self._number


class GdsfOrder(Order[K]):
    """See Order. Of each entry: uses, cost and size, and its value. What is worth less than what would go for it is
    kept out, and the cache ages by it; what is offered has the age that the cache had then. The age never falls, so
    values only grow, as the heap demands."""

    def __init__(self) -> None:
        self._age = self._offered_age = 0.0
        self._uses: dict[K, int] = {}
        self._cost: dict[K, tuple[float, int]] = {}
        self._values: dict[K, float] = {}
        self._heap: LateHeap[K] = LateHeap(self._values.__getitem__)

    def used(self, key: K, capacity_bytes: int, now_seconds: float) -> None:
        self._heap.next_number(key)
        self._uses[key] += 1
        self._value(key, self._age)

    def came_back(self, key: K) -> bool:
        self._offered_age = self._age
        return False

    def keeps_out(self, key: K, size_bytes: int, cost: float, first: K) -> bool:
        value = self._offered_age + cost / max(size_bytes, 1)
        if value >= self._values[first]:
            return False
        self._age = max(self._age, value)
        return True

    def taken_in(
        self, key: K, size_bytes: int, cost: float, standing: Standing, capacity_bytes: int, now_seconds: float
    ) -> None:
        self._heap.next_number(key)
        if standing is not Standing.REWRITTEN:
            self._uses[key] = 1
        self._cost[key] = cost, max(size_bytes, 1)
        self._value(key, self._offered_age)
        self._heap.push(key)

    def taken_out(self, key: K, why: Why, capacity_bytes: int) -> None:
        self._heap.remove(key)
        value = self._values.pop(key)
        del self._cost[key]
        if why is Why.EVICTED:
            self._age = max(self._age, value)
        if why is not Why.REWRITTEN:
            del self._uses[key]

    def first_to_go(self, capacity_bytes: int, more_bytes: int) -> K:
        return self._heap.lowest()

    def _value(self, key: K, age: float) -> None:
        cost, size = self._cost[key]
        self._values[key] = age + self._uses[key] * cost / size
