"""Who calls the backend for a request that several processes have: the one that holds the lease."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TypeVar

from caches.tiers.lease import Claim, Lease
from caches.tiers.tier import TierError

POLL_SECONDS = 0.02
Answered = TypeVar("Answered")


async def waited(lease: Lease, name: bytes, look: Callable[[], Awaitable[Answered | None]]) -> Answered | None:
    """The answer that another process made while this one asked or waited, as `look` finds it. None where the call is
    for us to make: the lease is ours, or nobody can say whose it is."""
    with suppress(TierError):
        while (claim := await lease.take(name)) is Claim.HELD:
            await asyncio.sleep(POLL_SECONDS)
        if claim is Claim.MINE:
            return None
        found = await look()
        if found is not None:
            return found
        while await lease.take(name, again=True) is Claim.HELD:
            await asyncio.sleep(POLL_SECONDS)
    return None


@asynccontextmanager
async def our_turn(lease: Lease, name: bytes) -> AsyncIterator[None]:
    """Keeps a lease that is ours, or cannot be had, and gives it back: as done where no error was raised."""
    keeping, done = asyncio.ensure_future(_keep(lease, name)), False
    try:
        yield
        done = True
    finally:
        keeping.cancel()
        with suppress(TierError):
            await lease.give(name, done)


async def _keep(lease: Lease, name: bytes) -> None:
    """Renews a lease three times in its lifetime, until cancelled or lost."""
    with suppress(TierError):
        while True:
            await asyncio.sleep(lease.lifetime_seconds / 3.0)
            if not await lease.renew(name):
                return
