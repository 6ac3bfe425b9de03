"""The endpoints whose answers are cached: from a request to a response."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from fastapi import Request
from fastapi.responses import Response

from api.gateway.access import partition_of_request
from api.gateway.access_log import visit_of
from api.gateway.asked import Asked, asked_of, read_body, wishes_of
from api.gateway.call import BackendCall
from api.gateway.errors import Headers, NotStored, Reply, TooLate
from api.gateway.events import DONE
from api.gateway.feed import Feed, Pieces, failed_event
from api.gateway.freshening import Freshening
from api.gateway.guard_passing import GuardedPassing
from api.gateway.guarding import Guard
from api.gateway.passing import PassThrough
from api.gateway.service import GatewayService
from api.gateway.stream_tokens import RESUME_HEADER
from api.gateway.upkeep import Upkeep
from api.gateway.upstream import Upstream
from api.gateway.warming import GatewayWarming
from api.http.delivery import EventStream, events_response, gone_response, unless_gone
from api.http.errors import ApiError
from caches.guards.ladder import Rung
from caches.keys.fields import Endpoint
from caches.keys.request_key import RequestKey
from caches.stack import Served

CACHE_HEADER = "x-setpoint-cache"
SIMILARITY_HEADER = "x-setpoint-similarity"
KEY_HEADER = "x-setpoint-key"  # of the request: what an invalidation can name
MISS, BYPASS, TEMPLATE = "miss", "bypass", Rung.TEMPLATE.value
# Of the backend's response, in bytes as they came; ours says these itself.
OUR_HEADERS = (CACHE_HEADER, SIMILARITY_HEADER, KEY_HEADER, RESUME_HEADER)
SAID_BY_US = frozenset({b"content-type", b"cache-control", b"age", *(name.encode() for name in OUR_HEADERS)})
T = TypeVar("T")


class Answering:
    """Raises ApiError for what the gateway answers by itself."""

    def __init__(
        self,
        service: GatewayService,
        upstream: Upstream,
        passing: PassThrough,
        upkeep: Upkeep,
        warming: GatewayWarming,
        guard: Guard | None = None,
        freshening: Freshening | None = None,
    ) -> None:
        self._settings, self._clock, self._streams = service.settings, service.clock, service.streams
        self._upstream, self._passing, self._upkeep = upstream, passing, upkeep
        stages = service.stages
        self._asked_of = asked_of if stages is None else stages.keyed(asked_of)
        self._fetch = warming.fetch if stages is None else stages.fetching(warming.fetch)
        if freshening is not None:
            self._asked_of, self._fetch = freshening.keyed(self._asked_of), freshening.fetching(self._fetch)
        self._call_of: Callable[..., BackendCall] = BackendCall
        self._guarded: GuardedPassing | None = None
        if guard is not None:
            self._fetch, self._call_of = guard.fetching(self._fetch), guard.call_of
            self._guarded = GuardedPassing(guard, upstream, passing.sent)

    async def answer(self, endpoint: Endpoint, request: Request) -> Response:
        visit = visit_of(request)
        partition = visit.partition = partition_of_request(request, self._settings)
        rules = self._settings.rules_of(partition.namespace)
        wishes = wishes_of(request).within(rules.ttl_seconds)
        raw = await read_body(request, self._settings.largest_body_bytes)
        key_rules = rules.key_rules
        asked = visit.asked = self._asked_of(endpoint, raw, partition, key_rules, wishes) if rules.cached else None
        visit.is_read = True
        if asked is None:
            with telling(BYPASS):
                if self._guarded is not None:
                    return await self._guarded.whole(request, raw, endpoint, partition)
                response = await self._passing.whole(request, raw)
            response.headers[CACHE_HEADER] = BYPASS
            return response
        headers = self._upstream.request_headers(request.headers.raw)
        streams = self._streams if rules.keeps_streams else None
        call = self._call_of(self._upstream, asked, headers, self._clock, streams)
        with telling(MISS):
            return await (self._streamed if asked.streamed else self._whole)(request, asked, call)

    async def _whole(self, request: Request, asked: Asked, call: BackendCall) -> Response:
        fetching = self._fetch(asked, call)
        try:
            served = await unless_gone(request, self._in_time(fetching))
        except NotStored as error:
            return _passed_on(error.reply)
        if served is None:
            return gone_response()
        visit_of(request).served = None if served.instead == TEMPLATE else served
        self._upkeep.after(asked, served, call)
        return _with(Response(served.answer.body, 200, said_of(served), "application/json"), asked.key, call.returned)

    async def _streamed(self, request: Request, asked: Asked, call: BackendCall) -> Response:
        feed = Feed(asked, lambda watch: self._fetch(asked, call, watch))
        visit, opened = visit_of(request), False
        visit.feed = feed
        try:
            opened = await unless_gone(request, self._in_time(_opened(feed))) is not None
        except NotStored as error:
            return EventStream(_failed(error), {CACHE_HEADER: MISS}) if error.in_stream else _passed_on(error.reply)
        finally:
            if not opened:
                await feed.close()
        if not opened:
            return gone_response()
        served = feed.served
        if served is not None:
            visit.served = None if served.instead == TEMPLATE else served
            self._upkeep.after(asked, served, call)
            return _with(events_response(feed.replay(served), said_of(served)), asked.key, call.returned)
        told = {CACHE_HEADER: MISS, **feed.resumable}
        return _with(EventStream(feed.events(), told, feed.close), asked.key, call.returned)

    async def _in_time(self, work: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(self._settings.deadline_seconds):
                return await work
        except TimeoutError:
            raise TooLate(f"No answer after {self._settings.deadline_seconds:g} seconds.") from None


def said_of(served: Served) -> dict[str, str]:
    """The headers that say where an answer comes from."""
    if served.tier is None:
        return {CACHE_HEADER: served.instead or MISS}
    said = {CACHE_HEADER: served.instead or f"hit-l{served.level}", "age": str(int(served.age_seconds))}
    if served.similarity < 1.0:
        said[SIMILARITY_HEADER] = f"{served.similarity:.4f}"
    return said


@contextmanager
def telling(outcome: str) -> Iterator[None]:
    """An error on the way says how far the request came."""
    try:
        yield
    except ApiError as error:
        error.headers.setdefault(CACHE_HEADER, outcome)
        raise


async def _opened(feed: Feed) -> bool:
    await feed.open()
    return True


async def _failed(error: NotStored) -> Pieces:
    yield failed_event(error)
    yield DONE


def _passed_on(reply: Reply) -> Response:
    response = Response(reply.body, reply.status, {CACHE_HEADER: MISS})
    response.raw_headers += [one for one in reply.headers if one[0] != CACHE_HEADER.encode()]
    return response


def _with(response: Response, key: RequestKey, more: Headers) -> Response:
    """With the backend's headers, beside our own."""
    response.headers[KEY_HEADER] = key.fingerprint.hex()
    response.raw_headers += [one for one in more if one[0] not in SAID_BY_US]
    return response
