"""A lease whose keeper is left alone for a while when it fails, as a tier in its place is."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from caches.attempt import attempted
from caches.breaker import Breaker, BreakerRule
from caches.tiers.lease import Claim, Lease

Result = TypeVar("Result")


class LeaseBreaker:
    """ticks: a clock that is never set. Raises TierError at once while the keeper is left alone."""

    def __init__(
        self, lease: Lease, rule: BreakerRule = BreakerRule(), ticks: Callable[[], float] = time.monotonic
    ) -> None:
        self._lease, self._ticks, self.lifetime_seconds = lease, ticks, lease.lifetime_seconds
        self.breaker = Breaker(rule)

    async def take(self, name: bytes, again: bool = False) -> Claim:
        return await self._asked(lambda: self._lease.take(name, again))

    async def renew(self, name: bytes) -> bool:
        return await self._asked(lambda: self._lease.renew(name))

    async def give(self, name: bytes, done: bool) -> None:
        await self._asked(lambda: self._lease.give(name, done))

    async def _asked(self, call: Callable[[], Awaitable[Result]]) -> Result:
        return await attempted(self.breaker, self._ticks, call, "lease: its keeper")
