"""The tier in a Redis server of its own, by its contract and in what only it does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import redis

from caches.errors import InputError
from caches.keys.request_key import Partition
from caches.knobs import KnobSettings
from caches.tiers.redis_connection import connect
from caches.tiers.redis_server import RedisServerTier
from caches.tiers.selection import Selection
from caches.tiers.tier import Answer, TierError
from tests.caches.tiers.server_contract import MEBIBYTE, OPTIONS, ServerContract, on_server, roomy
from tests.contracts.tier_contract import ROOM, SPACE, START, Subject, answer_of, key_of
from tests.servers import free_port, patient, redis_running

ROOMY = roomy(SPACE)


class TestRedisServerTier(ServerContract):
    @pytest.fixture(autouse=True)
    def _on_a_server(self, own_redis_server: str) -> None:
        type(self).subject = Subject(on_server(own_redis_server), lambda key, answer: len(answer.body), most_removed=0)


@pytest.fixture
def plain(own_redis_server: str) -> Iterator[redis.Redis]:
    """A client for looking behind the tier; the server is empty and unlimited before and after."""
    with redis.Redis.from_url(own_redis_server) as client:
        client.flushall()
        yield client
        client.flushall()
        client.config_set("maxmemory", 0)
        client.config_set("maxmemory-policy", "noeviction")


@asynccontextmanager
async def tier_on(url: str) -> AsyncIterator[RedisServerTier]:
    tier = RedisServerTier(patient(url), ROOMY, options=OPTIONS)
    try:
        yield tier
    finally:
        await tier.close()


async def test_the_server_goes_by_frequency_where_that_is_asked_for(plain: redis.Redis, own_redis_server: str) -> None:
    tier = RedisServerTier(patient(own_redis_server), ROOMY, options=replace(OPTIONS, policy="lfu"))
    try:
        await tier.apply(KnobSettings(5 * MEBIBYTE, 60.0, 0.5), START)
        assert plain.config_get("maxmemory-policy") == {"maxmemory-policy": "allkeys-lfu"}
    finally:
        await tier.close()


async def test_the_server_is_set_up_and_read_back(plain: redis.Redis, own_redis_server: str) -> None:
    async with tier_on(own_redis_server) as tier:
        await tier.apply(KnobSettings(5 * MEBIBYTE, 60.0, 0.5), START)
        found = plain.config_get("maxmemory*")
        assert (found["maxmemory"], found["maxmemory-policy"]) == (str(5 << 20), "allkeys-lru")
        plain.config_set("maxmemory", 4 << 20)  # by hand: what binds is what the server says
        assert await tier.settings() == KnobSettings(4 * MEBIBYTE, 60.0, 0.5)
        assert not await tier.tend(START)
        assert await tier.settings() == KnobSettings(5 * MEBIBYTE, 60.0, 0.5)


async def test_processes_share_entries_and_settings_at_once(plain: redis.Redis, own_redis_server: str) -> None:
    async with tier_on(own_redis_server) as one, tier_on(own_redis_server) as other:
        await one.store(key_of(1), answer_of(1, 10, START), START)
        assert await other.lookup(key_of(1), START) is not None
        await other.apply(KnobSettings(5 * MEBIBYTE, 30.0, 0.25), START)
        assert await one.lookup(key_of(1), START + 30) is None
        assert await one.settings() == KnobSettings(5 * MEBIBYTE, 30.0, 0.25)
        async with tier_on(own_redis_server) as late:  # does not set its defaults over theirs
            assert await late.settings() == KnobSettings(5 * MEBIBYTE, 30.0, 0.25)


async def test_other_limits_than_those_of_the_settings_found_hold(plain: redis.Redis, own_redis_server: str) -> None:
    async with tier_on(own_redis_server) as tier:
        await tier.apply(KnobSettings(9 * MEBIBYTE, 60.0, 0.5), START)
    space = replace(ROOMY, cache_size=replace(ROOMY.cache_size, high=6 * MEBIBYTE, default=5 * MEBIBYTE))
    other = RedisServerTier(patient(own_redis_server), space, options=OPTIONS)
    assert await other.settings() == KnobSettings(6 * MEBIBYTE, 60.0, 0.5)
    await other.close()


async def test_settings_that_were_lost_are_set_again(plain: redis.Redis, own_redis_server: str) -> None:
    async with tier_on(own_redis_server) as tier:
        taken = await tier.apply(KnobSettings(5 * MEBIBYTE, 30.0, 0.25), START)
        plain.flushall()
        assert await tier.lookup(key_of(1), START) is None
        assert plain.dbsize() == 1
        plain.flushall()
        await tier.tend(START)
        assert (await tier.stats()).entries == 0
        assert await tier.settings() == taken


async def test_a_process_that_is_behind_cannot_undo_what_another_applied(
    plain: redis.Redis, own_redis_server: str
) -> None:
    async with tier_on(own_redis_server) as ahead, tier_on(own_redis_server) as behind:
        await behind.apply(KnobSettings(5 * MEBIBYTE, 30.0, 0.25), START)
        taken = await ahead.apply(KnobSettings(6 * MEBIBYTE, 60.0, 0.5), START + 1)
        plain.delete("setpoint:settings")
        assert (await behind.settings()).ttl_seconds == 30.0
        await ahead.tend(START + 2)
        assert await behind.settings() == await ahead.settings() == taken


async def test_a_server_that_was_restarted_is_set_up_again(plain: redis.Redis, own_redis_server: str) -> None:
    async with tier_on(own_redis_server) as tier:
        taken = await tier.apply(KnobSettings(5 * MEBIBYTE, 30.0, 0.25), START)
        for call in (tier.settings, lambda: tier.tend(START)):
            plain.flushall()
            plain.config_set("maxmemory", 0)
            plain.config_set("maxmemory-policy", "noeviction")
            await call()
            found = plain.config_get("maxmemory*")
            assert (found["maxmemory"], found["maxmemory-policy"]) == (str(5 << 20), "allkeys-lru")
        plain.config_resetstat()
        assert await tier.settings() == taken
        assert (await tier.stats()).evictions == 0


async def test_the_server_frees_what_no_lifetime_could_bring_back(plain: redis.Redis, own_redis_server: str) -> None:
    async with tier_on(own_redis_server) as tier:
        await tier.apply(KnobSettings(ROOM, 10.0, 0.0), START)
        await tier.store(key_of(1), answer_of(1, 10, START - 5), START)
        await tier.store(key_of(2), answer_of(2, 10, START, 0.05), START)
        await tier.store(key_of(3), answer_of(3, 10, START, 1e9), START)
        ceiling = ROOMY.ttl_seconds.high
        left = [plain.ttl(b"setpoint:entry:" + key_of(number).id) for number in (1, 3)]
        assert left == [pytest.approx(ceiling - 5, abs=1), pytest.approx(ceiling, abs=1)]
        await asyncio.sleep(0.3)
        assert plain.exists(b"setpoint:entry:" + key_of(2).id) == 0
        found = await tier.stats()
        assert (found.entries, found.expirations) == (2, 1)


async def test_an_entry_that_was_written_anew_while_it_was_judged_stays(
    plain: redis.Redis, own_redis_server: str
) -> None:
    async with tier_on(own_redis_server) as tier:
        await tier.apply(KnobSettings(ROOM, 10.0, 0.0), START)
        await tier.store(key_of(1), answer_of(1, 10, START), START)
        name = b"setpoint:entry:" + key_of(1).id
        old = plain.get(name)
        await tier.store(key_of(1), answer_of(1, 10, START + 20), START + 20)
        assert await tier._judge(name, old, START + 20) is None
        assert await tier.lookup(key_of(1), START + 20) is not None


async def test_names_with_the_signs_of_patterns_clear_only_their_own(plain: redis.Redis, own_redis_server: str) -> None:
    names = ["*", "a", "[ab]", "a?", "a\\", "^a", "[a-c]", ""]
    async with tier_on(own_redis_server) as tier:
        for name in names:
            key = replace(key_of(1), partition=Partition(name, name))
            await tier.store(key, answer_of(1, 10, START), START)
        for left, name in zip(range(len(names), 0, -1), names, strict=True):
            assert (await tier.stats()).entries == left
            assert await tier.clear(Selection(Partition(name, name))) == 1


async def test_an_entry_of_another_form_is_a_miss_and_any_invalidation_takes_it(
    plain: redis.Redis, own_redis_server: str
) -> None:
    async with tier_on(own_redis_server) as tier:
        await tier.store(key_of(2), answer_of(2, 10, START), START)
        plain.set(b"setpoint:entry:" + key_of(1).id, b"[1.0e6,null,10,2,0.5]\nbody")
        assert await tier.lookup(key_of(1), START) is None
        other = Selection(key_of(1).partition, "some model", "some tag")
        assert (await tier.count(other), await tier.clear(other), await tier.count(other)) == (1, 1, 0)
        assert await tier.lookup(key_of(2), START) is not None


async def test_an_invalidation_that_broke_off_is_told_and_can_be_repeated(
    plain: redis.Redis, own_redis_server: str
) -> None:
    async with tier_on(own_redis_server) as tier:
        for number in range(3):
            await tier.store(key_of(number, tags=("red",)), answer_of(number, 10, START), START)
        red = Selection(key_of(1).partition, tag="red")
        plain.rpush(b"setpoint:entry:" + key_of(4).id, b"a list")  # under a name of ours, and no entry
        with pytest.raises(TierError, match="tier redis: ResponseError"):
            await tier.clear(red)
        plain.delete(b"setpoint:entry:" + key_of(4).id)
        left = await tier.count(red)
        assert await tier.clear(red) == left
        assert (await tier.stats()).entries == 0


async def test_a_body_that_nearly_fills_the_server_is_refused_and_nothing_else_goes(
    plain: redis.Redis, own_redis_server: str
) -> None:
    async with tier_on(own_redis_server) as tier:
        await tier.apply(KnobSettings(4 * MEBIBYTE, 60.0, 0.0), START)
        await tier.store(key_of(1), answer_of(1, 10, START), START)
        assert not await tier.store(key_of(2), Answer(b"." * (3 << 20), START), START)
        assert await tier.lookup(key_of(1), START) is not None


async def test_a_server_without_memory_for_any_entry_refuses(plain: redis.Redis, own_redis_server: str) -> None:
    async with tier_on(own_redis_server) as tier:
        await tier.store(key_of(1), answer_of(1, 10, START), START)
        plain.config_set("maxmemory", 500_000)  # less than it takes when empty
        assert not await tier.store(key_of(1), answer_of(1, 10, START), START)
        assert plain.dbsize() == 0
        plain.config_set("maxmemory", 0)
        assert (await tier.stats()).refusals == 1


async def test_a_floor_below_what_the_empty_server_takes_is_refused(plain: redis.Redis, own_redis_server: str) -> None:
    tier = RedisServerTier(patient(own_redis_server), roomy(SPACE, 500_000.0), options=OPTIONS)
    with pytest.raises(InputError, match=r"cache_size\.low: got 500000 bytes, expected at least \d+: the empty"):
        await tier.begin()
    assert plain.config_get("maxmemory") == {"maxmemory": "0"}
    await tier.close()


ANYBODY = ("--user", "default", "on", "nopass", "~*", "&*", "+@all")
REFUSALS = {
    "renamed": ("--rename-command", "CONFIG", ""),
    "forbidden": (*ANYBODY, "-config"),
    "only read": (*ANYBODY, "-config|set", "--maxmemory-policy", "allkeys-lru", "--maxmemory-samples", "10"),
}


@pytest.mark.parametrize("refusal", REFUSALS)
async def test_a_server_that_refuses_config_names_the_index_mode(tmp_path: Path, refusal: str) -> None:
    with redis_running(tmp_path / "managed", *REFUSALS[refusal]) as port:
        tier = RedisServerTier(connect(f"redis://127.0.0.1:{port}/0"), ROOMY, options=OPTIONS)
        with pytest.raises(InputError, match=r"the server refuses CONFIG \(.*\), expected .* use the index mode"):
            await tier.lookup(key_of(1), START)
        await tier.close()


async def test_what_cannot_be_used_says_so(plain: redis.Redis, own_redis_server: str) -> None:
    async with tier_on(f"redis://127.0.0.1:{free_port()}/0") as tier:
        with pytest.raises(TierError, match="tier redis: ConnectionError"):
            await tier.lookup(key_of(1), START)
    with pytest.raises(InputError, match="got a cluster, expected one server or Sentinel; the index mode takes both"):
        RedisServerTier(connect("redis+cluster://127.0.0.1:1"), ROOMY)
    async with tier_on(own_redis_server) as tier:
        plain.set("setpoint:settings", "nonsense")
        with pytest.raises(TierError, match="got settings b'nonsense', expected ours"):
            await tier.lookup(key_of(1), START)
