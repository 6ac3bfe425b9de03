"""Time of a rehearsal: faster than the wall's while the process waits, and standing still while it works."""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Callable, Coroutine
from typing import Any

from caches.clocks import Clocks


class WaitingSelector(selectors.SelectSelector):
    """Counts the seconds in which its event loop waited. Others wait for whole milliseconds, which add up.

    One that comes late, because the machine is busy, counts as long as it meant to wait.
    """

    def __init__(self, ticks: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._ticks, self.waited_seconds = ticks, 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        began = self._ticks()
        found = super().select(timeout)
        waited = self._ticks() - began
        self.waited_seconds += waited if timeout is None else min(waited, max(timeout, 0.0))
        return found


class WaitingLoop(asyncio.SelectorEventLoop):
    """Its time, which timers go by, is how long it has waited.

    What servers in it work takes no time, then, and would otherwise show as latency of a fast replay, as many times as
    long as it is fast. On a slow machine a replay takes longer, and comes to the same.
    """

    def __init__(self) -> None:
        self._waiting = WaitingSelector()
        super().__init__(self._waiting)

    def time(self) -> float:
        return self._waiting.waited_seconds


class ReplayClock:
    """Unix time from `begins_seconds` on. speed: seconds that pass in one of `ticks`, as WaitingLoop.time."""

    def __init__(self, begins_seconds: float, speed: float, ticks: Callable[[], float]) -> None:
        self.speed, self._begins, self._ticks, self._began = speed, begins_seconds, ticks, ticks()

    @property
    def clocks(self) -> Clocks:
        return Clocks(self.unix, self.ticks)

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
