"""The backend asked anyway, beside a request that was answered: for whoever wants to compare, within what may be spent.

What the backend says is kept, so it costs a call and is never wasted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from api.gateway.errors import NotStored
from api.http.errors import ApiError
from caches.bucket import Bucket
from caches.cancelling import cancelled
from caches.flight import Flight, LeaderGone
from caches.keys.request_key import RequestKey
from caches.routing import Routing
from caches.stack import Call, Served, Stack
from caches.tiers.tier import Answer


class Elsewhere(Exception):
    """Another request has the backend asked for it just now."""


async def asked_anew(stack: Stack | Routing, key: RequestKey, call: Call) -> Answer:
    """Raises Elsewhere, and what the call raises."""
    got: list[Answer] = []

    async def kept(flight: Flight[Served]) -> Answer:
        got.append(await call(flight))
        return got[0]

    await stack.renew(key, kept)
    if not got:
        raise Elsewhere
    return got[0]


class SpendingLimit:
    """So many calls a second at most, one at least at once. clock: one that is never set."""

    def __init__(self, per_second: float, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._bucket = Bucket(per_second, max(1.0, per_second), clock())

    def take(self) -> bool:
        now = self._clock()
        may = self._bucket.level(now) >= 1.0
        if may:
            self._bucket.take(1.0, now)
        return may


class Beside:
    """Work beside requests, a bounded number at once. failed: that the backend did not answer. left_out: that there was
    too much to do, or that another request had the backend asked."""

    def __init__(self, deadline_seconds: float, most_at_once: int = 16) -> None:
        self._deadline_seconds, self._most = deadline_seconds, most_at_once
        self._work: set[asyncio.Task[None]] = set()
        self.failed = self.left_out = 0

    def start(self, work: Callable[[], Awaitable[object]]) -> None:
        if len(self._work) >= self._most:
            self.left_out += 1
            return
        task = asyncio.create_task(self._done(work))
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    async def close(self) -> None:
        await cancelled(*self._work)

    async def _done(self, work: Callable[[], Awaitable[object]]) -> None:
        try:
            async with asyncio.timeout(self._deadline_seconds):
                await work()
        except (NotStored, ApiError, LeaderGone, TimeoutError):
            self.failed += 1
        except Elsewhere:
            self.left_out += 1
