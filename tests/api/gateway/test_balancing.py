"""Several backends behind one gateway: which gets a request, and what happens when one is not there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httpx
import pytest

from api.gateway.balancing import Backend, Balanced, Pool, pools_of
from caches.breaker import BreakerRule
from caches.guards.health import Health, HealthRule
from caches.guards.latency import LatencyRule
from tests.servers import free_port


@dataclass
class Answerer:
    """A backend. status: of all its answers; None: it hangs up without one. held: until set, answers wait."""

    status: int | None = 200
    address: str = ""
    heads: list[str] = field(default_factory=list)
    held: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.heads.append(head)
        await reader.readexactly(int(head.lower().partition("content-length: ")[2].partition("\r")[0] or 0))
        await self.held.wait()
        if self.status is not None:
            writer.write(b"HTTP/1.1 %d X\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok" % self.status)
        writer.close()


@asynccontextmanager
async def running(one: Answerer, port: int = 0, *, waits: bool = False) -> AsyncIterator[Answerer]:
    if not waits:
        one.held.set()
    server = await asyncio.start_server(one.answer, "127.0.0.1", port)
    one.address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield one
    finally:
        server.close()
        await server.wait_closed()


def backend_at(address: str, pools: Sequence[Pool]) -> Backend:
    return Backend(address, pools, httpx.AsyncHTTPTransport())


@asynccontextmanager
async def client_of(*addresses: str) -> AsyncIterator[tuple[httpx.AsyncClient, Balanced]]:
    balanced = Balanced([backend_at(address, [Pool(httpx.AsyncHTTPTransport(), 100)]) for address in addresses])
    async with httpx.AsyncClient(transport=balanced, base_url="http://backends", timeout=20.0) as client:
        yield client, balanced


async def test_equally_busy_ones_take_turns_and_paths_and_hosts_are_theirs() -> None:
    async with (
        running(Answerer()) as one,
        running(Answerer()) as other,
        client_of(one.address, other.address + "/prefix") as (client, balanced),
    ):
        for _ in range(4):
            assert (await client.post("/v1/embeddings?a=b", content=b"{}")).text == "ok"
        assert [(one.sent, one.under_way, one.failed) for one in balanced.backends] == [(2, 0, 0), (2, 0, 0)]
    assert len(one.heads) == len(other.heads) == 2
    assert one.heads[0].startswith("POST /v1/embeddings?a=b HTTP/1.1\r\n")
    assert other.heads[0].startswith("POST /prefix/v1/embeddings?a=b HTTP/1.1\r\n")
    for answerer in (one, other):
        hosts = [line for line in answerer.heads[0].split("\r\n") if line.lower().startswith("host:")]
        assert [line.split(": ")[1] for line in hosts] == [answerer.address.removeprefix("http://")]


async def test_the_one_with_the_fewest_under_way_is_asked() -> None:
    async with (
        running(Answerer(), waits=True) as slow,
        running(Answerer()) as quick,
        client_of(slow.address, quick.address) as (client, balanced),
    ):
        waiting = asyncio.ensure_future(client.get("/"))
        while not slow.heads:
            await asyncio.sleep(0.01)
        for _ in range(5):
            await client.get("/")
        assert [backend.sent for backend in balanced.backends] == [1, 5]
        assert [backend.under_way for backend in balanced.backends] == [1, 0]
        slow.held.set()
        await waiting
        assert balanced.backends[0].under_way == 0


def test_pools_share_the_connections_out() -> None:
    made: list[int] = []

    def make(room: int) -> httpx.AsyncBaseTransport:
        made.append(room)
        return httpx.AsyncHTTPTransport()

    for connections, rooms in ((1, [1]), (16, [16]), (17, [16, 1]), (40, [16, 16, 8])):
        made.clear()
        assert [pool.room for pool in pools_of(connections, make)] == made == rooms


async def test_few_requests_use_the_first_pool_and_more_the_next() -> None:
    async with running(Answerer(), waits=True) as one:
        pools = pools_of(18, lambda room: httpx.AsyncHTTPTransport(limits=httpx.Limits(max_connections=room)))
        balanced = Balanced([backend_at(one.address, pools)])
        async with httpx.AsyncClient(transport=balanced, base_url="http://backends", timeout=20.0) as client:
            waiting = [asyncio.ensure_future(client.get("/")) for _ in range(20)]
            while len(one.heads) < 18:
                await asyncio.sleep(0.01)
            assert [pool.under_way for pool in pools] == [17, 3]  # both full; of the others, one waits in each
            one.held.set()
            assert [answer.status_code for answer in await asyncio.gather(*waiting)] == [200] * 20
            assert [pool.under_way for pool in pools] == [0, 0]


async def test_a_stream_is_under_way_until_it_is_closed() -> None:
    async with running(Answerer()) as one, client_of(one.address) as (client, balanced):
        response = await client.send(client.build_request("GET", "/"), stream=True)
        assert balanced.backends[0].under_way == 1
        await response.aclose()
        await response.aclose()
        assert balanced.backends[0].under_way == 0


async def test_one_that_is_not_there_is_passed_over_until_it_answers_again() -> None:
    port = free_port()
    async with running(Answerer()) as there, client_of(f"http://127.0.0.1:{port}", there.address) as (client, balanced):
        gone = balanced.backends[0]
        for _ in range(3):
            assert (await client.post("/v1/completions", content=b"{}")).status_code == 200
        assert (gone.healthy, gone.sent, gone.failed) == (False, 1, 1)  # only the first request found out
        await balanced.check()
        assert [backend.healthy for backend in balanced.backends] == [False, True]
        async with running(Answerer(), port) as back:
            await balanced.check([(b"authorization", b"Bearer key")])
            assert [backend.healthy for backend in balanced.backends] == [True, True]
            assert back.heads[0].startswith("GET /v1/models HTTP/1.1\r\n")
            assert "authorization: Bearer key" in back.heads[0]
            await client.get("/")
            assert gone.sent == 2
    assert len(there.heads) == 5


async def test_where_none_is_there_all_are_tried() -> None:
    addresses = [f"http://127.0.0.1:{free_port()}" for _ in range(3)]
    async with client_of(*addresses) as (client, balanced):
        for tried in (1, 2):
            with pytest.raises(httpx.ConnectError):
                await client.get("/")
            assert [(one.sent, one.healthy, one.under_way) for one in balanced.backends] == [(tried, False, 0)] * 3


@pytest.mark.parametrize(("status", "healthy"), [(200, True), (401, True), (500, False), (503, False), (None, False)])
async def test_how_one_is_follows_from_its_answer(status: int | None, healthy: bool) -> None:
    async with running(Answerer(status)) as one, client_of(one.address) as (_, balanced):
        await balanced.check()
        assert balanced.backends[0].healthy is healthy
        assert balanced.backends[0].sent == 0


async def test_one_whose_connections_are_all_in_use_is_not_unhealthy_for_that() -> None:
    async with running(Answerer(), waits=True) as one:
        pools = [Pool(httpx.AsyncHTTPTransport(limits=httpx.Limits(max_connections=1)), 1)]
        balanced = Balanced([backend_at(one.address, pools)])
        async with httpx.AsyncClient(transport=balanced, base_url="http://backends", timeout=20.0) as client:
            waiting = asyncio.ensure_future(client.get("/"))
            while not one.heads:
                await asyncio.sleep(0.01)
            asking = asyncio.ensure_future(balanced.check())
            while len(one.heads) < 2:  # it is asked, beside the connection in use
                await asyncio.sleep(0.01)
            one.held.set()
            await asking
            assert balanced.backends[0].healthy
            await waiting


async def test_what_broke_off_is_not_sent_again() -> None:
    async with (
        running(Answerer(None)) as breaks,
        running(Answerer()) as other,
        client_of(breaks.address, other.address) as (client, balanced),
    ):
        with pytest.raises(httpx.RemoteProtocolError):
            await client.post("/v1/completions", content=b"{}")
        assert [(one.sent, one.failed, one.under_way) for one in balanced.backends] == [(1, 1, 0), (0, 0, 0)]
    assert not other.heads


async def test_a_password_is_sent_and_not_shown() -> None:
    async with running(Answerer()) as one, client_of(one.address.replace("//", "//me:p%40ss@")) as (client, balanced):
        await client.get("/", headers={"authorization": "Bearer of a client"})
        assert balanced.backends[0].shown == one.address
    assert "authorization: Basic bWU6cEBzcw==\r\n" in one.heads[0].replace("Authorization", "authorization")
    assert "Bearer" not in one.heads[0]


async def test_one_that_answers_with_errors_is_left_alone_and_then_tried_by_one_request() -> None:
    async with (
        running(Answerer(503)) as bad,
        running(Answerer()) as good,
        client_of(bad.address, good.address) as (client, balanced),
    ):
        now = [0.0]
        balanced.ticks = lambda: now[0]
        for backend in balanced.backends:
            backend.health = Health(HealthRule(BreakerRule(failures=1, first_seconds=10.0)))
        assert [(await client.get("/")).status_code for _ in range(5)] == [503, 200, 200, 200, 200]
        assert [backend.healthy for backend in balanced.backends] == [False, True]
        now[0] = 10.0
        assert [(await client.get("/")).status_code for _ in range(3)] == [503, 200, 200]
        bad.status, now[0] = 200, 30.0
        await client.get("/")
        assert [backend.healthy for backend in balanced.backends] == [True, True]


async def test_a_slow_one_gets_what_no_other_can_take() -> None:
    async with (
        running(Answerer()) as slow,
        running(Answerer()) as quick,
        client_of(slow.address, quick.address) as (client, balanced),
    ):
        one = balanced.backends[0].health = Health(HealthRule(whole=LatencyRule(1.0, least=1)))
        one.answered(2.0, False, balanced.ticks())
        for _ in range(4):
            await client.get("/")
        assert [backend.sent for backend in balanced.backends] == [0, 4]
        balanced.backends[1].health.reachable = False
        await client.get("/")
        assert [backend.sent for backend in balanced.backends] == [1, 4]
