"""A backend that streams as a test says, gateways that keep streams in front of it, and a client that loses its
connection."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

from api.gateway.app import create_gateway
from api.gateway.feed import ending
from api.gateway.service import GatewayService
from api.gateway.settings import GatewaySettings, KeyHolder, NamespaceRules
from api.gateway.upstream import upstream_client
from caches.place import Place
from caches.stack import Stack
from caches.stream import StreamLog, StreamRules
from caches.streams.memory_log import MemoryStreamLog
from caches.streams.streams import Streams
from caches.tiers.lease import Lease
from caches.tiers.memory import MemoryTier
from tests.api.gateway.conftest import CHAT, SPACE, chat, serving

ENDLESS = 10**9
RULES = StreamRules(kept_seconds=600.0, lease_seconds=30.0)
RESUME, LAST = "x-setpoint-resume", "last-event-id"


@dataclass
class Script:
    """pieces: texts of chunks. allowed: how many of the events may be sent so far. pause_seconds: between two. then:
    what comes in place of the end: "break" of the connection, an "error" as an event, "unfinished" without a reason.
    calls: so far; given_up: those of them whose client went."""

    pieces: list[str] = field(default_factory=lambda: ["The ", "moon ", "is ", "far ", "away, ", "äöü \n\n data: ."])
    allowed: int = ENDLESS
    pause_seconds: float = 0.0
    then: str = ""
    calls: int = 0
    given_up: int = 0
    address: str = ""

    def reset(self) -> None:
        self.__dict__.update(vars(Script(address=self.address)))

    async def answer(self, request: Request) -> StreamingResponse:
        self.calls += 1
        return StreamingResponse(self._events(await request.json()), media_type="text/event-stream")

    async def _events(self, body: dict[str, Any]) -> AsyncIterator[bytes]:
        try:
            for number, event in enumerate(self._chunks()):
                while number >= self.allowed:
                    await asyncio.sleep(0.002)
                if self.pause_seconds:
                    await asyncio.sleep(self.pause_seconds)
                yield event
        except asyncio.CancelledError:
            self.given_up += 1
            raise

    def _chunks(self) -> Iterator[bytes]:
        yield _chunk({"role": "assistant", "content": ""})
        for piece in self.pieces:
            yield _chunk({"content": piece})
        if self.then == "break":
            raise ConnectionError("as the script says")
        if self.then == "error":
            yield b'data: {"error":{"message":"out of memory","type":"server_error"}}\n\n'
            return
        if self.then != "unfinished":
            yield _chunk({}, "stop")
        usage = {"prompt_tokens": 3, "completion_tokens": len(self.pieces), "total_tokens": 3 + len(self.pieces)}
        yield _event({"id": "c", "object": "chat.completion.chunk", "model": "m", "choices": [], "usage": usage})
        yield b"data: [DONE]\n\n"


def _chunk(delta: dict[str, Any], reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
    return _event({"id": "c", "object": "chat.completion.chunk", "model": "m", "choices": [choice], "usage": None})


def _event(value: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


@contextmanager
def scripted() -> Iterator[Script]:
    script = Script()
    app = Starlette(routes=[Route("/v1/chat/completions", script.answer, methods=["POST"])])
    with serving(app) as script.address:
        yield script


@contextmanager
def keeping(
    upstream: str,
    log: StreamLog | None = None,
    *,
    grace_seconds: float = 30.0,
    joins: bool = False,
    places: list[Place] | None = None,
    lease: Lease | None = None,
    keys: Mapping[str, KeyHolder] | None = None,
    namespaces: Mapping[str, NamespaceRules] | None = None,
) -> Iterator[tuple[str, Streams]]:
    """The address of a gateway that keeps streams, and these."""
    rules = NamespaceRules(keeps_streams=True)
    told = GatewaySettings(upstream, keys=keys or {}, rules=rules, namespaces=namespaces or {})
    streams = Streams(log or MemoryStreamLog(RULES), grace_seconds, ending, joins=joins)
    stack = Stack(places or [Place(MemoryTier(SPACE))], lease=lease, streams=streams)
    service = GatewayService(told, stack, upstream_client(told), streams=streams)
    with serving(create_gateway(service), "on") as address:
        yield address, streams


def asking(text: str, **fields: Any) -> dict[str, Any]:
    return chat(text, stream=True, **fields)


@dataclass(frozen=True)
class Received:
    """whole: all bytes up to the end of the last event that was ended; id: of the last one that had one."""

    status: int
    headers: httpx.Headers
    whole: bytes
    id: str | None

    @property
    def token(self) -> str:
        return str(self.headers[RESUME])


def received(
    address: str,
    body: dict[str, Any] | None,
    headers: Mapping[str, str] | None = None,
    most: int = ENDLESS,
    path: str = CHAT,
) -> Received:
    """Reads so many bytes and hangs up. body: None for a GET."""
    method = "GET" if body is None else "POST"
    got = b""
    with (
        httpx.Client(timeout=20, verify=False) as client,
        client.stream(method, address + path, json=body, headers=headers) as response,
    ):
        for piece in response.iter_raw():
            got += piece
            if len(got) >= most:
                break
    got = got[:most]
    whole = got[: got.rfind(b"\n\n") + 2] if b"\n\n" in got else b""
    ids = re.findall(rb"^id: (.+)$", whole, re.MULTILINE)
    return Received(response.status_code, response.headers, whole, ids[-1].decode() if ids else None)


def resumed(address: str, body: dict[str, Any] | None, first: Received, most: int = ENDLESS) -> Received:
    """From where the first one broke off; without a body by the address of the stream."""
    headers = {RESUME: first.token} if body is not None else {}
    if first.id is not None:
        headers[LAST] = first.id
    path = CHAT if body is not None else f"/v1/cache/streams/{first.token}"
    return received(address, body, headers, most, path)


def without_ids(events: bytes) -> bytes:
    return re.sub(rb"^id: .*\n", b"", events, flags=re.MULTILINE)
