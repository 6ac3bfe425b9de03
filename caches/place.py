"""A tier in its place in the stack: asked within a time, left alone when it fails, passed by when it does not pay."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from caches.admission import Doorkeeper
from caches.breaker import Breaker, BreakerRule
from caches.keys.request_key import RequestKey
from caches.tiers.tier import Answer, Found, Tier, TierError
from caches.worth import Worth, WorthRule

Result = TypeVar("Result")


@dataclass
class PlaceStats:
    """failed: calls that failed or took too long. skipped: calls that the breaker kept back. passed_by: lookups that
    would not have paid. kept_out: answers that the admission rule did not take in."""

    failed: int = 0
    skipped: int = 0
    passed_by: int = 0
    kept_out: int = 0


class Place:
    """slow_seconds: how long a call may take; None for a tier that answers at once, which is never passed by. ticks: a
    clock that is never set, for durations. level: what clients are told of a hit here: 1 for this process alone, 2 for
    what outlives it or is shared, 3 for answers by meaning. admission: which answers `store` takes in; None for all."""

    def __init__(
        self,
        tier: Tier,
        slow_seconds: float | None = None,
        breaker_rule: BreakerRule = BreakerRule(),
        worth_rule: WorthRule = WorthRule(),
        ticks: Callable[[], float] = time.monotonic,
        level: int | None = None,
        admission: Doorkeeper | None = None,
    ) -> None:
        self.tier, self._slow_seconds, self._ticks, self._admission = tier, slow_seconds, ticks, admission
        self.level = level or (1 if slow_seconds is None else 2)
        self.breaker, self.worth, self.stats = Breaker(breaker_rule), Worth(worth_rule), PlaceStats()
        self._ttl_seconds: float | None = None

    @property
    def slow_seconds(self) -> float | None:
        return self._slow_seconds

    @property
    def at_once(self) -> bool:
        return self._slow_seconds is None

    async def lookup(self, key: RequestKey, now_seconds: float) -> Found | None:
        """None also where the tier failed, was left alone or passed by."""
        if self._admission is not None:
            self._admission.asked(key, now_seconds)
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
        """Over an entry that is there always; else only what was asked for often enough, where there is such a rule."""
        if await self._keeps_out(key, now_seconds):
            self.stats.kept_out += 1
            return False
        return bool(await self.ask(self.tier.store, key, answer, now_seconds))

    async def _keeps_out(self, key: RequestKey, now_seconds: float) -> bool:
        if self._admission is None or self._admission.admits(key, now_seconds):
            return False
        return not await self.ask(self.tier.holds, key, now_seconds)

    async def ttl_seconds(self) -> float:
        """The tier's lifetime as last known here; endless before it could be read."""
        if self._ttl_seconds is None:
            await self.tend_ttl()
        return math.inf if self._ttl_seconds is None else self._ttl_seconds

    async def tend_ttl(self) -> None:
        """Reads it anew: another process may have set it."""
        settings = await self.ask(self.tier.settings)
        self._ttl_seconds = self._ttl_seconds if settings is None else settings.ttl_seconds

    async def tend(self, now_seconds: float) -> bool:
        """A step of housekeeping; whether there is more to do."""
        more = await self.ask(self.tier.tend, now_seconds)
        await self.tend_ttl()
        return bool(more)

    async def ask(self, method: Callable[..., Awaitable[Result]], *arguments: Any) -> Result | None:
        """None where it failed, took too long or was kept back."""
        return await self._within(self._slow_seconds, method, *arguments)

    async def ask_in_steps(self, method: Callable[..., Awaitable[Result]], *arguments: Any) -> Result | None:
        """As `ask`, for what goes through many entries: its steps have a time limit each, and the whole has none."""
        return await self._within(None, method, *arguments)

    async def _within(
        self, seconds: float | None, method: Callable[..., Awaitable[Result]], *arguments: Any
    ) -> Result | None:
        if not self.breaker.allows(self._ticks()):
            self.stats.skipped += 1
            return None
        try:
            if seconds is None:
                result = await method(*arguments)
            else:
                async with asyncio.timeout(seconds):
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
