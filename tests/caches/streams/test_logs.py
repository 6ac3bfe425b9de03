"""The stream logs, each held to the contract, and what is each one's own."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
from redis import Redis

from caches.errors import InputError
from caches.stream import Fenced, StreamLog, StreamRules, StreamState, TooLong
from caches.streams.memory_log import MemoryStreamLog
from caches.streams.redis_log import RedisStreamLog
from caches.tiers.tier import TierError
from tests.contracts.stream_contract import LASTING, NAME, Make, StreamContract, new_id, read
from tests.servers import patient


class InMemory:
    several = False

    @asynccontextmanager
    async def made(self) -> AsyncIterator[Make]:
        def make(rules: StreamRules = LASTING) -> StreamLog:
            return MemoryStreamLog(rules)

        yield make


@dataclass
class InRedis:
    url: str
    several: bool = True

    @asynccontextmanager
    async def made(self) -> AsyncIterator[Make]:
        connection, prefix = patient(self.url), f"test-{uuid.uuid4().hex}"

        def make(rules: StreamRules = LASTING) -> StreamLog:
            return RedisStreamLog(connection, prefix, rules)

        try:
            yield make
        finally:
            async for key in connection.scan_iter(f"{prefix}*"):
                await connection.delete(key)
            await connection.aclose()


class TestMemory(StreamContract):
    subject = InMemory()


class TestRedis(StreamContract):
    @pytest.fixture(autouse=True)
    def _on(self, redis_server: str) -> None:
        self.subject = InRedis(redis_server)


@pytest.mark.slow
class TestValkey(StreamContract):
    @pytest.fixture(autouse=True)
    def _on(self, valkey_server: str) -> None:
        self.subject = InRedis(valkey_server)


@pytest.mark.slow
class TestCluster(StreamContract):
    @pytest.fixture(autouse=True)
    def _on(self, redis_cluster_of_three: str) -> None:
        self.subject = InRedis(redis_cluster_of_three)


@dataclass
class Ticks:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now


async def test_in_memory_those_that_ended_first_make_room() -> None:
    """Ten bytes: two streams of four that have ended, the older of which goes for one of three."""
    log = MemoryStreamLog(LASTING, capacity_bytes=10)
    for name in ("first", "second"):
        await log.open(name, NAME)
        await log.append(name, 0, [b"1234"])
        await log.finish(name, NAME)
    await log.open("third", NAME)
    await log.append("third", 0, [b"123"])
    assert await log.read("first", 0) is None
    assert (await read(log, "second")).events == (b"1234",)
    assert (log.used_bytes, len(log)) == (7, 2)
    await log.append("third", 1, [b"4567"])  # eleven with the second
    assert await log.read("second", 0) is None
    with pytest.raises(TooLong):
        await log.append("third", 2, [b"8901"])
    assert log.used_bytes == 7


async def test_in_memory_times_are_those_of_its_clock() -> None:
    ticks = Ticks()
    log = MemoryStreamLog(StreamRules(kept_seconds=60.0, lease_seconds=5.0), ticks=ticks)
    await log.open("one", NAME)
    ticks.now += 4.9
    await log.renew("one", NAME)
    ticks.now += 4.9
    assert (await read(log, "one")).state is StreamState.RUNNING
    ticks.now += 0.2
    assert (await read(log, "one")).state is StreamState.ABANDONED
    ticks.now += 59.9
    assert (await read(log, "one")).state is StreamState.ABANDONED
    ticks.now += 0.2
    assert await log.read("one", 0) is None
    assert log.used_bytes == 0


async def test_in_redis_nothing_stays_for_ever(redis_server: str) -> None:
    """Neither what ended nor what a dead writer left."""
    prefix = f"test-{uuid.uuid4().hex}"
    connection = patient(redis_server)
    log = RedisStreamLog(connection, prefix, StreamRules(1_000, kept_seconds=60.0, lease_seconds=5.0))
    done, running = new_id(), new_id()
    await log.open(done, NAME)
    await log.finish(done, NAME)
    await log.open(running, NAME)
    await log.append(running, 0, [b"one"])
    with Redis.from_url(redis_server) as redis:
        lives = {key: redis.pttl(key) / 1000 for key in redis.scan_iter(f"{prefix}*")}
        assert len(lives) == 3  # two streams and a name
        assert 0 < lives[f"{prefix}:stream:{done}".encode()] <= 60
        assert 60 < lives[f"{prefix}:stream:{running}".encode()] <= 65
        assert 0 < lives[f"{prefix}:stream-of:".encode() + NAME] <= 5
        redis.delete(*lives)
    await connection.aclose()


async def test_without_a_redis_every_call_says_so() -> None:
    connection = patient("redis://127.0.0.1:1/0")
    log = RedisStreamLog(connection)
    for call in (log.open("one", NAME), log.append("one", 0, [b""]), log.read("one", 0), log.current(NAME)):
        with pytest.raises(TierError, match="streams"):
            await call
    await connection.aclose()


async def test_a_full_redis_takes_nothing_and_can_still_be_read(own_redis_server: str) -> None:
    connection, stream_id = patient(own_redis_server), new_id()
    log = RedisStreamLog(connection, rules=StreamRules(lease_seconds=1.0))
    with Redis.from_url(own_redis_server) as redis:
        redis.flushall()
        await log.open(stream_id, NAME)
        await log.append(stream_id, 0, [b"one"])
        try:
            redis.config_set("maxmemory-policy", "noeviction")
            redis.config_set("maxmemory", 1)
            with pytest.raises(TierError):
                await log.append(stream_id, 1, [b"two"])
            assert (await read(log, stream_id)).events == (b"one",)
            async with asyncio.timeout(20):
                while (await read(log, stream_id)).state is not StreamState.ABANDONED:
                    await asyncio.sleep(0.05)
        finally:
            redis.config_set("maxmemory", 0)
            redis.flushall()
    with pytest.raises(Fenced):
        await log.append(stream_id, 1, [b"two"])
    await connection.aclose()


@pytest.mark.parametrize("field", ["largest_bytes", "kept_seconds", "lease_seconds"])
def test_rules_are_above_zero(field: str) -> None:
    with pytest.raises(InputError, match=field):
        StreamRules(**{field: 0})
