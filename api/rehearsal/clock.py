"""Time of a rehearsal: faster than the wall's while the process waits, and standing still while it works, in its event
loop or in a thread beside it."""

from __future__ import annotations

import asyncio
import math
import selectors
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from caches.clocks import Clocks


class WaitingSelector(selectors.SelectSelector):
    """Counts the seconds in which its event loop waited, and nobody else worked. Others wait for whole milliseconds,
    which add up.

    One that comes late, because the machine is busy, counts as long as it meant to wait.
    """

    def __init__(self, ticks: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._ticks, self.waited_seconds = ticks, 0.0
        self._lock, self._worked_seconds, self._works_since = threading.Lock(), 0.0, math.inf

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        began, worked = self._now()
        found = super().select(timeout)
        now, worked_by_now = self._now()
        waited = max(now - began - (worked_by_now - worked), 0.0)
        self.waited_seconds += waited if timeout is None else min(waited, max(timeout, 0.0))
        return found

    def works(self, at_work: bool) -> None:
        """By one thread beside the loop: from now on it works, or it rests."""
        with self._lock:
            now = self._ticks()
            self._worked_seconds += max(now - self._works_since, 0.0)
            self._works_since = now if at_work else math.inf

    def _now(self) -> tuple[float, float]:
        """And for how long somebody else has worked by now."""
        with self._lock:
            now = self._ticks()
            return now, self._worked_seconds + max(now - self._works_since, 0.0)


class WaitingLoop(asyncio.SelectorEventLoop):
    """Its time, which timers go by, is how long it has waited.

    What servers in it work takes no time, then, and would otherwise show as latency of a fast replay, as many times as
    long as it is fast. On a slow machine a replay takes longer, and comes to the same. works: a thread beside it says
    when it begins to work, and when it rests; between, time stands still.
    """

    def __init__(self) -> None:
        self._waiting = WaitingSelector()
        self.works = self._waiting.works
        super().__init__(self._waiting)

    def time(self) -> float:
        return self._waiting.waited_seconds


class ReplayClock:
    """Unix time from `begins_seconds` on. speed: seconds that pass in one of `ticks`. works: who works in a thread of
    its own says so, as of WaitingLoop."""

    def __init__(
        self,
        begins_seconds: float,
        speed: float,
        ticks: Callable[[], float],
        works: Callable[[bool], None] = lambda _: None,
    ) -> None:
        self.speed, self._begins, self._ticks, self._began = speed, begins_seconds, ticks, ticks()
        self._works = works

    @property
    def clocks(self) -> Clocks:
        return Clocks(self.unix, self.ticks, self._rest)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Around what a thread does that rests by these clocks."""
        self._works(True)
        try:
            yield
        finally:
            self._works(False)

    def _rest(self, event: threading.Event, seconds: float) -> bool:
        self._works(False)
        try:
            return event.wait(seconds)
        finally:
            self._works(True)

    def unix(self) -> float:
        return self._begins + self.ticks()

    def ticks(self) -> float:
        return (self._ticks() - self._began) * self.speed

    def until(self, unix_seconds: float) -> float:
        """Seconds of the loop until then, 0 where that is past."""
        return max(unix_seconds - self.unix(), 0.0) / self.speed


def run_waiting(work: Coroutine[Any, Any, None]) -> None:
    """As asyncio.run, in a WaitingLoop."""
    with asyncio.Runner(loop_factory=WaitingLoop) as runner:
        runner.run(work)
