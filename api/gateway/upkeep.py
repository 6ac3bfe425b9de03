"""What goes on beside the requests: housekeeping of the tiers, renewal of hot entries, verification of hits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from api.gateway.arm_counting import ArmCounting
from api.gateway.asked import Asked
from api.gateway.call import BackendCall
from api.gateway.errors import NotStored
from api.gateway.freshening import Freshening
from api.gateway.lasting import lasting
from api.gateway.metrics import GatewayMetrics
from api.gateway.service import GatewayService
from api.gateway.upstream import Upstream
from api.gateway.verifying import Verifying
from api.http.errors import ApiError
from caches.keys.request_key import RequestKey
from caches.stack import Call, Served

BUSY_SECONDS = 0.1  # between two steps while there is more to do
IDLE_SECONDS = 1.0


class Upkeep:
    """Works from the application's start to its end."""

    def __init__(
        self,
        service: GatewayService,
        metrics: GatewayMetrics,
        upstream: Upstream,
        counting: ArmCounting | None = None,
        freshening: Freshening | None = None,
    ) -> None:
        self._freshening = freshening
        self._service, self._metrics, self._upstream, self._counting = service, metrics, upstream, counting
        self._renewals: set[asyncio.Task[None]] = set()
        self.verifying = (
            None
            if service.checker is None
            else Verifying(service.stack, service.checker, service.settings.deadline_seconds, counting)
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Closes stack and client at the end. What the tiers store lies where they keep it."""
        works = [self._tend, self._look_after_backends]
        if self._freshening is not None:
            works.append(self._freshening.tend)
        tasks = [asyncio.create_task(lasting(work)) for work in works]
        try:
            yield
        finally:
            renewals = list(self._renewals)
            for task in (*tasks, *renewals):
                task.cancel()
            await asyncio.gather(*renewals, return_exceptions=True)
            if self.verifying is not None:
                await self.verifying.close()
            if self._freshening is not None:
                await self._freshening.close()
            await self._service.stack.close()
            await self._service.client.aclose()
            for task in tasks:
                with suppress(asyncio.CancelledError):
                    await task

    def after(self, asked: Asked, served: Served, call: BackendCall) -> None:
        """What a request leaves to be done, off its own path."""
        if self._freshening is not None:
            self._freshen(self._freshening, asked, served, call)
        elif served.refresh_due:
            self.renew(asked.key, call)
        if self.verifying is not None and served.similarity < 1.0:
            self.verifying.consider(asked, served, self._ahead(asked.key, call))

    def _freshen(self, freshening: Freshening, asked: Asked, served: Served, call: BackendCall) -> None:
        if served.refresh_due:
            self.renew(asked.key, freshening.renewing(asked.key, served, call))
        else:
            freshening.consider(asked, served, self._ahead(asked.key, call))

    def renew(self, key: RequestKey, call: Call) -> None:
        """Off the path of the request that found the entry to be near its end."""
        task = asyncio.create_task(self._renew(key, call))
        self._renewals.add(task)
        task.add_done_callback(self._renewals.discard)

    async def _renew(self, key: RequestKey, call: Call) -> None:
        """The entry is there still: that it could not be renewed is counted, and nobody's error."""
        try:
            async with asyncio.timeout(self._service.settings.deadline_seconds):
                await self._service.stack.renew(key, self._ahead(key, call))
        except (NotStored, ApiError, TimeoutError):
            self._metrics.refreshed("failed")
        else:
            self._metrics.refreshed("done")

    def _ahead(self, key: RequestKey, call: Call) -> Call:
        return call if self._counting is None else self._counting.ahead(key, call)

    async def _look_after_backends(self) -> float:
        """Of one alone nothing follows from how it is."""
        if len(self._upstream.backends) > 1:
            await self._upstream.check()
        return self._service.settings.health_seconds

    async def _tend(self) -> float:
        return BUSY_SECONDS if await self._service.stack.tend() else IDLE_SECONDS
