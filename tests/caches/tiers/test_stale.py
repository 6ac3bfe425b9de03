"""Answers past their lifetime, kept in memory, on disk and in a real Redis, and what a stack makes of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from caches.flight import Flight
from caches.knobs import KnobSpace
from caches.place import Place
from caches.stack import Served, Stack, StackRules
from caches.tiers.memory import MemoryTier
from caches.tiers.redis_index import RedisIndexTier
from caches.tiers.selection import Selection
from caches.tiers.stale import StaleTier
from caches.tiers.tier import Answer, Tier
from tests.caches.tiers import test_disk, test_memory, test_redis_index
from tests.contracts.stale_contract import GRACE, LIFETIME, SPACE, StaleContract
from tests.contracts.tier_model import PARTITIONS, START, Subject, answer_of, key_of
from tests.servers import patient


class TestInMemory(StaleContract):
    subject = Subject(test_memory.empty, test_memory.entry_bytes, most_removed=3)


class TestOnDisk(StaleContract):
    subject = Subject(test_disk.empty, test_disk.entry_bytes, most_removed=3)


class TestInRedis(StaleContract):
    @pytest.fixture(autouse=True)
    def _on_a_server(self, redis_server: str) -> None:
        @asynccontextmanager
        async def empty(space: KnobSpace) -> AsyncIterator[Tier]:
            connection = patient(redis_server)
            tier = RedisIndexTier(connection, space, options=test_redis_index.options())
            yield tier
            await connection.flushdb()
            await tier.close()

        type(self).subject = Subject(empty, test_redis_index.entry_bytes, most_removed=3)


class Times:
    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> float:
        return self.now


def stack_at(times: Times) -> Stack:
    live = MemoryTier(SPACE)
    kept = StaleTier(MemoryTier(SPACE, "stale"), GRACE)
    return Stack([Place(live), Place(kept, level=3)], StackRules(0.0, 0.0), clock=times)


async def shortened(stack: Stack, times: Times) -> None:
    """The live tier's lifetime; what is retained stays."""
    tier = stack.places[0].tier
    await tier.apply(SPACE.settings(SPACE.positions(await tier.settings())), times())
    settings = await tier.settings()
    await tier.apply(type(settings)(settings.cache_size, LIFETIME, 0.0), times())
    await stack.places[0].tend_ttl()


async def test_a_stack_serves_it_only_when_asked_for_it() -> None:
    times = Times()
    stack = stack_at(times)
    await shortened(stack, times)
    await stack.store(key_of(1), answer_of(1, 10, START))
    times.now += LIFETIME
    assert await stack.lookup(key_of(1)) is None
    assert await stack.stale(key_of(1)) == Served(answer_of(1, 10, START), "stale", LIFETIME)
    assert await stack.stale(key_of(2)) is None
    times.now += GRACE
    assert await stack.stale(key_of(1)) is None


async def test_a_miss_asks_the_backend_though_it_is_there() -> None:
    times = Times()
    stack = stack_at(times)
    await shortened(stack, times)
    await stack.store(key_of(1), answer_of(1, 10, START))
    times.now += LIFETIME

    async def call(_flight: Flight[Served]) -> Answer:
        return answer_of(2, 10, times())

    served = await stack.fetch(key_of(1), call)
    assert (served.tier, served.answer) == (None, answer_of(2, 10, times()))
    times.now += LIFETIME
    found = await stack.stale(key_of(1))
    assert found is not None
    assert found.answer == served.answer  # the newer one


async def test_neither_an_invalidation_nor_a_flush_leaves_it() -> None:
    for flush in (False, True):
        times = Times()
        stack = stack_at(times)
        await stack.store(key_of(1), answer_of(1, 10, START))
        times.now += 1.0
        if flush:
            stack.flush(Selection(PARTITIONS[0]))
        else:
            assert await stack.clear(Selection(PARTITIONS[0])) == {"memory": 1, "stale": 1}
        assert await stack.stale(key_of(1)) is None


async def test_a_stack_without_it_has_none() -> None:
    stack = Stack([Place(MemoryTier(SPACE))])
    await stack.store(key_of(1), answer_of(1, 10, START))
    assert await stack.stale(key_of(1)) is None
