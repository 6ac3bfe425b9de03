"""Two gateways with one lease and one log of streams: who asks second joins the stream that the first has begun."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field

import pytest

from caches.flight import Flight
from caches.place import Place
from caches.stack import Served, Stack
from caches.stream import Part, StreamRules, StreamState
from caches.streams.joining import Joined, StreamBroken, StreamComplete
from caches.streams.redis_log import RedisStreamLog
from caches.streams.streams import Streams
from caches.tiers.memory import MemoryTier
from caches.tiers.redis_index import RedisIndexOptions, RedisIndexTier
from caches.tiers.redis_lease import RedisLease
from caches.tiers.tier import Answer
from tests.contracts.tier_contract import SPACE, key_of
from tests.servers import patient

KEY = key_of(1)
PIECES = [b"piece %d" % number for number in range(6)]


def told(error: BaseException) -> bytes | None:
    return f"told: {error}".encode()


@dataclass
class Gateway:
    """pieces: that its backend gives; one for each release of `step`. error: after these, instead of an answer."""

    stack: Stack
    streams: Streams
    error: Exception | None = None
    calls: int = 0
    step: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))

    async def call(self, flight: Flight[Served]) -> Answer:
        self.calls += 1
        self.streams.record(flight, KEY.id)
        for piece in PIECES:
            await self.step.acquire()
            flight.publish(piece)
        await self.step.acquire()
        if self.error is not None:
            raise self.error
        return Answer(b"".join(PIECES), time.time())

    def let(self, steps: int) -> None:
        for _ in range(steps):
            self.step.release()

    def client(self, max_age_seconds: float | None = None) -> Client:
        return Client(self, max_age_seconds)


class Client:
    """One that takes pieces. got: so far. ending: what its flight ended with."""

    def __init__(self, gateway: Gateway, max_age_seconds: float | None) -> None:
        self.got: list[bytes] = []
        self.ending: BaseException | None = None
        self.flight: Flight[Served] | None = None
        self._reading: asyncio.Future[None] | None = None
        self.fetching = asyncio.ensure_future(gateway.stack.fetch(KEY, gateway.call, max_age_seconds, self._watch))

    def _watch(self, flight: Flight[Served]) -> None:
        if self.flight is None:
            flight.watched, self.flight = True, flight
            self._reading = asyncio.ensure_future(self._read(flight))

    async def _read(self, flight: Flight[Served]) -> None:
        async with aclosing(flight.published()) as pieces:
            async for some in pieces:
                self.got += some
        self.ending = flight.error

    async def over(self) -> None:
        """When its flight has ended."""
        assert self._reading is not None
        await asyncio.gather(self._reading, return_exceptions=True)


@asynccontextmanager
async def gateways(url: str, lease_seconds: float = 30.0) -> AsyncIterator[Callable[[], Gateway]]:
    prefix, made = f"test-{uuid.uuid4().hex}", list[Gateway]()

    def make() -> Gateway:
        connection = patient(url)
        shared = RedisIndexTier(connection, SPACE, "l2", RedisIndexOptions(prefix))
        log = RedisStreamLog(connection, prefix, StreamRules(lease_seconds=lease_seconds))
        streams = Streams(log, 30.0, told, joins=True)
        lease = RedisLease(connection, prefix, lease_seconds)
        stack = Stack([Place(MemoryTier(SPACE, "l1")), Place(shared, 15.0)], lease=lease, streams=streams)
        made.append(Gateway(stack, streams))
        return made[-1]

    try:
        yield make
    finally:
        for one in made:
            await one.stack.close()


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not true():
            await asyncio.sleep(0.005)


async def test_the_second_gets_the_pieces_while_the_first_gets_them(redis_server: str) -> None:
    async with gateways(redis_server) as make:
        first, second = make(), make()
        leader = first.client()
        first.let(3)
        await until(lambda: len(leader.got) == 3)
        joiner = second.client()
        await until(lambda: joiner.got == PIECES[:3])
        late = second.client()  # shares the flight that joined
        first.let(4)
        served = [await one.fetching for one in (leader, joiner, late)]
        for one in (leader, joiner, late):
            await one.over()
            assert (one.got, one.ending) == (PIECES, None)
        assert {one.answer.body for one in served} == {b"".join(PIECES)}
        assert (first.calls, second.calls) == (1, 0)
        assert joiner.flight is not None
        assert leader.flight is not None
        assert joiner.flight.stream == leader.flight.stream is not None
        assert (first.streams.counts.joined, second.streams.counts.joined) == (0, 1)


async def test_who_waits_for_the_whole_gets_the_whole(redis_server: str) -> None:
    async with gateways(redis_server) as make:
        first, second = make(), make()
        leader = first.client()
        first.let(2)
        await until(lambda: len(leader.got) == 2)
        whole = asyncio.ensure_future(second.stack.fetch(KEY, second.call))
        first.let(5)
        assert (await whole).answer.body == b"".join(PIECES)
        assert (second.calls, second.streams.counts.joined) == (0, 0)


async def test_who_wants_a_new_answer_shares_the_stream_that_runs(redis_server: str) -> None:
    """As in one process. The answer that is stored is older than it asked for, so it gets the pieces only."""
    async with gateways(redis_server) as make:
        first, second = make(), make()
        leader = first.client()
        first.let(1)
        await until(lambda: leader.got)
        joiner = second.client(max_age_seconds=0.0)
        await until(lambda: joiner.got)
        first.let(6)
        await joiner.over()
        assert joiner.got == PIECES
        (end,) = await asyncio.gather(joiner.fetching, return_exceptions=True)
        assert isinstance(end, Served | StreamComplete)
        assert second.calls == 0


async def test_an_error_is_told_and_the_whole_is_asked_for_anew(redis_server: str) -> None:
    async with gateways(redis_server) as make:
        first, second = make(), make()
        first.error = ValueError("broke off")
        leader = first.client()
        first.let(2)
        await until(lambda: len(leader.got) == 2)
        joiner = second.client()
        await until(lambda: len(joiner.got) == 2)
        whole = asyncio.ensure_future(second.stack.fetch(KEY, second.call))
        first.let(5)
        await joiner.over()
        assert joiner.got == PIECES
        assert isinstance(joiner.ending, StreamBroken)
        assert joiner.ending.why == b"told: broke off"
        second.let(7)
        assert (await whole).answer.body == b"".join(PIECES)
        with pytest.raises(ValueError, match="broke off"):
            await leader.fetching
        with pytest.raises(StreamBroken):
            await joiner.fetching
        assert (first.calls, second.calls) == (1, 1)


async def test_when_the_first_gateway_dies_the_second_is_told(redis_server: str) -> None:
    """Its event loop goes on, but it writes nothing any more, as one that was killed."""
    async with gateways(redis_server, lease_seconds=0.5) as make:
        first, second = make(), make()
        leader = first.client()
        first.let(2)
        await until(lambda: len(leader.got) == 2)
        joiner = second.client()
        await until(lambda: len(joiner.got) == 2)
        await _killed(first)
        await joiner.over()
        assert joiner.got == PIECES[:2]
        assert isinstance(joiner.ending, StreamBroken)
        assert joiner.ending.why == b""
        with pytest.raises(StreamBroken):
            await joiner.fetching
        assert second.calls == 0
        second.let(7)
        assert (await second.client().fetching).answer.body == b"".join(PIECES)


async def _killed(gateway: Gateway) -> None:
    """Nothing that it does reaches Redis."""

    async def nothing(*_arguments: object, **_options: object) -> None:
        await asyncio.sleep(3600)

    connection = gateway.streams.log._redis  # type: ignore[attr-defined]
    connection.evalsha = connection.eval = nothing


async def test_an_invalidation_keeps_others_from_joining(redis_server: str) -> None:
    """Neither at this gateway nor at another one does anybody join who asks after it."""
    async with gateways(redis_server) as make:
        first, second = make(), make()
        leader = first.client()
        first.let(2)
        await until(lambda: len(leader.got) == 2)
        await first.stack.clear(KEY)
        name: bytes = KEY.id
        async with asyncio.timeout(20):
            while await second.streams.elsewhere(name) is not None:
                await asyncio.sleep(0.005)
        after = [first.client(), second.client()]
        await asyncio.sleep(0.2)
        assert [one.got for one in after] == [[], []]
        first.let(5)
        await leader.fetching
        for gateway in (first, second):
            gateway.let(7)
        for one in after:
            assert (await one.fetching).answer.body == b"".join(PIECES)
            await one.over()
            assert one.got in (PIECES, [])  # of a newer call, or none where that had stored its answer already
        assert first.calls + second.calls >= 2


@dataclass
class Slow:
    """A stream of one gateway whose events come when they are let."""

    joins: bool = True
    let: asyncio.Event = field(default_factory=asyncio.Event)
    state: StreamState = StreamState.RUNNING

    async def elsewhere(self, _name: bytes) -> str | None:
        return "stream"

    async def read(self, _stream_id: str, after: int, _wait_seconds: float) -> Part | None:
        await self.let.wait()
        return Part(b"", tuple(PIECES[after:3]), self.state)

    def joined(self) -> None:
        pass


@pytest.mark.parametrize("own_call", [False, True])
async def test_pieces_that_come_too_late_are_not_passed_on(own_call: bool) -> None:
    """Else a client would get a beginning of the stream, and then the end that the whole answer brings."""
    source, flight = Slow(), Flight[Served]()
    flight.watched = True
    joined = Joined(source, b"name", flight)
    await asyncio.sleep(0.05)
    if own_call:
        await joined.instead()
    else:
        await joined.ended()
    source.let.set()
    await asyncio.sleep(0.05)
    await joined.close()
    flight.fail(ValueError("over"))
    assert [some async for some in flight.published()] == []
    assert flight.stream is None


async def test_where_nobody_joins_all_wait_for_the_answer(redis_server: str) -> None:
    async with gateways(redis_server) as make:
        first, second = make(), make()
        second.streams.joins = False
        leader = first.client()
        first.let(2)
        await until(lambda: len(leader.got) == 2)
        waiter = second.client()
        await asyncio.sleep(0.1)
        assert waiter.got == []
        first.let(5)
        assert (await waiter.fetching).answer.body == b"".join(PIECES)
