"""Requests that go past the cache, behind the same guard: sampled answers are most of what many backends give.

They have no stale answer. What they take is known to nobody here, so the estimate of their tokens counts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import orjson
from fastapi import Request
from fastapi.responses import Response

from api.gateway.errors import Headers
from api.gateway.guard_errors import FAILED, TOO_BUSY, why_of
from api.gateway.guarded_call import Wanted
from api.gateway.guarding import Guard
from api.gateway.instead import headers_to_another
from api.gateway.replay import replayed
from api.gateway.upstream import Upstream
from api.http.delivery import ClosedStream, events_response
from api.http.errors import ApiError
from caches.guards.ladder import Rung, Why
from caches.keys.fields import Endpoint
from caches.keys.request_key import Partition

Send = Callable[[Request, bytes, Upstream, Headers], Awaitable[Response]]
CACHE_HEADER, BYPASS = "x-setpoint-cache", "bypass"


@dataclass(frozen=True)
class GuardedPassing:
    """send: of the plain pass-through, to whichever backend. own: that it goes to."""

    guard: Guard
    own: Upstream
    send: Send

    async def whole(self, request: Request, raw: bytes, endpoint: Endpoint, partition: Partition) -> Response:
        """Its header says who answered. Raises Refused, and what the sending raises, where nobody answers instead."""
        headers = self.own.request_headers(request.headers.raw)
        body = _object(raw)
        if body is None:
            return _by_backend(await self.send(request, raw, self.own, headers))
        wanted = Wanted(partition, body, len(raw), body.get("stream") is True)
        try:
            response = await self._admitted(request, raw, wanted, headers, forced=False)
        except ApiError as error:
            why = why_of(error)
            instead = None if why is None else await self._instead(why, wanted, request, endpoint, headers)
            if instead is None:
                raise
            return instead
        if response.status_code < FAILED and response.status_code != TOO_BUSY:
            return _by_backend(response)
        instead = await self._instead(Why.FAILED, wanted, request, endpoint, headers)
        if instead is None:
            return _by_backend(response)
        await _closed(response)
        return instead

    async def _admitted(
        self, request: Request, raw: bytes, wanted: Wanted, headers: Headers, *, forced: bool
    ) -> Response:
        ticket = self.guard.admit(wanted, forced)
        try:
            response = await self.send(request, raw, self.own, headers)
        except BaseException as error:
            ticket.ended(error)
            raise
        ticket.replied(response.status_code)
        return response

    async def _instead(
        self, why: Why, wanted: Wanted, request: Request, endpoint: Endpoint, headers: Headers
    ) -> Response | None:
        descent = self.guard.descent(why, wanted.partition)
        while (rung := descent.next()) is not None:
            try:
                response = await self._answered(rung, wanted, request, endpoint, headers)
            except ApiError:  # of the backend, which was asked all the same
                descent.failed()
                continue
            if response is not None:
                self.guard.instead[why, rung] += 1
                return response
        self.guard.instead[why, None] += 1
        return None

    async def _answered(
        self, rung: Rung, wanted: Wanted, request: Request, endpoint: Endpoint, headers: Headers
    ) -> Response | None:
        if rung is Rung.UPSTREAM:
            return _by_backend(await self._admitted(request, orjson.dumps(wanted.body), wanted, headers, forced=True))
        if rung is Rung.TEMPLATE:
            answer = self.guard.template(endpoint, wanted.body)
            return None if answer is None else _told(endpoint, wanted, answer.body)
        fallback = self.guard.fallback()
        if rung is Rung.STALE or fallback is None or endpoint is Endpoint.EMBEDDINGS:
            return None
        other = self.guard.other
        sent = headers if other is self.own else headers_to_another(headers, other)
        raw = orjson.dumps({**wanted.body, "model": fallback.model})
        try:
            response = await self.send(request, raw, other, sent)
        except ApiError:
            return None
        if response.status_code != 200:
            await _closed(response)
            return None
        response.headers[CACHE_HEADER] = Rung.FALLBACK.value
        return response


def _told(endpoint: Endpoint, wanted: Wanted, body: bytes) -> Response:
    headers = {CACHE_HEADER: Rung.TEMPLATE.value}
    if not wanted.streamed:
        return Response(body, 200, headers, "application/json")
    options = wanted.body.get("stream_options")
    with_usage = isinstance(options, dict) and bool(options.get("include_usage"))
    return events_response(b"".join(replayed(endpoint, orjson.loads(body), with_usage=with_usage)), headers)


def _by_backend(response: Response) -> Response:
    response.headers[CACHE_HEADER] = BYPASS
    return response


async def _closed(response: Response) -> None:
    """One that is not passed on."""
    if isinstance(response, ClosedStream) and response.close is not None:
        await response.close()


def _object(raw: bytes) -> dict[str, Any] | None:
    """None for what is no JSON object: the backend says what is wrong with it."""
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return None
    return body if isinstance(body, dict) else None
