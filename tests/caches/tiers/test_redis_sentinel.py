"""Both Redis tiers on the master that a sentinel names, before and after another one takes over."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from caches.knobs import KnobSettings
from caches.tiers.redis_connection import CONNECTIONS, Connection, connect
from caches.tiers.redis_index import RedisIndexTier
from caches.tiers.redis_server import RedisServerTier
from caches.tiers.tier import Tier, TierError
from tests.caches.tiers.server_contract import MEBIBYTE, OPTIONS, roomy
from tests.caches.tiers.test_redis_index import options
from tests.contracts.tier_contract import SPACE, START, answer_of, key_of
from tests.servers import Sentinels, free_port, patient, tells, wait_until

MAKERS: dict[str, Callable[[Connection], Tier]] = {
    "index": lambda connection: RedisIndexTier(connection, SPACE, options=options()),
    "server": lambda connection: RedisServerTier(connection, roomy(SPACE), options=OPTIONS),
}
SETTINGS = KnobSettings(5 * MEBIBYTE, 30.0, 0.25)


@pytest.mark.slow  # a quarter of a minute: so long a sentinel takes to demote the old master
async def test_tiers_follow_the_master(redis_sentinel: Sentinels) -> None:
    servers = redis_sentinel
    tiers = [make(patient(servers.url)) for make in MAKERS.values()]
    for tier in tiers:
        assert await tier.apply(SETTINGS, START) == SETTINGS
        await tier.store(key_of(1), answer_of(1, 10, START), START)
    wait_until(lambda: tells(servers.replica, "DBSIZE") == tells(servers.master, "DBSIZE"), "the replica to follow")
    tells(servers.watch, "SENTINEL", "FAILOVER", "mymaster")
    wait_until(lambda: tells(servers.replica, "ROLE")[0] == "master", "the replica to take over")
    wait_until(lambda: tells(servers.master, "ROLE")[0] == "slave", "the old master to step back")
    for tier in tiers:
        assert await when_reached(tier) is not None
        await tier.tend(START)
        assert await tier.settings() == SETTINGS
        assert await tier.store(key_of(2), answer_of(2, 10, START), START)
    assert tells(servers.replica, "CONFIG", "GET", "maxmemory")["maxmemory"] == str(5 << 20)  # set on the new one too
    for tier in tiers:
        await tier.close()


async def when_reached(tier: Tier) -> object:
    """While a sentinel hands over, calls fail within their time."""
    deadline = time.monotonic() + 20.0
    while True:
        try:
            return await tier.lookup(key_of(1), START)
        except TierError:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("mode", MAKERS)
async def test_a_master_that_the_sentinel_does_not_know_is_a_tier_error(redis_sentinel: Sentinels, mode: str) -> None:
    tier = MAKERS[mode](patient(redis_sentinel.url.replace("mymaster", "yours")))
    with pytest.raises(TierError, match="No master found for 'yours'"):
        await tier.lookup(key_of(1), START)
    await tier.close()


async def test_a_sentinel_that_is_not_there_is_a_tier_error() -> None:
    tier = MAKERS["index"](connect(f"redis+sentinel://127.0.0.1:{free_port()}/mymaster"))
    with pytest.raises(TierError, match="tier redis: MasterNotFoundError"):
        await tier.lookup(key_of(1), START)
    await tier.close()


async def test_more_calls_than_connections_wait_for_each_other(redis_sentinel: Sentinels) -> None:
    tier = MAKERS["index"](patient(redis_sentinel.url))
    await tier.store(key_of(1), answer_of(1, 10, START), START)
    found = await asyncio.gather(*(tier.lookup(key_of(1), START) for _ in range(1_000)))
    assert all(one is not None for one in found)
    connected = len(str(tells(redis_sentinel.master, "CLIENT", "LIST", "TYPE", "normal")).split(" laddr=")) - 1
    assert connected <= CONNECTIONS + 10  # the sentinel's own among them
    await tier.close()
