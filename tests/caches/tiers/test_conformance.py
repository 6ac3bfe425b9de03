"""What users of other caches found broken, as one named test for each back end.

What the contract of all tiers asserts already is only named here, with a check that every back end runs it.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import redis

from caches.keys.fields import Endpoint
from caches.keys.fingerprint import request_key
from caches.keys.request_key import Partition, RequestKey
from caches.knobs import KnobSettings, KnobSpace
from caches.target import Split
from caches.tiers.disk import DiskOptions, DiskTier
from caches.tiers.memory import MemoryTier
from caches.tiers.redis_index import KEPT_SECONDS, RedisIndexTier
from caches.tiers.split import SplitTier
from caches.tiers.tier import Answer, Tier
from tests.caches.tiers import (
    test_disk,
    test_memory,
    test_redis_cluster,
    test_redis_index,
    test_redis_server,
    test_split,
    test_valkey,
)
from tests.caches.tiers.server_contract import MEBIBYTE, on_server, roomy
from tests.caches.tiers.test_redis_index import options
from tests.contracts.tier_contract import PARTITIONS, ROOM, SPACE, START, answer_of, key_of
from tests.servers import patient
from tuner.router import assigner

BY_CONTRACT = {
    "size binds even when every entry has a lifetime": "test_size_binds_though_every_entry_has_a_lifetime",
    "a read never renews a lifetime": "test_a_read_never_renews_a_lifetime",
    "an entry that is too old is never served": "test_with_room_for_all_hits_follow_from_lifetimes",
    "a cleared partition takes nothing of others with it": "test_no_answer_crosses_a_partition",
    "shrinking is not a storm": "test_a_smaller_capacity_is_reached_in_steps",
    "read-back equals what binds": "test_what_is_asked_for_stays_within_the_operators_limits_and_is_read_back",
}
SERVERS_OWN = 8  # entries that a server at its limit may evict by itself, for room that its connections take
CONTRACTS = (
    test_memory.TestMemoryTier,
    test_split.TestAllKeysAreControls,
    test_split.TestAllKeysAreTreatments,
    test_disk.TestDiskTier,
    test_redis_index.TestRedisIndexTier,
    test_redis_server.TestRedisServerTier,
    test_redis_cluster.TestOneNode,
    test_valkey.TestIndexMode,
    test_valkey.TestServerMode,
)


@pytest.mark.parametrize("contract", CONTRACTS, ids=lambda contract: f"{contract.__module__}.{contract.__name__}")
@pytest.mark.parametrize("name", BY_CONTRACT.values(), ids=BY_CONTRACT)
def test_every_back_end_runs_the_contracts_test(contract: type, name: str) -> None:
    assert callable(getattr(contract, name))


@asynccontextmanager
async def on_disk(space: KnobSpace) -> AsyncIterator[Tier]:
    with tempfile.TemporaryDirectory() as folder:
        tier = DiskTier(Path(folder) / "cache.sqlite", space, options=DiskOptions(most_removed=100))
        yield tier
        await tier.close()


@asynccontextmanager
async def in_memory(space: KnobSpace) -> AsyncIterator[Tier]:
    yield MemoryTier(space, most_removed=100)


@asynccontextmanager
async def in_two_arms(space: KnobSpace) -> AsyncIterator[Tier]:
    tier = SplitTier(space, assigner, most_removed=100)
    tier.aim(replace(tier.plan, split=Split("salt", 0.5)), START)
    yield tier


def in_index(url: str) -> Callable[[KnobSpace], AbstractAsyncContextManager[Tier]]:
    @asynccontextmanager
    async def empty(space: KnobSpace) -> AsyncIterator[Tier]:
        connection = patient(url)
        await connection.flushall()
        tier = RedisIndexTier(connection, space, options=options())
        try:
            yield tier
        finally:
            await connection.flushall()
            await tier.close()

    return empty


@dataclass(frozen=True)
class BackEnd:
    """make: an empty one. left_seconds: how long the server itself says that it will keep an entry; None where it says
    nothing. keeps_seconds: what it should say of one that was just stored."""

    make: Callable[[KnobSpace], AbstractAsyncContextManager[Tier]]
    left_seconds: Callable[[Tier, RequestKey], float] | None = None
    keeps_seconds: float = 0.0


def of_server(url: str) -> BackEnd:
    def left(tier: Tier, key: RequestKey) -> float:
        with redis.Redis.from_url(url) as client:
            return float(client.pttl(b"setpoint:entry:" + key.id)) / 1000

    return BackEnd(on_server(url), left, SPACE.ttl_seconds.high)


def of_index(url: str) -> BackEnd:
    def left(tier: Tier, key: RequestKey) -> float:
        with redis.Redis.from_url(url) as client:
            (name,) = client.keys("*:body")
            return float(client.pttl(name)) / 1000

    return BackEnd(in_index(url), left, KEPT_SECONDS)


@pytest.fixture(params=["memory", "two arms", "disk", "index", "server", "cluster", "valkey index", "valkey server"])
def back_end(request: pytest.FixtureRequest) -> BackEnd:
    if request.param == "memory":
        return BackEnd(in_memory)
    if request.param == "two arms":
        return BackEnd(in_two_arms)
    if request.param == "disk":
        return BackEnd(on_disk)
    if request.param == "cluster":
        return BackEnd(in_index(request.getfixturevalue("redis_cluster")))
    of = of_server if request.param.endswith("server") else of_index
    valkey = request.param.startswith("valkey")
    return of(request.getfixturevalue("valkey_server" if valkey else "own_redis_server"))


async def test_a_lifetime_of_two_seconds_is_two_seconds_on_the_wall(back_end: BackEnd) -> None:
    """Of the tier and of an entry of its own, read all the while."""
    async with back_end.make(SPACE) as tier:
        await tier.apply(KnobSettings(ROOM, 2.0, 0.0), time.time())
        began = time.time()
        await tier.store(key_of(1), answer_of(1, 10, began), began)
        while (now := time.time()) < began + 1.8:
            assert await tier.lookup(key_of(1), now) is not None
            await asyncio.sleep(0.2)
        await asyncio.sleep(max(began + 2.0 - time.time(), 0.0))
        assert await tier.lookup(key_of(1), time.time()) is None
        assert (await tier.stats()).expirations == 1


async def test_an_entrys_own_two_seconds_are_two_seconds_on_the_wall(back_end: BackEnd) -> None:
    async with back_end.make(SPACE) as tier:
        began = time.time()
        await tier.store(key_of(1), answer_of(1, 10, began, 2.0), began)
        await asyncio.sleep(1.0)
        assert await tier.lookup(key_of(1), time.time()) is not None
        await asyncio.sleep(max(began + 2.0 - time.time(), 0.0))
        assert await tier.lookup(key_of(1), time.time()) is None


async def test_the_servers_own_expiry_is_in_the_same_unit(back_end: BackEnd) -> None:
    if back_end.left_seconds is None:
        pytest.skip("nothing but the tier knows lifetimes here")
    async with back_end.make(SPACE) as tier:
        now = time.time()
        await tier.store(key_of(1), answer_of(1, 10, now), now)
        assert back_end.left_seconds(tier, key_of(1)) == pytest.approx(back_end.keeps_seconds, abs=1.0)


def asked(model: str = "m", system: str = "Be brief.", partition: Partition = PARTITIONS[0]) -> RequestKey:
    """From bytes, as a gateway gets them."""
    messages = [{"role": "system", "content": system}, {"role": "user", "content": "Wie heißt er? 🙂"}]
    body = json.dumps({"model": model, "messages": messages}).encode()
    return request_key(Endpoint.CHAT, json.loads(body), partition)


async def test_identical_bytes_hit(back_end: BackEnd) -> None:
    answer = Answer("Er heißt Jürgen.\n\x00\r\n".encode(), START)
    async with back_end.make(SPACE) as tier:
        await tier.store(asked(), answer, START)
        for _ in range(3):
            found = await tier.lookup(asked(), START)
            assert found is not None
            assert found.answer == answer


async def test_no_answer_crosses_tenants_models_or_system_prompts(back_end: BackEnd) -> None:
    others = [asked(model="n"), asked(system="Be brief"), *(asked(partition=other) for other in PARTITIONS[1:])]
    async with back_end.make(SPACE) as tier:
        await tier.store(asked(), answer_of(1, 10, START), START)
        assert await tier.batch_lookup(others, START) == [None] * 4


async def test_undo_restores_even_half_way(back_end: BackEnd) -> None:
    async with back_end.make(roomy(SPACE)) as tier:
        before = await tier.settings()
        for number in range(1_500):
            await tier.store(key_of(number), answer_of(number, 2_000, START), START)
        await tier.apply(KnobSettings(2.5 * MEBIBYTE, 10.0, 0.5), START)
        assert await tier.tend(START)  # on its way
        held = (await tier.stats()).entries
        assert 1_000 < held < 1_500
        assert await tier.apply(before, START) == before
        assert await tier.settings() == before
        kept = (await tier.stats()).entries
        assert held - SERVERS_OWN <= kept <= held
        assert not await tier.tend(START + 60)
        assert (await tier.stats()).entries == kept
        found = await tier.batch_lookup([key_of(number) for number in range(1_500)], START + 60)
        assert sum(one is not None for one in found) == held
        await tier.store(key_of(1_500), answer_of(1_500, 2_000, START + 60), START + 60)
        assert (await tier.stats()).entries == held + 1
