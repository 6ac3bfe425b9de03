"""How often one caller may ask: a bucket of tokens each, which fills at an even rate.

Not the library `limits`: its store in memory reads the wall clock itself and keeps a key for every address for ever.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Callable

from caches.bucket import Bucket

MOST = 10_000  # callers that are remembered; the one who asked longest ago is forgotten first
MINUTE_SECONDS = 60.0


class Rate:
    """A minute's worth may come at once. Used by several threads."""

    def __init__(self, per_minute: int, clock: Callable[[], float]) -> None:
        """clock: one that does not jump."""
        self._per_minute, self._clock = per_minute, clock
        self._lock = threading.Lock()
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()

    def take(self, caller: str) -> int | None:
        """None where the caller may go on; else after how many seconds it may ask again."""
        with self._lock:
            now_seconds = self._clock()
            bucket = self._bucket(caller, now_seconds)
            wait = _wait(bucket, now_seconds)
            if wait is None:
                bucket.take(1.0, now_seconds)
                self._keep(caller, bucket)
            return wait

    def wait(self, caller: str) -> int | None:
        """What `take` would say, with nothing taken."""
        with self._lock:
            now_seconds = self._clock()
            return _wait(self._bucket(caller, now_seconds), now_seconds)

    def _bucket(self, caller: str, now_seconds: float) -> Bucket:
        known = self._buckets.get(caller)
        return known or Bucket(self._per_minute / MINUTE_SECONDS, float(self._per_minute), now_seconds)

    def _keep(self, caller: str, bucket: Bucket) -> None:
        self._buckets[caller] = bucket
        self._buckets.move_to_end(caller)
        while len(self._buckets) > MOST:
            self._buckets.popitem(last=False)


def _wait(bucket: Bucket, now_seconds: float) -> int | None:
    left = bucket.left_seconds(1.0, now_seconds)
    return None if left == 0.0 else max(1, math.ceil(left))
