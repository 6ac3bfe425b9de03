"""Epochs at work in the gateway: flushes by operators, and those of other gateways, which are looked for every
second.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial

from api.gateway.auditing import Auditing
from api.gateway.lasting import lasting
from api.gateway.reasking import Beside
from api.gateway.service import GatewayService
from caches.freshness.epoch_keeping import EpochKeeping
from caches.keys.request_key import Partition
from caches.place import Place
from caches.tiers.selection import Selection

EVERY_SECONDS = 1.0
BY_MEANING = 3  # level of places where an outdated entry would stand before newer ones that mean the same
CLEARING_SECONDS = 600.0


class Flushing:
    """From the application's start to its end."""

    def __init__(self, service: GatewayService, auditing: Auditing) -> None:
        self._stack, self._clock, self._auditing = service.stack, service.clock, auditing
        self.keeping = service.epochs or EpochKeeping(service.stack.epochs)
        self._beside = Beside(CLEARING_SECONDS)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """What was flushed before is known before the first request comes."""
        await self._tend()
        task = asyncio.create_task(lasting(self._tend, EVERY_SECONDS))
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            await self._beside.close()
            await self.keeping.close()

    async def flush(self, selection: Selection) -> tuple[float, bool]:
        """When the new epoch began, Unix time, and whether all stores know of it. It holds here in any case, and is
        written to the others as soon as they can be reached."""
        began = self._stack.flush(selection)
        for place in self._by_meaning(selection.partition):
            self._beside.start(partial(place.ask_in_steps, place.tier.clear, selection))
        return began, await self.keeping.keep({selection: began})

    async def flush_drifted(self, family: Selection) -> None:
        """Whose answers to equal requests are others by now."""
        self._auditing.note_own("flush", family, "answers drifted")
        await self.flush(family)

    def _by_meaning(self, partition: Partition) -> list[Place]:
        """An entry in such a place answers other questions too, so what is outdated is removed there, beside
        requests."""
        return [place for place in self._stack.of(partition).places if place.level == BY_MEANING]

    async def _tend(self) -> float:
        await self.keeping.tend(self._clock())
        return EVERY_SECONDS
