"""W-TinyLFU: a window before a segmented LRU, and frequencies that decide between the two."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TypeVar

from caches.policies.live.order import Order, Standing, Why
from caches.policies.live.sized import SizedQueue
from caches.policies.live.sketch import Sketch
from caches.policies.settings import WTinyLfu

K = TypeVar("K", bound=Hashable)


class WTinyLfuOrder(Order[K]):
    """See Order. sketch: counted into by the owner, one request after the other."""

    def __init__(self, policy: WTinyLfu, sketch: Sketch) -> None:
        self._policy, self._sketch = policy, sketch
        self._window: SizedQueue[K] = SizedQueue()
        self._probation: SizedQueue[K] = SizedQueue()
        self._protected: SizedQueue[K] = SizedQueue()
        self._rewritten = self._window

    def used(self, key: K, capacity_bytes: int, now_seconds: float) -> None:
        segment = self._segment_of(key)
        if segment is self._window:
            segment.move_to_end(key)
            return
        self._protected.add(key, segment.take(key))
        room = int((capacity_bytes - int(capacity_bytes * self._policy.window)) * self._policy.protected)
        while self._protected.size_bytes > room:
            self._to_probation(self._protected)

    def taken_in(
        self, key: K, size_bytes: int, cost: float, standing: Standing, capacity_bytes: int, now_seconds: float
    ) -> None:
        segment = self._rewritten if standing is Standing.REWRITTEN else self._window
        segment.add(key, size_bytes)
        window = int(capacity_bytes * self._policy.window)
        while self._window.size_bytes > window and self._fits_main(self._window.oldest, capacity_bytes - window):
            self._to_probation(self._window)

    def taken_out(self, key: K, why: Why, capacity_bytes: int) -> None:
        segment = self._segment_of(key)
        segment.take(key)
        if why is Why.REWRITTEN:
            self._rewritten = segment

    def first_to_go(self, capacity_bytes: int, more_bytes: int) -> K:
        window = int(capacity_bytes * self._policy.window)
        while True:
            leaves = bool(self._window) and self._window.size_bytes + more_bytes > window
            if leaves and self._fits_main(self._window.oldest, capacity_bytes - window):
                self._to_probation(self._window)
                continue
            if not (self._probation or self._protected):
                return self._window.oldest
            losing = (self._probation or self._protected).oldest
            if not leaves:
                return losing
            leaving = self._window.oldest
            return losing if self._sketch.frequency(leaving) > self._sketch.frequency(losing) else leaving

    def _segment_of(self, key: K) -> SizedQueue[K]:
        return next(one for one in (self._window, self._probation, self._protected) if key in one)

    def _fits_main(self, key: K, main: int) -> bool:
        return self._probation.size_bytes + self._protected.size_bytes + self._window[key] <= main

    def _to_probation(self, segment: SizedQueue[K]) -> None:
        key = segment.oldest
        self._probation.add(key, segment.take(key))
