"""A request's path through the gateway, stage by stage: timed, against a budget, and told to a tracer.

Only a gateway with `[tracing]` has this; the others pay nothing for it: what they call on a request's path is the bare
function, chosen when the application is made.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol

import anyio.to_thread
from fastapi import Request
from fastapi.responses import Response

from api.gateway.access_log import VISIT, Handler, Visit
from api.gateway.asked import Asked
from api.gateway.stage_budget import Budget, Stage, stage_of
from api.http.delivery import ClosedStream
from caches.flight import Flight
from caches.keys.fields import Endpoint
from caches.keys.request_key import RequestKey
from caches.place import Place
from caches.stack import Call, Served, Watch
from caches.tiers.tier import Answer, Found

HIT, PROMPT_HASH, STAGE, TIER = "gen.cache.hit", "gen.prompt.hash", "gen.cache.stage", "gen.cache.tier"
LATENCY_MS, BUDGET_MS, OVER_BUDGET = "gen.latency_ms", "gen.budget_ms", "gen.over_budget"
OUTCOME, STATUS = "gen.cache.outcome", "http.response.status_code"
CACHE_HEADER = "x-setpoint-cache"
NAMES: Mapping[Stage, str] = {
    Stage.KEY: "cache.key",
    Stage.L1: "cache.l1",
    Stage.L2: "cache.l2",
    Stage.L3: "cache.l3",
    Stage.BACKEND: "backend",
}
Attributes = dict[str, str | bool | int | float]
AskedOf = Callable[..., Asked | None]
Fetch = Callable[..., Coroutine[Any, Any, Served]]


class Span(Protocol):
    """One that was begun. `end` it once."""

    def end(self, attributes: Attributes, error: str | None = None) -> None: ...


class Tracer(Protocol):
    """Where spans go. headers: of the request, which may say that it is part of something larger."""

    def request(self, name: str, headers: Mapping[str, str]) -> Span: ...

    def stage(self, name: str, request: Span) -> Span: ...

    def close(self) -> None:
        """Sends what is left."""


class Timed(Protocol):
    """Is told how long each stage took, of all requests, those too whose spans are not sent."""

    def __call__(self, stage: Stage, seconds: float, over: bool) -> None: ...


@dataclass
class _Path:
    """Of a request that is under way. ended: what goes on for others after it is not its own any more."""

    span: Span
    key_hash: str | None = None
    ended: bool = False


PATH: ContextVar[_Path | None] = ContextVar("setpoint.path", default=None)


@dataclass
class Stages:
    """timed: set by the application, which has the metrics. ticks: never set."""

    tracer: Tracer
    budget: Budget
    ticks: Callable[[], float] = time.perf_counter
    timed: Timed = field(default=lambda _stage, _seconds, _over: None)

    def handling(self, endpoint: Endpoint, handler: Handler) -> Handler:
        """The handler, as a span; of a stream that is passed on, up to its end."""

        async def handle(request: Request) -> Response:
            began = self.ticks()
            path = _Path(self.tracer.request(f"POST {endpoint.value}", request.headers))
            visit = request.scope.setdefault(VISIT, Visit())
            token = PATH.set(path)
            try:
                response = await handler(request)
            except BaseException as error:
                self._ended(path, visit, began, {}, error)
                raise
            finally:
                PATH.reset(token)
            told = _of_response(response)
            if visit.feed is not None and visit.served is None and isinstance(response, ClosedStream):
                self._end_with(response, path, visit, began, told)
            else:
                self._ended(path, visit, began, told)
            return response

        return handle

    def keyed(self, asked_of: AskedOf) -> AskedOf:
        """Reading the body and making its key."""

        def keying(*arguments: Any) -> Asked | None:
            path = PATH.get()
            if path is None:
                return asked_of(*arguments)
            span, began = self.tracer.stage(NAMES[Stage.KEY], path.span), self.ticks()
            asked = asked_of(*arguments)
            path.key_hash = None if asked is None else asked.key.fingerprint.hex()
            self._end(span, Stage.KEY, began, path, {})
            return asked

        return keying

    async def look(self, place: Place, key: RequestKey, now_seconds: float) -> Found | None:
        """As `Place.lookup`."""
        path = PATH.get()
        if path is None or path.ended:
            return await place.lookup(key, now_seconds)
        stage = stage_of(place)
        span, began = self.tracer.stage(NAMES[stage], path.span), self.ticks()
        told: Attributes = {TIER: place.tier.name}
        try:
            found = await place.lookup(key, now_seconds)
        except BaseException as error:
            self._end(span, stage, began, path, told, error)
            raise
        self._end(span, stage, began, path, told | {HIT: found is not None})
        return found

    def fetching(self, fetch: Fetch) -> Fetch:
        """With the backend's call as a stage."""

        async def fetched(asked: Asked, call: Call, watch: Watch | None = None) -> Served:
            return await fetch(asked, self._calling(call), watch)

        return fetched

    def _calling(self, call: Call) -> Call:

        async def called(flight: Flight[Served]) -> Answer:
            path = PATH.get()
            if path is None:
                return await call(flight)
            span, began = self.tracer.stage(NAMES[Stage.BACKEND], path.span), self.ticks()
            try:
                answer = await call(flight)
            except BaseException as error:
                self._end(span, Stage.BACKEND, began, path, {}, error)
                raise
            self._end(span, Stage.BACKEND, began, path, {})
            return answer

        return called

    def _end(
        self,
        span: Span,
        stage: Stage,
        began: float,
        path: _Path,
        told: Attributes,
        error: BaseException | None = None,
    ) -> None:
        seconds = self.ticks() - began
        budget = self.budget.stages[stage]
        over = seconds > budget
        self.timed(stage, seconds, over)
        told |= {STAGE: stage.value, LATENCY_MS: 1000.0 * seconds, BUDGET_MS: 1000.0 * budget, OVER_BUDGET: over}
        if path.key_hash is not None:
            told[PROMPT_HASH] = path.key_hash
        span.end(told, _what(error))

    def _ended(
        self, path: _Path, visit: Visit, began: float, told: Attributes, error: BaseException | None = None
    ) -> None:
        path.ended = True
        seconds, objective = self.ticks() - began, self.budget.whole_seconds
        served = visit.served if visit.feed is None or visit.served is not None else visit.feed.ended
        told |= {HIT: served is not None and served.tier is not None, LATENCY_MS: 1000.0 * seconds}
        told |= {BUDGET_MS: 1000.0 * objective, OVER_BUDGET: seconds > objective}
        if served is not None and served.tier is not None:
            told[TIER] = served.tier
        if path.key_hash is not None:
            told[PROMPT_HASH] = path.key_hash
        path.span.end(told, _what(error))

    def _end_with(self, response: ClosedStream, path: _Path, visit: Visit, began: float, told: Attributes) -> None:
        close: Callable[[], Awaitable[None]] | None = response.close

        async def closed() -> None:
            try:
                if close is not None:
                    await close()
            finally:
                self._ended(path, visit, began, told)

        response.close = closed


@asynccontextmanager
async def running(stages: Stages | None) -> AsyncIterator[None]:
    """In the end, sends the spans that are left."""
    try:
        yield
    finally:
        if stages is not None:
            await anyio.to_thread.run_sync(stages.tracer.close)


def _of_response(response: Response) -> Attributes:
    return {STATUS: response.status_code, OUTCOME: response.headers.get(CACHE_HEADER, "refused")}


def _what(error: BaseException | None) -> str | None:
    """Its kind; what it says may repeat what a client sent."""
    return None if error is None else type(error).__name__
