"""A tier in its place in the stack: asked within a time, left alone when it fails, passed by when it does not pay."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from caches.breaker import Breaker, BreakerRule
from caches.keys.request_key import RequestKey
from caches.tiers.tier import Answer, Found, Tier, TierError
from caches.worth import Worth, WorthRule

Result = TypeVar("Result")


@dataclass
class PlaceStats:
    """failed: calls that failed or took too long. skipped: calls that the breaker kept back. passed_by: lookups that
    would not have paid."""

    failed: int = 0
    skipped: int = 0
    passed_by: int = 0


class Place:
    """slow_seconds: how long a call may take; None for a tier that answers at once, which is never passed by. ticks: a
    clock that is never set, for durations."""

    def __init__(
        self,
        tier: Tier,
        slow_seconds: float | None = None,
        breaker_rule: BreakerRule = BreakerRule(),
        worth_rule: WorthRule = WorthRule(),
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        self.tier, self._slow_seconds, self._ticks = tier, slow_seconds, ticks
        self.breaker, self.worth, self.stats = Breaker(breaker_rule), Worth(worth_rule), PlaceStats()
        self._ttl_seconds: float | None = None

    @property
    def at_once(self) -> bool:
        return self._slow_seconds is None

    async def lookup(self, key: RequestKey, now_seconds: float) -> Found | None:
        """None also where the tier failed, was left alone or passed by."""
        if self.at_once:
            return await self.ask(self.tier.lookup, key, now_seconds)
        if not self.worth.wanted(key.partition, self._ticks()):
            self.stats.passed_by += 1
            return None
        began = self._ticks()
        found = await self.ask(self.tier.lookup, key, now_seconds)
        saved = None if found is None else found.answer.compute_seconds
        self.worth.looked(key.partition, began, self._ticks() - began, saved)
        return found

    async def store(self, key: RequestKey, answer: Answer, now_seconds: float) -> bool:
        return bool(await self.ask(self.tier.store, key, answer, now_seconds))

    async def ttl_seconds(self) -> float:
        """The tier's lifetime as last known here; endless before it could be read."""
        if self._ttl_seconds is None:
            await self.tend_ttl()
        return math.inf if self._ttl_seconds is None else self._ttl_seconds

    async def tend_ttl(self) -> None:
        """Reads it anew: another process may have set it."""
        settings = await self.ask(self.tier.settings)
        self._ttl_seconds = self._ttl_seconds if settings is None else settings.ttl_seconds

    async def ask(self, method: Callable[..., Awaitable[Result]], *arguments: Any) -> Result | None:
        """None where it failed, took too long or was kept back."""
        if not self.breaker.allows(self._ticks()):
            self.stats.skipped += 1
            return None
        try:
            if self.at_once:
                result = await method(*arguments)
            else:
                async with asyncio.timeout(self._slow_seconds):
                    result = await method(*arguments)
        except (TierError, TimeoutError):
            self.stats.failed += 1
            self.breaker.failed(self._ticks())
            return None
        except BaseException:
            self.breaker.given_up(self._ticks())
            raise
        self.breaker.succeeded()
        return result
