"""How busy the gateway is, as it counts by itself: response times and hits of the last while, backend calls now."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from caches.flight import Flight
from caches.stack import Call, Served
from caches.tiers.tier import Answer

LEAST_SECONDS, STEP, BUCKETS = 1e-4, 1.1, 200  # up to 5 hours, each bucket ending a tenth later than the one before


@dataclass
class _Window:
    """since: it began. buckets: responses by how long they took."""

    since: float
    buckets: list[int] = field(default_factory=lambda: [0] * BUCKETS)
    hits: int = 0
    lookups: int = 0


class Load:
    """Of one application. What it tells is of the last `window_seconds`, and up to as many before. ticks: a clock that
    is never set."""

    def __init__(self, window_seconds: float = 10.0, ticks: Callable[[], float] = time.monotonic) -> None:
        self._seconds, self._ticks, self.calls = window_seconds, ticks, 0
        self._now, self._before = _Window(ticks()), _Window(ticks())

    def answered(self, seconds: float) -> None:
        """A response, or the beginning of a stream; takes about a microsecond."""
        place = math.ceil(math.log(max(seconds, LEAST_SECONDS) / LEAST_SECONDS, STEP))
        self._window().buckets[min(place, BUCKETS - 1)] += 1

    def looked(self, hit: bool) -> None:
        """A request that the cache may answer, and whether it did."""
        window = self._window()
        window.hits += hit
        window.lookups += 1

    def p99_seconds(self) -> float | None:
        """At most a tenth too much; None without responses."""
        now = self._window()
        counts = [one + other for one, other in zip(now.buckets, self._before.buckets, strict=True)]
        wanted, seen = 0.99 * sum(counts), 0
        for place, count in enumerate(counts):
            seen += count
            if count and seen >= wanted:
                return LEAST_SECONDS * STEP**place
        return None

    def hit_ratio(self) -> float | None:
        now = self._window()
        lookups = now.lookups + self._before.lookups
        return (now.hits + self._before.hits) / lookups if lookups else None

    def counted(self, call: Call) -> Call:
        """The same call, counted while it is on its way."""

        async def calling(flight: Flight[Served]) -> Answer:
            with self.calling():
                return await call(flight)

        return calling

    @contextmanager
    def calling(self) -> Iterator[None]:
        self.calls += 1
        try:
            yield
        finally:
            self.calls -= 1

    def _window(self) -> _Window:
        now = self._ticks()
        passed = now - self._now.since
        if passed >= self._seconds:
            self._before = self._now if passed < 2.0 * self._seconds else _Window(now)
            self._now = _Window(now)
        return self._now
