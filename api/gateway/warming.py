"""Warming in the gateway: it sees what is asked for, and every so often fills the top tier with the best of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from api.gateway.arm_counting import ArmCounting
from api.gateway.asked import Asked
from api.gateway.call import BackendCall
from api.gateway.errors import NotStored
from api.gateway.hot_bodies import HotBodies
from api.gateway.lasting import LOG, lasting
from api.gateway.load import Load
from api.gateway.service import GatewayService
from api.gateway.upstream import Upstream
from api.gateway.warming_arms import Wanted, best_of, wanted_of
from api.gateway.warming_settings import WarmingSettings
from api.http.errors import ApiError
from caches.breaker import State
from caches.guards.health import Condition
from caches.hot_keys import Candidate, HotKeys
from caches.keys.request_key import Partition, RequestKey
from caches.place import Place
from caches.stack import Call, Served, Stack, Watch
from caches.warm_uses import UseCounts, WarmUses
from caches.warming import NotRenewed, Surroundings, Warmed, warm

NO_KEY = "off: it needs a key of the gateway's own for the backend"
JSON_BODY = [(b"content-type", b"application/json")]


@dataclass
class WarmingCounts:
    """Since the application began: rounds, those of them that were stopped early, and what Warmed says of all."""

    rounds: int = 0
    stopped_rounds: int = 0
    there: int = 0
    copied: int = 0
    renewed: int = 0
    left: int = 0
    paused_seconds: float = 0.0


class GatewayWarming:
    """Notes requests on their path, and warms off it from the application's start to its end."""

    def __init__(
        self,
        service: GatewayService,
        upstream: Upstream,
        settings: WarmingSettings,
        counting: ArmCounting | None = None,
    ) -> None:
        self._service, self._upstream, self.settings, self._counting = service, upstream, settings, counting
        self.hot, self.load = HotKeys(settings.hot), Load(settings.window_seconds)
        self._allowed = settings.from_backend and service.settings.upstream_key is not None
        self._bodies = HotBodies(settings.most_body_bytes) if self._allowed else None
        self._uses: dict[Place, WarmUses] = {stack.places[0]: WarmUses() for stack in service.stack.stacks}
        self._done, self._now = WarmingCounts(), Warmed()
        self._state, self._last = "waiting", "not yet"
        self.kept: Callable[[Call], Call] = lambda call: call  # what may be kept of it

    # --- on the path of requests -----------------------------------------------------------------------------------

    async def fetch(self, asked: Asked, call: Call, watch: Watch | None = None) -> Served:
        """As the stack's; what is asked for is noted."""
        if self._counting is not None:
            call = self._counting.missed(asked.key, call)
        counted, oldest = self.load.counted(call), asked.wishes.max_age_seconds
        served = await self._service.stack.fetch(asked.key, counted, oldest, watch)
        self.note(asked, served)
        return served

    def note(self, asked: Asked, served: Served) -> None:
        """A few microseconds. What was found by meaning is no entry of its own: there is nothing to warm."""
        self.load.looked(served.tier is not None)
        if served.similarity < 1.0:
            return
        top = self.stack_of(asked.key.partition).places[0]
        self._uses[top].asked(asked.key, served.tier == top.tier.name)
        self.hot.seen(asked.key, served.answer, self._service.clock())
        if self._bodies is not None:
            self._bodies.keep(asked)

    # --- off it ----------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        if self.settings.from_backend and not self._allowed:
            LOG.warning("Warming from the backend is %s.", NO_KEY)
        warming = asyncio.create_task(lasting(self._rounds, self.settings.every_seconds))
        try:
            yield
        finally:
            warming.cancel()
            with suppress(asyncio.CancelledError):
                await warming

    def stack_of(self, partition: Partition) -> Stack:
        return self._service.stack.of(partition)

    def told(self) -> dict[str, Any]:
        """For /v1/cache/stats."""
        uses, off = self.uses(), NO_KEY if self.settings.from_backend else "off"
        return {
            "state": self._state,
            "last_round": self._last,
            **asdict(self.counts()),
            **asdict(uses),
            "waiting": uses.warmed - uses.hit - uses.useless,
            "hot_keys": len(self.hot),
            "from_backend": "on" if self._allowed else off,
            "p99_seconds": self.load.p99_seconds(),
            "backend_calls": self.load.calls,
        }

    def counts(self) -> WarmingCounts:
        """With what the round that runs has done so far."""
        return _sum(self._done, self._now)

    def uses(self) -> UseCounts:
        every = [uses.counts for uses in self._uses.values()]
        return UseCounts(*(sum(getattr(one, part.name) for one in every) for part in fields(UseCounts)))

    async def _rounds(self) -> float:
        for top, uses in self._uses.items():
            await uses.settle(top.tier, self._service.clock())
        for stack in self._service.stack.stacks:
            await self._round(stack)
        return self.settings.every_seconds

    async def _round(self, stack: Stack) -> None:
        """Of the namespaces that use this stack, so that none is warmed from a tier of another."""
        top, *below = stack.places
        wanted = await wanted_of(top)
        if not wanted:
            self._state = "off"
            return
        candidates = await self._candidates(stack, wanted)
        around = Surroundings(
            self._service.clock,
            asyncio.sleep,
            lambda: self._busy(stack.places),
            self.load.hit_ratio,
            self._renew if self._allowed else None,
            self._uses[top],
            self._tell,
            lambda key: stack.passage(key, copied=True),
        )
        self._state = "warming"
        done = await warm(top.tier, [place.tier for place in below], candidates, around, self.settings.rule)
        self._done, self._now, self._state = _sum(self._done, done), Warmed(), "waiting"
        self._done.rounds += 1
        self._done.stopped_rounds += done.stopped is not None
        self._last = done.stopped or "all of it"

    async def _candidates(self, stack: Stack, wanted: Sequence[Wanted]) -> list[Candidate]:
        """Ranked in a thread: so many take longer than a request should wait."""
        now = self._service.clock()
        ranked = await asyncio.to_thread(
            lambda: best_of(self.hot, now, wanted, lambda partition: self.stack_of(partition) is stack)
        )
        return [one for one in ranked if self._allowed or not one.over]

    async def _renew(self, key: RequestKey) -> None:
        asked = None if self._bodies is None else self._bodies.asked(key)
        if asked is None:
            raise NotRenewed("its body is not kept")
        if self._upstream.condition() is not Condition.HEALTHY:
            raise NotRenewed("the backend is not well: requests find out when it is, and warming need not")
        headers = self._upstream.request_headers(JSON_BODY)
        call: Call = BackendCall(self._upstream, asked, headers, self._service.clock)
        if self._counting is not None:
            call = self._counting.ahead(asked.key, call)
        try:
            async with asyncio.timeout(self._service.settings.deadline_seconds):
                await self.stack_of(key.partition).renew(asked.key, self.kept(self.load.counted(call)))
        except (NotStored, ApiError, TimeoutError) as error:
            raise NotRenewed("the backend had no answer to keep") from error

    def _tell(self, warmed: Warmed) -> None:
        self._now = warmed

    def _busy(self, places: Sequence[Place]) -> bool:
        """Also while a tier is left alone: its requests find out when it is back, and warming need not."""
        p99, settings = self.load.p99_seconds(), self.settings
        busy = (
            (p99 is not None and p99 > settings.busy_p99_seconds)
            or self.load.calls > settings.busy_calls
            or any(place.breaker.state is not State.CLOSED for place in places)
        )
        self._state = "paused" if busy else "warming"
        return busy


def _sum(counts: WarmingCounts, more: Warmed) -> WarmingCounts:
    """As new counts."""
    own = {part.name: getattr(counts, part.name) for part in fields(counts)}
    added = {part.name: getattr(more, part.name) for part in fields(more) if part.name in own}
    return replace(counts, **{name: own[name] + value for name, value in added.items()})
