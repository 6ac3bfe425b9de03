"""A clock that stands still until it is moved, and sleeps that end when it is."""

from __future__ import annotations

import asyncio
import heapq
import itertools

TURNS = 20  # of the event loop, after which every task that can run has run


class FakeTime:
    """`clock` and `sleep` in place of time.monotonic and asyncio.sleep."""

    def __init__(self, late: float = 0.0) -> None:
        """late: seconds that every sleep takes longer than it was asked to."""
        self.now, self.late = 0.0, late
        self._sleeping: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = itertools.count()

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        end: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleeping, (self.now + seconds + self.late, next(self._order), end))
        await end

    async def run_until(self, when: float) -> None:
        """Wakes all that sleep until `when` or less, each at its time, and stops there."""
        await settle()
        while self._sleeping and self._sleeping[0][0] <= when:
            due, _, end = heapq.heappop(self._sleeping)
            if not end.done():
                self.now = due
                end.set_result(None)
                await settle()
        self.now = when


async def settle() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)
