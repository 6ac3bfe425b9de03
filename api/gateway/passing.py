"""Requests that go to the backend as they are, and its responses that come back as they are."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack

from fastapi import Request
from fastapi.responses import Response

from api.gateway.errors import Headers, TooLate
from api.gateway.load import Load
from api.gateway.settings import GatewaySettings
from api.gateway.upstream import HOP_BY_HOP, Upstream, raw_pieces, returned_headers
from api.http.delivery import ClosedStream, gone_response, unless_gone
from api.http.errors import Missing

NOT_RETURNED_RAW = HOP_BY_HOP | {b"date", b"server"}


class PassThrough:
    """Streams both ways; nothing is parsed and nothing kept. load: counts calls until their body has been read."""

    def __init__(self, upstream: Upstream, settings: GatewaySettings, load: Load) -> None:
        self._upstream, self._settings, self._load = upstream, settings, load

    async def whole(self, request: Request, raw: bytes) -> Response:
        """For a request whose body has been read. Ends the backend's work when the client goes."""
        return await self.sent(request, raw, self._upstream, self._upstream.request_headers(request.headers.raw))

    async def sent(self, request: Request, raw: bytes, upstream: Upstream, headers: Headers) -> Response:
        """As `whole`, to any backend. headers: as that backend gets them."""
        response = await unless_gone(request, self._sent(request, upstream, headers, raw or None))
        return gone_response() if response is None else response

    async def streamed(self, request: Request) -> Response:
        """Any other: a body whose length is not known, or large, is sent on while it comes."""
        stated = request.headers.get("content-length")
        if "transfer-encoding" not in request.headers and stated is None:
            return await self.whole(request, b"")
        if stated is not None and stated.isdecimal() and int(stated) <= self._settings.largest_body_bytes:
            return await self.whole(request, await request.body())
        headers = self._upstream.request_headers(request.headers.raw)
        if stated is not None:
            headers.append((b"content-length", stated.encode()))
        return await self._sent(request, self._upstream, headers, request.stream())

    async def _sent(
        self, request: Request, upstream: Upstream, headers: Headers, content: bytes | AsyncIterator[bytes] | None
    ) -> Response:
        with ExitStack() as calling:
            calling.enter_context(self._load.calling())
            try:
                async with asyncio.timeout(self._settings.deadline_seconds):
                    response = await upstream.send(request.method, target_of(request), headers, content)
            except TimeoutError:
                raise TooLate(f"The backend took longer than {self._settings.deadline_seconds:g} seconds.") from None
            ended = calling.pop_all()  # when the body has been read, or given up

        async def close() -> None:
            ended.close()
            await response.aclose()

        told = ClosedStream(raw_pieces(response), response.status_code, close=close)
        told.raw_headers = returned_headers(response, NOT_RETURNED_RAW)
        return told


def target_of(request: Request) -> str:
    """Path and query as they were sent. Raises Missing for a path that would leave /v1 of the backend."""
    if {".", ".."} & set(request.url.path.split("/")):
        raise Missing(f"{request.method} {request.url.path}: no such path")
    path = request.scope.get("raw_path") or request.url.path.encode()
    query = request.scope.get("query_string", b"")
    return str(path.decode("latin-1") + ("?" + query.decode("latin-1") if query else ""))
