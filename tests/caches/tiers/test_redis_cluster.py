"""The index mode on a cluster, of one node and of three, by the contract of all tiers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
from redis.asyncio import RedisCluster

from caches.knobs import KnobSettings, KnobSpace
from caches.tiers.lease import Claim
from caches.tiers.redis_connection import connect
from caches.tiers.redis_index import RedisIndexTier
from caches.tiers.redis_lease import RedisLease
from caches.tiers.selection import Selection
from caches.tiers.tier import Tier, TierError
from tests.caches.tiers.test_redis_index import entry_bytes, options
from tests.contracts.tier_contract import PARTITIONS, SPACE, START, Subject, TierContract, answer_of, key_of
from tests.servers import cluster_running, free_port, patient


def on_cluster(url: str, shards: int) -> Callable[[KnobSpace], AbstractAsyncContextManager[Tier]]:
    @asynccontextmanager
    async def empty(space: KnobSpace) -> AsyncIterator[Tier]:
        connection = patient(url)
        tier = RedisIndexTier(connection, space, options=options(shards))
        try:
            yield tier
        finally:
            await connection.flushall()
            await tier.close()

    return empty


class TestOneNode(TierContract):
    @pytest.fixture(autouse=True)
    def _on_a_server(self, redis_cluster: str) -> None:
        type(self).subject = Subject(on_cluster(redis_cluster, 1), entry_bytes, most_removed=3)

    @pytest.mark.slow  # the same scripts as on a server, one journey after the other
    def test_without_ageing_hits_follow_from_the_last_touch(self) -> None:
        super().test_without_ageing_hits_follow_from_the_last_touch()


class TwoShards(TierContract):
    """Without what needs one order of touches, or a capacity that is not in two halves."""

    test_without_ageing_hits_follow_from_the_last_touch = None
    test_the_least_recently_touched_goes_and_a_lookup_touches = None
    test_size_binds_though_every_entry_has_a_lifetime = None
    test_a_smaller_capacity_is_reached_in_steps = None


@pytest.mark.slow
class TestTwoShards(TwoShards):
    @pytest.fixture(autouse=True)
    def _on_a_server(self, redis_cluster: str) -> None:
        type(self).subject = Subject(on_cluster(redis_cluster, 2), entry_bytes, most_removed=3)


class TestThreeNodes(TwoShards):
    test_with_room_for_all_hits_follow_from_lifetimes = None  # at length on one node, by the same scripts

    @pytest.fixture(autouse=True)
    def _on_a_server(self, redis_cluster_of_three: str) -> None:
        type(self).subject = Subject(on_cluster(redis_cluster_of_three, 2), entry_bytes, most_removed=3)


async def test_shards_lie_on_all_nodes_and_share_the_capacity_out(redis_cluster_of_three: str) -> None:
    connection = patient(redis_cluster_of_three)
    assert isinstance(connection, RedisCluster)
    await connection.flushall()
    tier = RedisIndexTier(connection, SPACE, options=options(shards=16))
    await tier.apply(KnobSettings(16_000.0, 1_000.0, 0.5), START)
    for number in range(200):
        await tier.store(key_of(number, number % 3), answer_of(number, 87, START), START)  # 200 bytes each
    sizes = [await connection.dbsize(target_nodes=node) for node in connection.get_primaries()]
    assert len(sizes) == 3
    assert all(sizes)
    found = await tier.stats()
    assert found.entries + found.evictions == 200
    assert found.used_bytes == 200 * found.entries <= 16_000
    assert await tier.settings() == KnobSettings(16_000.0, 1_000.0, 0.5)
    hits = await tier.batch_lookup([key_of(number, number % 3) for number in range(200)], START)
    held = [number for number, one in enumerate(hits) if one is not None]
    assert len(held) == found.entries
    assert await tier.clear(Selection(PARTITIONS[1])) == sum(number % 3 == 1 for number in held)
    await connection.flushall()
    await tier.close()


async def test_nodes_that_forget_scripts_are_gone_on_with(redis_cluster_of_three: str) -> None:
    connection = patient(redis_cluster_of_three)
    tier = RedisIndexTier(connection, SPACE, options=options(shards=16))
    for number in range(32):
        await tier.store(key_of(number), answer_of(number, 10, START), START)
    assert isinstance(connection, RedisCluster)
    await connection.script_flush()
    found = await tier.batch_lookup([key_of(number) for number in range(32)], START)
    assert all(one is not None for one in found)
    await connection.flushall()
    await tier.close()


async def test_a_lease_is_held_on_a_cluster(redis_cluster_of_three: str) -> None:
    one, other = (RedisLease(patient(redis_cluster_of_three), f"test-{START}") for _ in range(2))
    for number in range(8):
        name = key_of(number).id
        assert await one.take(name) is Claim.MINE
        assert await other.take(name) is Claim.HELD
        assert await one.renew(name)
        await one.give(name, done=True)
        assert await other.take(name) is Claim.DONE
    for lease in (one, other):
        await lease._redis.flushall()
        await lease._redis.aclose()


async def test_a_cluster_that_is_not_there_is_a_tier_error() -> None:
    tier = RedisIndexTier(connect(f"redis+cluster://127.0.0.1:{free_port()}"), SPACE)
    with pytest.raises(TierError, match="tier redis: "):
        await tier.lookup(key_of(1), START)
    await tier.close()


async def test_more_calls_than_connections_wait_for_each_other(redis_cluster: str) -> None:
    tier = RedisIndexTier(patient(redis_cluster), SPACE, options=options())
    await tier.store(key_of(1), answer_of(1, 10, START), START)
    found = await asyncio.gather(*(tier.lookup(key_of(1), START) for _ in range(1_000)))
    assert all(one is not None for one in found)
    await tier.close()


async def test_first_calls_at_the_same_time_all_succeed(redis_cluster_of_three: str) -> None:
    for _ in range(10):
        tier = RedisIndexTier(patient(redis_cluster_of_three), SPACE, options=options(shards=16))
        found = await asyncio.gather(*(tier.lookup(key_of(number), START) for number in range(50)))
        assert found == [None] * 50
        await tier.close()


async def test_a_node_that_is_gone_costs_no_more_than_its_time(tmp_path: Path) -> None:
    with cluster_running(tmp_path, 1) as url:
        tier = RedisIndexTier(connect(url), SPACE, options=options())
        await tier.store(key_of(1), answer_of(1, 10, START), START)
    began = time.monotonic()
    with pytest.raises(TierError, match="tier redis: "):
        await tier.lookup(key_of(1), START)
    assert time.monotonic() - began < 1.5
    await tier.close()
