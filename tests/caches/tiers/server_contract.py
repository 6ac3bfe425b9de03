"""The contract of all tiers as far as it can hold where a server's own memory limit is the capacity.

Lifetimes, partitions, limits, shared settings and counters hold as everywhere. Eight tests are looser here, and the one
of exact order is left out. The server knows the order of touches to the second and samples entries, so what was touched
lately stays, but not exactly in order. Its sizes are memory with everything beside the bodies, so limits are checked
against its own figure. And it removes what is too old under a shortened lifetime when it is asked for, not in
housekeeping.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace

from hypothesis import given

from caches.knobs import KnobSettings, KnobSpace
from caches.tiers.redis_server import RedisServerOptions, RedisServerTier
from caches.tiers.selection import Selection
from caches.tiers.tier import Tier
from tests.contracts.tier_contract import (
    ENDLESS,
    PARTITIONS,
    QUICKLY,
    ROOM,
    SPACE,
    START,
    STEPS,
    Model,
    Subject,
    TierContract,
    answer_of,
    key_of,
    with_tier,
)
from tests.contracts.tier_model import Walk
from tests.servers import patient

MEBIBYTE = float(1 << 20)
OPTIONS = RedisServerOptions(spare_bytes=1 << 18)
BODY = 2_000
ANSWERING = 4_096  # a server may count what it holds just for the call that asks it
TOUCH_SECONDS = 1.1  # the server's clock of touches ticks every second


def roomy(space: KnobSpace, low: float = 2.5 * MEBIBYTE) -> KnobSpace:
    """With a floor that an empty server fits under."""
    return replace(space, cache_size=replace(space.cache_size, low=low))


def on_server(url: str) -> Callable[[KnobSpace], AbstractAsyncContextManager[Tier]]:
    @asynccontextmanager
    async def empty(space: KnobSpace) -> AsyncIterator[Tier]:
        connection = patient(url)
        await connection.flushall()
        tier = RedisServerTier(connection, roomy(space), options=OPTIONS)
        await tier.begin()
        try:
            yield tier
        finally:
            await connection.flushall()
            await connection.config_set("maxmemory", 0)
            await tier.close()

    return empty


class ServerContract(TierContract):
    test_without_ageing_hits_follow_from_the_last_touch = None

    @QUICKLY
    @given(steps=STEPS)
    def test_with_room_for_all_hits_follow_from_lifetimes(self, steps: list[tuple[object, ...]]) -> None:
        asyncio.run(run(self.subject, steps))

    def test_the_least_recently_touched_goes_and_a_lookup_touches(self) -> None:
        async def scenario(tier: Tier) -> None:
            await tier.apply(KnobSettings(3 * MEBIBYTE, ENDLESS, 0.0), START)
            asked = range(0, 400, 4)
            for number in range(400):
                await tier.store(key_of(number), answer_of(number, BODY, START), START)
            await asyncio.sleep(TOUCH_SECONDS)
            await tier.batch_lookup([key_of(number) for number in asked], START)
            await asyncio.sleep(TOUCH_SECONDS)
            number = 400
            while (await tier.stats()).evictions < 250:
                await tier.store(key_of(number), answer_of(number, BODY, START), START)
                number += 1
            held = await tier.batch_lookup([key_of(number) for number in range(400)], START)
            stayed = [one is not None for one in held]
            assert sum(stayed[number] for number in asked) >= 0.75 * len(asked)  # it samples
            assert sum(stayed) - sum(stayed[number] for number in asked) <= 0.5 * 300

        with_tier(self.subject, scenario)

    def test_what_is_held_can_be_asked_without_touching_or_counting(self) -> None:
        async def scenario(tier: Tier) -> None:
            await tier.store(key_of(1), answer_of(1, 100, START), START)
            before = await tier.stats()
            assert [await tier.holds(key_of(number), START + 1) for number in (1, 2)] == [True, False]
            assert not await tier.holds(key_of(1, 1), START + 1)
            after = await tier.stats()
            assert (after.hits, after.misses) == (before.hits, before.misses) == (0, 0)

        with_tier(self.subject, scenario)

    def test_a_count_touches_nothing(self) -> None:
        """Where the server can be told so."""

        async def scenario(tier: Tier) -> None:
            assert isinstance(tier, RedisServerTier)
            server = tier._redis
            await tier.store(key_of(1, tags=("red",)), answer_of(1, 100, START), START)
            before = await tier.stats()
            await asyncio.sleep(2 * TOUCH_SECONDS)
            assert await tier.count(Selection(PARTITIONS[0], tag="red")) == 1
            assert await tier.clear(Selection(PARTITIONS[0], tag="blue")) == 0
            idle = await server.object("IDLETIME", b"setpoint:entry:" + key_of(1).id)
            about = await server.info("server")
            told = "valkey_version" in about or about["redis_version"] >= "7.2"
            assert (idle >= 2) == told
            after = await tier.stats()
            assert replace(after, used_bytes=before.used_bytes) == before
            flags = [one["flags"] for one in await server.client_list()]
            assert not any("T" in flag for flag in flags)  # no connection is left that does not touch

        with_tier(self.subject, scenario)

    def test_size_binds_though_every_entry_has_a_lifetime(self) -> None:
        async def scenario(tier: Tier) -> None:
            taken = await tier.apply(KnobSettings(3 * MEBIBYTE, ENDLESS, 0.0), START)
            for number in range(2_000):
                await tier.store(key_of(number), answer_of(number, BODY, START, 1_000.0), START)
                if number % 20 == 0:
                    assert (await tier.stats()).used_bytes <= (await tier.settings()).cache_size + ANSWERING
            found = await tier.stats()
            assert await tier.settings() == taken
            assert 2_000 <= found.entries + found.evictions + found.refusals <= 2_050, found  # some are the settings
            assert 300 < found.entries < 3 * MEBIBYTE / BODY

        with_tier(self.subject, scenario)

    def test_a_smaller_capacity_is_reached_in_steps(self) -> None:
        async def scenario(tier: Tier) -> None:
            for number in range(3_000):
                await tier.store(key_of(number), answer_of(number, BODY, START), START)
            taken = await tier.apply(KnobSettings(3 * MEBIBYTE, ENDLESS, 0.0), START)
            assert taken.cache_size == 3 * MEBIBYTE
            counted, bound = [(await tier.stats()).entries], [(await tier.settings()).cache_size]
            assert counted[0] >= 2_900
            while await tier.tend(START):
                counted.append((await tier.stats()).entries)
                bound.append((await tier.settings()).cache_size)
            assert len(counted) > 10
            assert sorted(bound, reverse=True) == bound
            share = OPTIONS.share_removed
            assert all(before - after <= share * before + 50 for before, after in itertools.pairwise(counted))
            assert await tier.settings() == taken
            assert (await tier.stats()).used_bytes <= taken.cache_size + ANSWERING

        with_tier(self.subject, scenario)

    def test_housekeeping_removes_what_is_too_old(self) -> None:
        """Here: when it is asked for."""

        async def scenario(tier: Tier) -> None:
            for number in range(8):
                await tier.store(key_of(number), answer_of(number, 10, START), START)
            await tier.apply(KnobSettings(ROOM, 5.0, 0.0), START + 1)
            assert not await tier.tend(START + 6)
            assert await tier.batch_lookup([key_of(number) for number in range(8)], START + 6) == [None] * 8
            found = await tier.stats()
            assert (found.entries, found.expirations) == (0, 8)

        with_tier(self.subject, scenario)

    def test_everything_is_counted(self) -> None:
        async def scenario(tier: Tier) -> None:
            empty = await tier.stats()
            await tier.store(key_of(1), answer_of(1, 10, START), START)
            await tier.warm(key_of(2), answer_of(2, 1 << 18, START), START)
            await tier.batch_lookup([key_of(1), key_of(2), key_of(3)], START)
            await tier.lookup(key_of(1), START)
            await tier.delete(key_of(1))
            await tier.delete(key_of(1))
            found = await tier.stats()
            assert (found.hits, found.misses, found.warmups, found.deletes, found.entries) == (3, 1, 1, 2, 1)
            assert 1 << 18 < found.used_bytes - empty.used_bytes < 1 << 20
            assert (found.evictions, found.expirations, found.refusals) == (0, 0, 0)
            assert not await tier.store(key_of(2), answer_of(2, int(ROOM), START), START)
            found = await tier.stats()
            assert (found.entries, found.refusals) == (0, 1)

        with_tier(self.subject, scenario)


async def run(subject: Subject, steps: list[tuple[object, ...]]) -> None:
    """As in the contract, with entries in place of bytes."""
    async with subject.make(SPACE) as tier:
        walk = Walk(tier, Model(ROOM, ENDLESS, subject.entry_bytes), subject)
        for step in steps:
            walk.model.age(walk.now)
            await getattr(walk, str(step[0]))(*step[1:])
            found = await tier.stats()
            assert len(walk.model.held) - len(walk.model.doubtful) <= found.entries <= len(walk.model.held)
            assert found.hits + found.misses == walk.lookups
