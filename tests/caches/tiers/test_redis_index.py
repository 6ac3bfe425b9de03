"""The tier in Redis with an index of its own, by the contract of all tiers, on a real server."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from caches.errors import InputError
from caches.keys.request_key import RequestKey
from caches.knobs import KnobSettings, KnobSpace
from caches.tiers.redis_connection import connect
from caches.tiers.redis_index import RedisIndexOptions, RedisIndexTier
from caches.tiers.selection import Selection, label_bytes
from caches.tiers.tier import Answer, Tier, TierError
from tests.contracts.tier_contract import SPACE, START, Subject, TierContract, answer_of, key_of
from tests.servers import patient

OVERHEAD = 100


def entry_bytes(key: RequestKey, answer: Answer) -> int:
    return len(answer.body) + label_bytes(key) + OVERHEAD


def options(shards: int = 1) -> RedisIndexOptions:
    return RedisIndexOptions(f"test-{uuid.uuid4().hex}", shards, OVERHEAD, most_removed=3)


class TestRedisIndexTier(TierContract):
    @pytest.fixture(autouse=True)
    def _on_a_server(self, redis_server: str) -> None:
        @asynccontextmanager
        async def empty(space: KnobSpace) -> AsyncIterator[Tier]:
            connection = patient(redis_server)
            tier = RedisIndexTier(connection, space, options=options())
            yield tier
            await connection.flushdb()
            await tier.close()

        type(self).subject = Subject(empty, entry_bytes, most_removed=3)


async def test_two_processes_share_entries_and_settings(redis_server: str) -> None:
    same = options()
    one, other = (RedisIndexTier(patient(redis_server), SPACE, options=same) for _ in range(2))
    await one.store(key_of(1), answer_of(1, 10, START), START)
    assert await other.lookup(key_of(1), START) is not None
    await other.apply(KnobSettings(5_000.0, 30.0, 0.25), START)
    assert await one.settings() == KnobSettings(5_000.0, 30.0, 0.25)
    assert await one.lookup(key_of(1), START + 30) is None
    late = RedisIndexTier(patient(redis_server), SPACE, options=same)  # does not set its defaults over theirs
    assert await late.settings() == KnobSettings(5_000.0, 30.0, 0.25)
    for tier in (one, other, late):
        await tier.close()


async def test_shards_share_the_capacity_out(redis_server: str) -> None:
    tier = RedisIndexTier(patient(redis_server), SPACE, options=options(shards=4))
    taken = await tier.apply(KnobSettings(8_203.0, 1_000.0, 0.0), START)
    assert taken.cache_size == 8_200.0
    for number in range(200):
        await tier.store(key_of(number), answer_of(number, 87, START), START)  # 200 bytes each
    found = await tier.stats()
    assert found.entries == 40
    assert found.used_bytes == 8_000
    assert found.evictions == 160
    hits = await tier.batch_lookup([key_of(number) for number in range(200)], START)
    assert sum(one is not None for one in hits) == 40
    await tier.close()


async def test_a_server_that_forgets_scripts_or_everything_is_gone_on_with(redis_server: str) -> None:
    connection = patient(redis_server)
    tier = RedisIndexTier(connection, SPACE, options=options())
    await tier.store(key_of(1), answer_of(1, 10, START), START)
    await connection.script_flush()
    assert await tier.lookup(key_of(1), START) is not None
    await tier.apply(KnobSettings(5_000.0, 30.0, 0.25), START)
    await connection.flushdb()
    assert await tier.lookup(key_of(1), START) is None
    assert await tier.settings() == KnobSettings(5_000.0, 30.0, 0.25)
    await tier.close()


async def test_a_server_that_is_not_there_is_a_tier_error() -> None:
    tier = RedisIndexTier(connect("redis://127.0.0.1:1/0"), SPACE)
    with pytest.raises(TierError, match="tier redis: ConnectionError"):
        await tier.lookup(key_of(1), START)
    await tier.close()


async def test_what_others_wrote_under_our_names_is_a_tier_error(redis_server: str) -> None:
    connection, mine = patient(redis_server), options()
    tier = RedisIndexTier(connection, SPACE, options=mine)
    await tier.store(key_of(1), answer_of(1, 10, START), START)
    await connection.hset(f"{mine.prefix}:{{{mine.prefix}:0}}:body", key_of(1).id, b"nonsense")
    with pytest.raises(TierError, match="got an entry that begins with b'nonsense'"):
        await tier.lookup(key_of(1), START)
    await tier.close()


@pytest.mark.parametrize("form", [b"[1.0e6,null,10,2,0.5]", b"[3]", b'[3,"m",[],1.0e6,{"new":1}]'])
async def test_an_entry_of_another_form_is_a_miss_and_any_invalidation_takes_it(redis_server: str, form: bytes) -> None:
    connection, mine = patient(redis_server), options()
    tier = RedisIndexTier(connection, SPACE, options=mine)
    for number in (1, 2, 3):
        await tier.store(key_of(number), answer_of(number, 10, START), START)
    for number in (1, 2):
        await connection.hset(f"{mine.prefix}:{{{mine.prefix}:0}}:body", key_of(number).id, form + b"\nbody")
    assert await tier.lookup(key_of(1), START) is None
    found = await tier.stats()
    assert (found.hits, found.misses, found.entries) == (0, 1, 2)
    other = Selection(key_of(1).partition, "some model", "some tag")
    assert (await tier.count(other), await tier.clear(other), await tier.count(other)) == (1, 1, 0)
    assert await tier.lookup(key_of(3), START) is not None
    await tier.close()


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://localhost", "got 'http://localhost', expected redis://"),
        ("redis+cluster://:secret@somewhere", r"got 'somewhere' in 'redis\+cluster://somewhere', expected host:port"),
        ("redis+sentinel://h:26379", "expected the master's name"),
        ("redis+sentinel://:secret@h:26379/mymaster/first", "got 'redis.sentinel://h:26379/mymaster/first', expected"),
    ],
)
def test_a_url_of_another_form_is_refused_without_its_password(url: str, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        connect(url)
    assert "secret" not in str(caught.value)


async def test_an_entry_counts_for_what_a_server_takes_for_it(own_redis_server: str) -> None:
    connection, entries, body = patient(own_redis_server), 8_000, 500
    await connection.flushall()
    await connection.config_set("maxmemory", 0)  # others may have set a limit there
    tier = RedisIndexTier(connection, SPACE)
    await tier.store(key_of(0), answer_of(0, body, START), START)
    before = (await connection.info("memory"))["used_memory"]
    for number in range(1, entries + 1):
        await tier.store(key_of(number), answer_of(number, body, START, 3600.0 if number % 2 else None), START)
    taken = ((await connection.info("memory"))["used_memory"] - before) / entries
    labels = 7  # of the model's name
    counted = body + 6 + labels + RedisIndexOptions().entry_overhead_bytes  # answers begin with six digits
    assert 0.85 * counted < taken < 1.05 * counted
    await connection.flushall()
    await tier.close()
