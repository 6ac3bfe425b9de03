"""How often one caller may ask: a bucket of tokens each, which fills at an even rate.

Not the library `limits`: its store in memory reads the wall clock itself and keeps a key for every address for ever.
"""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Callable

MOST = 10_000  # callers that are remembered; the one who asked longest ago is forgotten first
MINUTE_SECONDS = 60.0


class Rate:
    """A minute's worth may come at once. Used by several threads."""

    def __init__(self, per_minute: int, clock: Callable[[], float]) -> None:
        """clock: one that does not jump."""
        self._most, self._per_second, self._clock = float(per_minute), per_minute / MINUTE_SECONDS, clock
        self._lock = threading.Lock()
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # tokens, and when that was

    def take(self, caller: str) -> int | None:
        """None where the caller may go on; else after how many seconds it may ask again."""
        with self._lock:
            tokens = self._tokens(caller)
            if tokens < 1.0:
                return self._wait(tokens)
            self._keep(caller, tokens - 1.0)
            return None

    def wait(self, caller: str) -> int | None:
        """What `take` would say, with nothing taken."""
        with self._lock:
            tokens = self._tokens(caller)
            return None if tokens >= 1.0 else self._wait(tokens)

    def _wait(self, tokens: float) -> int:
        return max(1, math.ceil((1.0 - tokens) / self._per_second))

    def _tokens(self, caller: str) -> float:
        if caller not in self._buckets:
            return self._most
        tokens, then = self._buckets[caller]
        return min(self._most, tokens + max(0.0, self._clock() - then) * self._per_second)

    def _keep(self, caller: str, tokens: float) -> None:
        self._buckets[caller] = tokens, self._clock()
        self._buckets.move_to_end(caller)
        while len(self._buckets) > MOST:
            self._buckets.popitem(last=False)
