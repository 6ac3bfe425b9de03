"""The live in-process cache under any eviction and admission policy."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TypeVar

from caches.in_process import Entry, InProcessCache
from caches.policies.live.judge import Judge, Offer
from caches.policies.live.making import judge_of, order_of, sketch_of
from caches.policies.live.order import Order, Standing, Why
from caches.policies.settings import Admission, AdmitAll, Eviction, Lru
from caches.stats import Expiry

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


def live_cache(
    capacity_bytes: int,
    ttl_seconds: float,
    expiry: Expiry = Expiry.SINCE_WRITE,
    most_swept: int | None = None,
    eviction: Eviction = Lru(),
    admission: Admission = AdmitAll(),
) -> InProcessCache[K, V]:
    """Least recently used without a rule of admission needs nothing beside the cache, and costs nothing beside it."""
    if isinstance(eviction, Lru) and isinstance(admission, AdmitAll):
        return InProcessCache(capacity_bytes, ttl_seconds, expiry, most_swept)
    return PolicyCache(capacity_bytes, ttl_seconds, eviction, admission, expiry, most_swept)


class PolicyCache(InProcessCache[K, V]):
    """Keeps the rules of caches.policies.kernel, which tests/contracts holds to the same counts.

    The order of touches stays beside the policy's own: ages since the last touch go by it.
    """

    def __init__(
        self,
        capacity_bytes: int,
        ttl_seconds: float,
        eviction: Eviction,
        admission: Admission,
        expiry: Expiry = Expiry.SINCE_WRITE,
        most_swept: int | None = None,
    ) -> None:
        super().__init__(capacity_bytes, ttl_seconds, expiry, most_swept)
        self.eviction, self.admission = eviction, admission
        sketch = sketch_of(eviction, admission)
        self._order: Order[K] = order_of(eviction, sketch)
        self._judge: Judge[K] | None = judge_of(admission, sketch)

    def get(self, key: K, now_seconds: float, size_bytes: int | None = None) -> V | None:
        """As of the other cache."""
        if self._judge is not None:
            self._sweep(now_seconds)
            self._judge.asked(key, len(self._by_touch), now_seconds)
        value = super().get(key, now_seconds, size_bytes)
        if value is not None:
            self._order.used(key, self.capacity_bytes, now_seconds)
        return value

    def _take(self, key: K, entry: Entry[V], now_seconds: float, *, welcome: bool = False) -> bool:
        self._sweep(now_seconds)
        too_large, standing = entry.size_bytes > self.capacity_bytes, Standing.NEW
        if key in self._by_touch:
            standing = Standing.REWRITTEN
            self._take_out(key, None, Why.GONE if too_large else Why.REWRITTEN)
        judged = welcome or standing is Standing.REWRITTEN
        if too_large or not (judged or self._judge is None or self._judge.admits(key, now_seconds)):
            self._counts["refusals"] += 1
            return False
        if self._order.came_back(key):
            standing = Standing.RETURNING
        if not self._room_for(key, entry, judged):
            self._counts["refusals"] += 1
            return False
        self._by_touch[key] = self._by_write[key] = entry
        self._used_bytes += entry.size_bytes
        self._order.taken_in(key, entry.size_bytes, entry.cost, standing, self.capacity_bytes, now_seconds)
        return True

    def _room_for(self, key: K, entry: Entry[V], judged: bool) -> bool:
        """Evicts until the entry fits; whether it may. A rule of admission compares it with the first that goes."""
        judge, size, cost = None if judged else self._judge, entry.size_bytes, entry.cost
        while self._used_bytes + size > self.capacity_bytes:
            first = self._order.first_to_go(self.capacity_bytes, size)
            if not judged and self._order.keeps_out(key, size, cost, first):
                return False
            if judge is not None:
                goes = self._by_touch[first]
                if not judge.better(Offer(key, size, cost), Offer(first, goes.size_bytes, goes.cost)):
                    return False
                judge = None
            self._remove(first, "evictions")
        return True

    def _first_to_go(self, capacity_bytes: int) -> K:
        return self._order.first_to_go(capacity_bytes, 0)

    def _remove(self, key: K, counted_as: str | None) -> None:
        self._take_out(key, counted_as, Why.EVICTED if counted_as == "evictions" else Why.GONE)

    def _take_out(self, key: K, counted_as: str | None, why: Why) -> None:
        super()._remove(key, counted_as)
        self._order.taken_out(key, why, self.capacity_bytes)
