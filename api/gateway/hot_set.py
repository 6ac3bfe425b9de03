"""The endpoints that hand the hot set out and take one in."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator
from dataclasses import asdict

from fastapi import Request
from fastapi.responses import Response
from starlette.requests import ClientDisconnect
from starlette.routing import Route

from api.gateway.access import check_admin
from api.gateway.errors import TooLarge
from api.gateway.service import GatewayService
from api.gateway.warming import GatewayWarming
from api.http.delivery import ClosedStream, gone_response, json_response
from api.http.errors import BadRequest
from caches.errors import InputError
from caches.hot_set import Imported, exported, take_in
from caches.keys.request_key import Partition
from caches.place import Place

SHARE = 0.1
AT_A_TIME = 20  # lines, before others have their turn
LINE_ROOM = 2  # a line may be so many times the largest body that the gateway takes, since base64 and names add to it


class _LinesResponse(ClosedStream):
    """A JSON object in each line."""

    media_type = "application/x-ndjson"


class HotSet:
    """Raises NotAllowed and BadRequest."""

    def __init__(self, service: GatewayService, warming: GatewayWarming) -> None:
        self._service, self._settings, self._warming = service, service.settings, warming

    def routes(self) -> list[Route]:
        path = "/v1/cache/hot"
        return [Route(path, self.export, methods=["GET"]), Route(path, self.take, methods=["POST"])]

    async def export(self, request: Request) -> Response:
        """The best share, best first, of all tenants."""
        check_admin(request, self._settings)
        share = _share(request.query_params.get("share"))
        # by what a miss costs and how often it would come: what is left of a lifetime is for whoever takes it in
        ranked = await asyncio.to_thread(self._warming.hot.ranked, self._service.clock(), float("inf"), share)
        return _LinesResponse(exported(ranked, self._places, self._service.clock, self._service.stack.epochs))

    async def take(self, request: Request) -> Response:
        """Stops at the first line that is wrong; those before it stay."""
        check_admin(request, self._settings)
        try:
            return json_response(asdict(await self._taken(request)))
        except ClientDisconnect:
            return gone_response()

    async def _taken(self, request: Request) -> Imported:
        counts, lines, number = Imported(), _Lines(request, LINE_ROOM * self._settings.largest_body_bytes), 0
        async for line in lines.read():
            number += 1
            try:
                if line.strip():
                    await take_in(line, self._places, self._warming.hot, self._service.clock(), counts)
            except InputError as error:
                await lines.pass_over()
                raise BadRequest(f"line {number}, {error}. {_so_far(counts)}", "body") from error
            if number % AT_A_TIME == 0:
                await asyncio.sleep(AT_A_TIME / self._warming.settings.imported_per_second)
        return counts

    def _places(self, partition: Partition) -> tuple[Place, ...]:
        return self._warming.stack_of(partition).places


class _Lines:
    """Of a body, while it comes."""

    def __init__(self, request: Request, most_bytes: int) -> None:
        self._pieces, self._most = request.stream(), most_bytes

    async def read(self) -> AsyncGenerator[bytes, None]:
        """Without their ends. Raises TooLarge for one of more than `most_bytes`."""
        rest = bytearray()
        async for piece in self._pieces:
            rest += piece
            if b"\n" in piece:
                *whole, rest = rest.split(b"\n")
                for line in whole:
                    yield bytes(line)
            if len(rest) > self._most:
                raise TooLarge(f"A line has more than the {self._most:,} bytes that this gateway takes.")
        if rest:
            yield bytes(rest)

    async def pass_over(self) -> None:
        """What is left: a client that still sends would not read what it is told."""
        async for _ in self._pieces:
            continue


def _so_far(counts: Imported) -> str:
    return f"Of the entries before it, {counts.taken:,} were taken in."


def _share(given: str | None) -> float:
    """Raises BadRequest."""
    if given is None:
        return SHARE
    try:
        share = float(given)
    except ValueError:
        share = math.nan
    if not 0.0 < share <= 1.0:
        raise BadRequest(f"share: got {given[:40]!r}, expected a number above 0, up to 1", "share")
    return share
