"""Connections to the backend: kept for the next request, also after a stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx

from api.gateway.asked import Wishes, asked_of
from api.gateway.call import BackendCall
from api.gateway.events import DONE, json_event
from api.gateway.settings import GatewaySettings
from api.gateway.upstream import Upstream, read_out, upstream_client
from caches.flight import Flight
from caches.keys.fields import Endpoint
from caches.keys.request_key import Partition
from caches.keys.rules import KeyRules
from caches.stack import Served

GOOD = json_event({"choices": [{"index": 0, "delta": {"content": "yes"}, "finish_reason": "stop"}]}) + DONE


async def test_the_rest_of_a_stream_is_read_to_its_end_and_not_waited_for_long() -> None:
    read: list[bytes] = []

    async def pieces(*, hangs: bool = False, breaks: bool = False) -> AsyncIterator[bytes]:
        read.append(b"rest")
        yield b"rest"
        if hangs:
            await asyncio.sleep(3600)
        if breaks:
            raise httpx.ReadError("gone")
        read.append(b"end")

    for rest in (pieces(), pieces(hangs=True), pieces(breaks=True)):
        await asyncio.wait_for(read_out(rest), 30.0)
    assert read == [b"rest", b"end", b"rest", b"rest"]


async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seen: list[int]) -> None:
    """A backend that streams an answer to each request of a connection. seen: how many requests each connection had."""
    seen.append(0)
    body = GOOD
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    try:
        while True:
            asked = (await reader.readuntil(b"\r\n\r\n")).lower()
            await reader.readexactly(int(asked.split(b"content-length: ")[1].split(b"\r\n")[0]))
            seen[-1] += 1
            writer.write(head + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))
    except asyncio.IncompleteReadError:
        writer.close()
        await writer.wait_closed()


async def test_streams_that_are_missed_one_after_the_other_share_a_connection() -> None:
    seen: list[int] = []
    working: list[asyncio.Task[None]] = []

    def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        working.append(asyncio.create_task(connected(reader, writer, seen)))

    server = await asyncio.start_server(begin, "127.0.0.1", 0)
    settings = GatewaySettings(upstream=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    async with upstream_client(settings) as client:
        upstream = Upstream(client, settings)
        for number in range(3):
            raw = b'{"model": "m", "stream": true, "messages": [{"role": "user", "content": "%d"}]}' % number
            asked = asked_of(Endpoint.CHAT, raw, Partition(), KeyRules(allow_sampled=True), Wishes())
            assert asked is not None
            answer = await BackendCall(upstream, asked, [], lambda: 0.0)(Flight[Served]())
            assert b'"yes"' in answer.body
    server.close()
    await server.wait_closed()
    await asyncio.wait_for(asyncio.gather(*working), 30.0)
    assert seen == [3]
