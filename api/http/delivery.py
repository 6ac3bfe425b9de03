"""Responses that stop the work behind them when their client has gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping
from contextlib import aclosing
from typing import Any, TypeVar

import orjson
from fastapi import Request
from fastapi.responses import Response, StreamingResponse
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from api.http.errors import ApiError, Missing

T = TypeVar("T")
EVENTS = "text/event-stream"
CLIENT_GONE = 499  # nobody reads it; nginx writes it in its logs


class ClosedStream(StreamingResponse):
    """A body that comes in pieces. However it ends, the generator behind it is closed before the response is.

    close: to be called then as well. A generator that was never asked for a piece cannot let go of anything by itself.
    """

    def __init__(
        self,
        pieces: AsyncGenerator[bytes, None],
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        close: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        super().__init__(pieces, status, headers)
        self.pieces, self.close = pieces, close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with aclosing(self.pieces):
                await super().__call__(scope, receive, send)
        except ApiError:
            return  # the head is on its way: that the body is not ended tells the client, and the server logs it
        finally:
            if self.close is not None:
                await self.close()


class EventStream(ClosedStream):
    """Server-sent events."""

    media_type = EVENTS

    def __init__(
        self,
        events: AsyncGenerator[bytes, None],
        headers: Mapping[str, str] | None = None,
        close: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        super().__init__(events, headers={"cache-control": "no-cache", **(headers or {})}, close=close)


def json_response(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(orjson.dumps(value), status, headers, "application/json")


def events_response(events: bytes, headers: Mapping[str, str]) -> Response:
    """Server-sent events that are all there."""
    return Response(events, 200, {"cache-control": "no-cache", **headers}, EVENTS)


def gone_response() -> Response:
    return Response(status_code=CLIENT_GONE)


async def unless_gone(request: Request, work: Coroutine[Any, Any, T]) -> T | None:
    """What `work` returns; None, with the work cancelled, where the client closes its connection before.

    The body has been read: all that a client can still send is that it has gone.
    """
    working = asyncio.create_task(work)
    try:
        await asyncio.sleep(0)
    except asyncio.CancelledError:
        await _given_up(working)
        raise
    if working.done():  # most of what a cache answers needs nobody to watch the client
        return working.result()
    try:
        return await _watched(request, working)
    finally:
        await _given_up(working)


async def _given_up(working: asyncio.Task[T]) -> None:
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)


async def _watched(request: Request, working: asyncio.Task[T]) -> T | None:
    gone = asyncio.create_task(_gone(request))
    try:
        await asyncio.wait((working, gone), return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def error_response(error: ApiError) -> Response:
    return json_response(error.as_json(), error.status, error.headers)


async def handled_error(_request: Request, error: Exception) -> Response:
    """The handler to register for ApiError."""
    assert isinstance(error, ApiError)  # it is registered for these
    return error_response(error)


async def handled_refusal(request: Request, error: Exception) -> Response:
    """The handler to register for what the framework refuses: a path that is not there, a method that it does not
    have."""
    assert isinstance(error, HTTPException)
    headers: Mapping[str, str] = error.headers or {}
    told = Missing(f"{request.method} {request.url.path}: {error.detail}").as_json()
    return json_response(told, error.status_code, headers)
