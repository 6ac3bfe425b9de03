"""Responses that stop the work behind them when their client has gone, and the header that says what answers here."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Mapping
from contextlib import aclosing
from typing import Any, TypeVar

import orjson
from fastapi import Request
from fastapi.responses import Response, StreamingResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

T = TypeVar("T")
HEADER = "x-setpoint-emulator"
CLIENT_GONE = 499  # nobody reads it; nginx writes it in its logs


class EmulatorHeader:
    """ASGI middleware: every response says that an emulator made it, also an error and a path that is not there."""

    def __init__(self, app: ASGIApp, value: str) -> None:
        self.app = app
        self.header = (HEADER.encode(), value.encode("latin-1", "replace"))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_header(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], self.header]
            await send(message)

        await self.app(scope, receive, send_with_header)


class EventStream(StreamingResponse):
    """Server-sent events. However it ends, the generator behind it is closed before the response is."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncGenerator[bytes, None]) -> None:
        super().__init__(events, headers={"cache-control": "no-cache"})
        self.events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self.events):
            await super().__call__(scope, receive, send)


def json_response(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(orjson.dumps(value), status, headers, "application/json")


async def unless_gone(request: Request, work: Coroutine[Any, Any, T]) -> T | None:
    """What `work` returns; None, with the work cancelled, where the client closes its connection before.

    The body has been read: all that a client can still send is that it has gone.
    """
    working = asyncio.create_task(work)
    gone = asyncio.create_task(_gone(request))
    try:
        await asyncio.wait((working, gone), return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        for task in (working, gone):
            task.cancel()
        await asyncio.gather(working, gone, return_exceptions=True)


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
