"""A call of something that is left alone for a while when it fails."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from caches.breaker import Breaker
from caches.tiers.tier import TierError

Result = TypeVar("Result")
RETRY_SECONDS = 0.1


async def attempted(
    breaker: Breaker, ticks: Callable[[], float], call: Callable[[], Awaitable[Result]], what: str
) -> Result:
    """ticks: a clock that is never set. Raises TierError at once while it is left alone; any other error than that says
    nothing about what is called."""
    if not breaker.allows(ticks()):
        raise TierError(f"{what} failed a moment ago and is left alone")
    try:
        result = await call()
    except TierError:
        breaker.failed(ticks())
        raise
    except BaseException:
        breaker.given_up(ticks())
        raise
    breaker.succeeded()
    return result


async def patiently(call: Callable[[], Awaitable[Result]], seconds: float, ticks: Callable[[], float]) -> Result:
    """A call that may be made again, until one is answered or the time is over. Raises the last TierError then."""
    until = ticks() + seconds
    while True:
        try:
            return await call()
        except TierError:
            if ticks() >= until:
                raise
        await asyncio.sleep(RETRY_SECONDS)
