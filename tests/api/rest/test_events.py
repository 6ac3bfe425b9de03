"""Live change, read from a real server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest

from api.errors import Problem
from api.events import Revisions
from tests.api.rest.conftest import Place, Placing, served
from tests.api.rest.history import CACHE
from tuner.ledger import LedgerUnavailable
from tuner.records import Wish, WishKind

SOON = {"poll_seconds": 0.05, "heartbeat_seconds": 0.2}
Fields = dict[str, str]
PAUSE = Wish(CACHE, WishKind.PAUSE, "ana", 1.0)


def events(place: Place, address: str, enough: Callable[[Fields], bool], last: str | None = None) -> list[Fields]:
    """Those up to the one that is enough, each by its fields, a comment as one of them."""
    headers = {} if last is None else {"last-event-id": last}
    found: list[Fields] = []
    with (
        httpx.Client(timeout=30) as client,
        client.stream("GET", f"{address}/v1/events", headers=headers) as answer,
    ):
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        fields: Fields = {}
        for line in answer.iter_lines():
            if line:
                name, _, value = line.partition(": ")
                fields[name or "comment"] = value
                continue
            found.append(fields)
            if enough(fields):
                return found
            fields = {}
    raise AssertionError("the stream ended")


def test_a_revision_comes_at_once_and_after_each_write(placing: Placing) -> None:
    place = placing(**SOON)
    with served(place) as address:
        first = place.ledger.revision()

        def last(one: Fields) -> bool:
            """Writes once the first is told, however long the connection took."""
            if one.get("id") == str(first):
                place.ledger.wish(PAUSE)
            return one.get("id") == str(first + 1)

        found = events(place, address, last)
    told = [one for one in found if "event" in one]
    assert told == [
        {"id": str(number), "event": "revision", "data": f'{{"revision":{number}}}'} for number in (first, first + 1)
    ]


def test_what_the_client_has_is_not_sent_again_but_the_line_is_kept(placing: Placing) -> None:
    """With the last id sent along, nothing but a first word on when to come back, and a sign of life."""
    place = placing(**SOON)
    with served(place) as address:
        found = events(place, address, lambda one: "comment" in one, last=str(place.ledger.revision()))
    assert found == [{"retry": "3000"}, {"comment": "still here"}]


def test_a_stream_needs_a_key_as_all_else(keyed: Place) -> None:
    with served(keyed) as address:
        answer = httpx.get(f"{address}/v1/events")
    assert answer.status_code == 401


# --- the watcher itself -----------------------------------------------------------------------------------------------


class Source:
    """A revision that the test moves, or that cannot be read."""

    def __init__(self) -> None:
        self.revision: int | None = 7
        self.reads = 0

    def read(self) -> int:
        self.reads += 1
        if self.revision is None:
            raise LedgerUnavailable("the disk is gone")
        return self.revision


async def after(stream: AsyncIterator[bytes], wanted: bytes) -> bytes:
    """The first piece that has this in it."""
    async with asyncio.timeout(20):
        async for piece in stream:
            if wanted in piece:
                return piece
    raise AssertionError("the stream ended")


async def test_many_listeners_cost_one_look() -> None:
    source = Source()
    revisions = Revisions(source.read, 0.05, 5.0, 10)
    streams: list[Any] = [revisions.stream(None) for _ in range(10)]
    for stream in streams:
        await after(stream, b"id: 7\n")
    before = source.reads
    await asyncio.sleep(0.5)
    assert source.reads - before <= 11  # one each 0.05 s, whatever the number of listeners
    with pytest.raises(Problem):
        revisions.stream(None)
    for stream in streams:
        await stream.aclose()
    await asyncio.sleep(0.2)
    rest = source.reads
    await asyncio.sleep(0.3)
    assert source.reads == rest  # nobody listens, so nobody looks
    await revisions.close()


async def test_a_ledger_that_goes_and_comes_back_is_told() -> None:
    source = Source()
    revisions = Revisions(source.read, 0.02, 5.0, 10)
    stream = revisions.stream(None)
    await after(stream, b"id: 7\n")
    source.revision = None
    assert b"the disk is gone" in await after(stream, b"event: unavailable\n")
    source.revision = 8
    assert b'{"revision":8}' in await after(stream, b"id: 8\n")
    await revisions.close()
    assert [piece async for piece in stream] == []


async def test_a_new_listener_is_not_told_an_old_revision() -> None:
    """The watcher forgets what it saw when the last listener goes."""
    source = Source()
    revisions = Revisions(source.read, 0.02, 5.0, 10)
    stream = revisions.stream(None)
    await after(stream, b"id: 7\n")
    await stream.aclose()
    source.revision = 9
    stream = revisions.stream("7")
    assert b"id: 9\n" in await after(stream, b"event: revision\n")
    await revisions.close()
