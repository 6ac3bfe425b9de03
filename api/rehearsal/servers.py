"""Servers in this process: emulated backend, gateway, page."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext

import uvicorn
from fastapi import FastAPI

from api.http.listening import listen, place_of, server_of

SHUTDOWN_SECONDS = 1
LOOK_SECONDS = 0.01


@asynccontextmanager
async def running(app: FastAPI, *, lifespan: bool) -> AsyncIterator[str]:
    """On a free port of loopback. Yields its URL when it answers; stops it at the end."""
    with listen("127.0.0.1", 0) as at:
        server = server_of(app, SHUTDOWN_SECONDS, has_lifespan=lifespan)
        server.capture_signals = nullcontext  # type: ignore[method-assign,assignment]  # Ctrl-C ends all of it, in order
        serving = asyncio.create_task(server.serve(sockets=[at]))
        try:
            await _begun(server, serving)
            yield f"http://{place_of(at)}"
        finally:
            server.should_exit = True
            await serving


async def _begun(server: uvicorn.Server, serving: asyncio.Task[None]) -> None:
    """Raises what kept it from beginning."""
    while not server.started:
        if serving.done():
            await serving
            raise RuntimeError("a server ended before it began")
        await asyncio.sleep(LOOK_SECONDS)
