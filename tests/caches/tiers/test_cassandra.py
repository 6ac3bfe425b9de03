"""The tier in Cassandra, by the contract of all tiers on a real server, and what it does as one of several processes.
Where the server comes from: tests/caches/tiers/cassandra_server.py."""

from __future__ import annotations

import asyncio
import socket
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from random import Random

import pytest

from caches.errors import InputError
from caches.keys.request_key import RequestKey
from caches.knobs import KnobSettings, KnobSpace
from caches.tiers.cassandra import CassandraTier
from caches.tiers.cassandra_books import CassandraOptions
from caches.tiers.cassandra_connection import CassandraConnection
from caches.tiers.selection import Selection, label_bytes
from caches.tiers.tier import Answer, Tier, TierError
from tests.caches.tiers.cassandra_server import cassandra_keyspace
from tests.contracts.tier_contract import (
    ENDLESS,
    PARTITIONS,
    ROOM,
    SPACE,
    START,
    Subject,
    TierContract,
    answer_of,
    key_of,
)
from tests.servers import PATIENT_SECONDS

pytestmark = pytest.mark.slow  # each statement is a journey, and the server may have to be started

EXACT = CassandraOptions(slices=1, spare_share=0.0, sweep_seconds=0.0, most_removed=3, entry_overhead_bytes=100)
EACH = 100  # bytes of the answers below
WHOLE = Selection(PARTITIONS[0])


@pytest.fixture(scope="module")
def keyspace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with cassandra_keyspace(tmp_path_factory.mktemp("cassandra")) as url:
        yield url


@pytest.fixture(scope="module")
def connection(keyspace: str) -> Iterator[CassandraConnection]:
    """Of the tiers under test, so that not every one of hundreds has to connect."""
    shared = CassandraConnection(keyspace, PATIENT_SECONDS)
    yield shared
    asyncio.run(shared.close())


def entry_bytes(key: RequestKey, answer: Answer) -> int:
    return len(answer.body) + label_bytes(key) + EXACT.entry_overhead_bytes


def anew(options: CassandraOptions) -> CassandraOptions:
    """Under a name that no rows are under."""
    return replace(options, cache=uuid.uuid4().hex)


class TestCassandraTier(TierContract):
    """One process, one slice and nothing spared: the promise of the seam holds to the byte."""

    options = EXACT

    @pytest.fixture(autouse=True)
    def _on_a_server(self, connection: CassandraConnection) -> None:
        @asynccontextmanager
        async def empty(space: KnobSpace) -> AsyncIterator[Tier]:
            yield CassandraTier(connection, space, options=anew(self.options))

        type(self).subject = Subject(empty, entry_bytes, most_removed=3)


class TestSeveralSlices(TestCassandraTier):
    """Order and capacity hold within a slice, so what is about one order of all entries is left out."""

    options = replace(EXACT, slices=8)

    test_without_ageing_hits_follow_from_the_last_touch = None
    test_the_least_recently_touched_goes_and_a_lookup_touches = None
    test_a_count_touches_nothing = None
    test_what_is_held_can_be_asked_without_touching_or_counting = None
    test_size_binds_though_every_entry_has_a_lifetime = None
    test_a_smaller_capacity_is_reached_in_steps = None


def in_one_cache(
    connection: CassandraConnection, options: CassandraOptions, scenario: Callable[..., Awaitable[None]], processes: int
) -> None:
    """With so many tiers of one cache, as processes have them."""
    named = anew(options)
    asyncio.run(scenario(*(CassandraTier(connection, SPACE, options=named) for _ in range(processes))))  # type: ignore[arg-type]


async def held_bytes(connection: CassandraConnection, tier: CassandraTier) -> int:
    """By the database's own sum."""
    query = "SELECT SUM(size) FROM entry WHERE cache = ? AND slice = ?"
    options = tier._options
    return sum([(await connection.run(query, options.cache, n))[0][0] or 0 for n in range(options.slices)])


def test_processes_together_keep_the_capacity_but_for_what_is_stated(connection: CassandraConnection) -> None:
    """Two of them, 40 entries' room in 2 slices, a fifth of it spare: each stores five between two calls of `tend`."""
    options = replace(EXACT, slices=2, spare_share=0.2, most_removed=100)
    between, random = 5, Random(0)

    async def scenario(*tiers: CassandraTier) -> None:
        each = entry_bytes(key_of(0), answer_of(0, EACH, START))
        await tiers[0].apply(KnobSettings(40.0 * each, ENDLESS, 0.0), START)
        await tiers[1].tend(START)
        now, most = START, 0
        for number in range(0, 300, between):
            tier = random.choice(tiers)
            for one in range(number, number + between):
                now += 0.1
                await tier.store(key_of(one), answer_of(one, EACH, now), now)
                most = max(most, await held_bytes(connection, tier))
            for tier in tiers:
                await tier.tend(now)
        assert 32 * each < most <= (40 + 0.2 * 40 + between) * each
        for tier in tiers:
            found = await tier.stats()
            assert found.used_bytes >= await held_bytes(connection, tier)
        assert 300 - sum([(await tier.stats()).evictions for tier in tiers]) == await tiers[0].count(WHOLE)

    in_one_cache(connection, options, scenario, 2)


def test_alone_it_never_exceeds_the_capacity_also_with_a_spare_share(connection: CassandraConnection) -> None:
    options = replace(EXACT, slices=2, spare_share=0.2, most_removed=100)

    async def scenario(tier: CassandraTier) -> None:
        each = entry_bytes(key_of(0), answer_of(0, EACH, START))
        await tier.apply(KnobSettings(20.0 * each, ENDLESS, 0.0), START)
        for number in range(100):
            await tier.store(key_of(number), answer_of(number, EACH, START + number), START + number)
            held = await held_bytes(connection, tier)
            assert held == (await tier.stats()).used_bytes <= 20 * each
        assert held >= 16 * each

    in_one_cache(connection, options, scenario, 1)


def test_stores_that_come_together_end_within_the_capacity_and_are_all_counted(connection: CassandraConnection) -> None:
    options = replace(EXACT, slices=4, spare_share=0.1, most_removed=100)

    async def scenario(tier: CassandraTier) -> None:
        each = entry_bytes(key_of(0), answer_of(0, EACH, START))
        await tier.apply(KnobSettings(80.0 * each, ENDLESS, 0.0), START)
        for first in range(0, 320, 32):
            stores = [tier.store(key_of(n), answer_of(n, EACH, START), START) for n in range(first, first + 32)]
            assert all(await asyncio.gather(*stores))
            assert await held_bytes(connection, tier) <= 80 * each
        while await tier.tend(START + 1):
            pass
        found = await tier.stats()
        assert found.used_bytes == found.entries * each == await held_bytes(connection, tier)
        assert found.entries == 320 - found.evictions == await tier.count(WHOLE)

    in_one_cache(connection, options, scenario, 1)


def test_what_one_process_swept_another_need_not(connection: CassandraConnection) -> None:
    async def scenario(one: CassandraTier, other: CassandraTier) -> None:
        for number in range(5):
            await one.store(key_of(number), answer_of(number, EACH, START), START)
        while await one.tend(START + 1):
            pass
        assert not await other.tend(START + 2)
        last = [other._books.slices.last(number) for number in range(4)]
        assert all(sweep is not None and sweep.swept_seconds <= START + 1 for sweep in last)
        found = await other.stats()
        assert (found.entries, found.used_bytes) == (5, await held_bytes(connection, other))

    in_one_cache(connection, replace(EXACT, slices=4, sweep_seconds=100.0, most_removed=100), scenario, 2)


def test_what_one_process_applies_or_removes_counts_for_the_other(connection: CassandraConnection) -> None:
    async def scenario(one: CassandraTier, other: CassandraTier) -> None:
        taken = await one.apply(KnobSettings(50_000.0, 10.0, 0.5), START)
        assert await other.settings() == taken  # its defaults were not put over them
        for number in (1, 2, 3):
            await one.store(key_of(number, tags=("red",) if number == 3 else ()), answer_of(number, EACH, START), START)
        assert await other.lookup(key_of(1), START + 9) is not None
        assert await other.delete(key_of(1))
        assert await one.lookup(key_of(1), START + 9) is None
        assert await other.clear(Selection(PARTITIONS[0], tag="red")) == 1
        assert [await one.holds(key_of(number), START + 9) for number in (1, 2, 3)] == [False, True, False]
        await one.apply(replace(taken, ttl_seconds=5.0), START + 9)
        await other.tend(START + 9)
        assert await other.lookup(key_of(2), START + 9) is None

    in_one_cache(connection, EXACT, scenario, 2)


def test_touches_of_another_process_count_when_it_has_written_them(connection: CassandraConnection) -> None:
    async def scenario(one: CassandraTier, other: CassandraTier) -> None:
        each = entry_bytes(key_of(1), answer_of(1, EACH, START))
        await one.apply(KnobSettings(2.0 * each, ENDLESS, 0.0), START)
        for number in (1, 2):
            await one.store(key_of(number), answer_of(number, EACH, START), START)
        assert await other.lookup(key_of(1), START + 1) is not None
        await other.tend(START + 1)
        await one.store(key_of(3), answer_of(3, EACH, START + 2), START + 2)
        assert [await one.holds(key_of(number), START + 2) for number in (1, 2, 3)] == [True, False, True]

    in_one_cache(connection, replace(EXACT, touch_seconds=0.0), scenario, 2)


def test_what_is_stored_while_a_sweep_judges_what_was_there_stays(connection: CassandraConnection) -> None:
    async def scenario(tier: CassandraTier) -> None:
        await tier.store(key_of(1), answer_of(1, EACH, START), START)
        judged = [entry async for page in tier._store.entries(0) for entry in page]
        later = answer_of(2, EACH, START + 1)
        await tier.store(key_of(1), later, START + 1)
        await tier._store.remove_all(judged)
        found = await tier.lookup(key_of(1), START + 1)
        assert found is not None
        assert found.answer == later
        assert await tier.count(WHOLE) == 1

    in_one_cache(connection, EXACT, scenario, 1)


def test_a_touch_that_comes_after_the_removal_leaves_nothing(connection: CassandraConnection) -> None:
    async def scenario(one: CassandraTier, other: CassandraTier) -> None:
        await one.store(key_of(1), answer_of(1, EACH, START), START)
        assert await other.lookup(key_of(1), START) is not None
        await one.delete(key_of(1))
        await other.tend(START + 1)  # writes the touch
        assert await other.count(WHOLE) == await other.clear(WHOLE) == 0
        assert not await one.holds(key_of(1), START + 1)
        await one.tend(START + 2)
        assert [page async for page in one._store.entries(0)] == [[]]
        assert (await one.stats()).entries == 0

    in_one_cache(connection, replace(EXACT, touch_seconds=0.0), scenario, 2)


def test_the_database_lets_go_by_itself_and_late(connection: CassandraConnection) -> None:
    """Of a lifetime of its own of 1,000 s, 400 are over; the books are kept a minute longer."""

    async def scenario(tier: CassandraTier) -> None:
        await tier.apply(KnobSettings(ROOM, 700.0, 0.0), START)  # a longer one may be set later
        await tier.store(key_of(1), answer_of(1, EACH, START - 400.0, 1_000.0), START)
        cache = tier._options.cache
        place = "tenant = 'a' AND namespace = 'x' AND name = ?"
        ((body,),) = await connection.run(
            f"SELECT TTL(body) FROM answer WHERE cache = ? AND {place}", cache, key_of(1).fingerprint
        )
        ((size, touched),) = await connection.run(
            f"SELECT TTL(size), TTL(touched) FROM entry WHERE cache = ? AND slice = 0 AND {place}",
            *(cache, key_of(1).fingerprint),
        )
        assert 660 - PATIENT_SECONDS <= body <= 660
        assert 720 - PATIENT_SECONDS <= size == touched <= 720

    in_one_cache(connection, EXACT, scenario, 1)


def test_what_cassandra_would_refuse_for_its_size_is_refused_before(connection: CassandraConnection) -> None:
    async def scenario(tier: CassandraTier) -> None:
        await tier.store(key_of(1), answer_of(1, EACH, START), START)
        assert not await tier.store(key_of(1), answer_of(1, 2_000, START), START)
        found = await tier.stats()
        assert (found.refusals, found.entries, found.used_bytes) == (1, 0, 0)

    in_one_cache(connection, replace(EXACT, largest_body_bytes=1_000), scenario, 1)


def test_a_body_of_megabytes_comes_back(connection: CassandraConnection) -> None:
    async def scenario(tier: CassandraTier) -> None:
        answer = answer_of(1, 7 << 20, START)
        assert await tier.store(key_of(1), answer, START)
        found = await tier.lookup(key_of(1), START)
        assert found is not None
        assert found.answer == answer

    in_one_cache(connection, EXACT, scenario, 1)


def test_settings_that_somebody_removed_are_those_that_were_applied_last(connection: CassandraConnection) -> None:
    async def scenario(tier: CassandraTier) -> None:
        taken = await tier.apply(KnobSettings(5_000.0, 50.0, 0.5), START)
        remove = "DELETE FROM settings WHERE cache = ? IF EXISTS"
        await connection.run(remove, tier._options.cache)
        assert await tier.settings() == taken
        await connection.run(remove, tier._options.cache)
        later = await tier.apply(replace(taken, ttl_seconds=60.0), START)
        assert await tier.settings() == later

    in_one_cache(connection, EXACT, scenario, 1)


def test_the_number_of_slices_is_kept(connection: CassandraConnection) -> None:
    options = anew(EXACT)

    async def scenario() -> None:
        await CassandraTier(connection, SPACE, options=options).begin()
        other = CassandraTier(connection, SPACE, options=replace(options, slices=2))
        with pytest.raises(InputError, match="slices: got 2, expected 1"):
            await other.begin()

    asyncio.run(scenario())


def test_what_is_outside_of_the_limits_is_brought_within(connection: CassandraConnection) -> None:
    options = anew(EXACT)
    narrow = replace(SPACE, ttl_seconds=replace(SPACE.ttl_seconds, high=100.0, default=50.0))

    async def scenario() -> None:
        assert (await CassandraTier(connection, SPACE, options=options).settings()).ttl_seconds == ENDLESS
        assert (await CassandraTier(connection, narrow, options=options).settings()).ttl_seconds == 100.0
        assert (await CassandraTier(connection, SPACE, options=options).settings()).ttl_seconds == 100.0

    asyncio.run(scenario())


def test_a_keyspace_that_is_not_there_is_an_error_of_the_set_up(keyspace: str) -> None:
    async def scenario() -> None:
        tier = CassandraTier(CassandraConnection(f"{keyspace}_none", PATIENT_SECONDS), SPACE)
        with pytest.raises(InputError, match="CREATE KEYSPACE setpoint_test_none"):
            await tier.begin()
        await tier.close()

    asyncio.run(scenario())


def test_nobody_waits_in_the_event_loop_for_a_server_that_says_nothing() -> None:
    """It takes the connection and never answers."""
    pytest.importorskip("cassandra")

    async def scenario(port: int) -> None:
        connection = CassandraConnection(f"cassandra://127.0.0.1:{port}/any", 1.0)
        lookup = asyncio.ensure_future(CassandraTier(connection, SPACE).lookup(key_of(1), START))
        beats = 0
        while not lookup.done():
            await asyncio.sleep(0.01)
            beats += 1
        with pytest.raises(TierError):
            await lookup
        assert beats >= 10

    with socket.create_server(("127.0.0.1", 0)) as listener:
        asyncio.run(scenario(listener.getsockname()[1]))
