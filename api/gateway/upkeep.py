"""What goes on beside the requests: housekeeping of the tiers, and renewal of hot entries."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from api.gateway.call import BackendCall
from api.gateway.errors import NotStored
from api.gateway.metrics import GatewayMetrics
from api.gateway.service import GatewayService
from api.http.errors import ApiError
from caches.keys.request_key import RequestKey

BUSY_SECONDS = 0.1  # between two steps while there is more to do
IDLE_SECONDS = 1.0


class Upkeep:
    """Works from the application's start to its end."""

    def __init__(self, service: GatewayService, metrics: GatewayMetrics) -> None:
        self._service, self._metrics = service, metrics
        self._renewals: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Closes stack and client at the end. What the tiers store lies where they keep it."""
        tending = asyncio.create_task(self._tend())
        try:
            yield
        finally:
            renewals = list(self._renewals)
            for task in (tending, *renewals):
                task.cancel()
            await asyncio.gather(*renewals, return_exceptions=True)
            await self._service.stack.close()
            await self._service.client.aclose()
            with suppress(asyncio.CancelledError):
                await tending

    def renew(self, key: RequestKey, call: BackendCall) -> None:
        """Off the path of the request that found the entry to be near its end."""
        task = asyncio.create_task(self._renew(key, call))
        self._renewals.add(task)
        task.add_done_callback(self._renewals.discard)

    async def _renew(self, key: RequestKey, call: BackendCall) -> None:
        """The entry is there still: that it could not be renewed is counted, and nobody's error."""
        try:
            async with asyncio.timeout(self._service.settings.deadline_seconds):
                await self._service.stack.renew(key, call)
        except (NotStored, ApiError, TimeoutError):
            self._metrics.refreshed("failed")
        else:
            self._metrics.refreshed("done")

    async def _tend(self) -> None:
        while True:
            more = await self._service.stack.tend()
            await asyncio.sleep(BUSY_SECONDS if more else IDLE_SECONDS)
