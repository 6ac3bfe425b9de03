"""One contract for every tier of the live cache: sequences of calls beside a model that keeps a plain list.

Three families, because tiers may remove what is too old when they like as long as they never serve it: with room for
everything, hits follow from lifetimes alone; with endless lifetimes, from what was least recently touched; and whatever
happens, the limits hold.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from caches.keys.request_key import Partition, RequestKey
from caches.knobs import Knob, KnobSettings, KnobSpace
from caches.tiers.tier import Answer, Tier

PARTITIONS = (Partition("a", "x"), Partition("a", "y"), Partition("b", "x"))
ENDLESS, START = 1e6, 1_000_000.0
ROOM = 10_000_000.0
SPACE = KnobSpace(
    Knob("cache_size", "bytes", 1.0, ROOM, ROOM, 1.0, "log"),
    Knob("ttl_seconds", "seconds", 1.0, ENDLESS, ENDLESS, 1.0, "log"),
    Knob("warmup_ratio", "share", 0.0, 1.0, 0.0, 1.0, "linear"),
)


@dataclass(frozen=True)
class Subject:
    """A tier under test. make: an empty one with these ranges, at their defaults, that removes at most `most_removed`
    entries in one call. entry_bytes: what it counts for an answer. keys: how its requests look."""

    make: Callable[[KnobSpace], AbstractAsyncContextManager[Tier]]
    entry_bytes: Callable[[RequestKey, Answer], int]
    most_removed: int


def key_of(number: int, partition: int = 0) -> RequestKey:
    """No two of them share a context, so that only equal requests can share an answer."""
    digest = hashlib.sha256(b"%d" % number).digest()
    return RequestKey(PARTITIONS[partition], digest, digest, f"question {number}", f"model {number % 2}")


def answer_of(number: int, size: int, written: float, ttl: float | None = None) -> Answer:
    return Answer(b"%06d" % number + b"." * size, written, ttl, 10, size // 4, 0.5)


@dataclass
class Model:
    """Least recently touched first. doubtful: too old at some time, so that a tier may have removed them or not."""

    capacity: float
    ttl: float
    entry_bytes: Callable[[RequestKey, Answer], int]
    held: dict[RequestKey, Answer] = field(default_factory=dict)
    doubtful: set[RequestKey] = field(default_factory=set)

    @property
    def used(self) -> int:
        return sum(self.entry_bytes(key, answer) for key, answer in self.held.items())

    def age(self, now: float) -> None:
        self.doubtful |= {key for key, answer in self.held.items() if answer.outlived(self.ttl, now)}

    def lookup(self, key: RequestKey, now: float) -> Answer | None:
        answer = self.held.get(key)
        if answer is None or answer.outlived(self.ttl, now):
            self.drop(key)
            return None
        self.held[key] = self.held.pop(key)
        return answer

    def store(self, key: RequestKey, answer: Answer, now: float) -> bool:
        if answer.outlived(self.ttl, now):
            return False
        self.drop(key)
        if self.entry_bytes(key, answer) > self.capacity:
            return False
        self.held[key] = answer
        while self.used > self.capacity:
            self.drop(next(iter(self.held)))
        return True

    def drop(self, key: RequestKey) -> bool:
        self.doubtful.discard(key)
        return self.held.pop(key, None) is not None


NUMBERS, WHERE = st.integers(0, 3), st.sampled_from([0, 0, 0, 1])
TTLS = st.sampled_from([1.0, 3.0, 10.0, 50.0])
OWN = st.sampled_from([None, None, 2.0, 20.0])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("lookup"), NUMBERS, WHERE),
        st.tuples(st.just("store"), NUMBERS, WHERE, st.integers(0, 60), st.sampled_from([0.0, 0.0, 1.0, 5.0]), OWN),
        st.tuples(st.just("warm"), NUMBERS, WHERE, st.integers(0, 60), st.just(0.0), OWN),
        st.tuples(st.just("delete"), NUMBERS, WHERE),
        st.tuples(st.just("clear"), WHERE),
        st.tuples(st.just("ttl"), TTLS),
        st.tuples(st.just("wait"), st.sampled_from([0.5, 1.0, 4.0, 30.0])),
        st.tuples(st.just("tend")),
    ),
    min_size=10,
    max_size=60,
)
LRU_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("lookup"), NUMBERS, WHERE),
        st.tuples(st.just("store"), NUMBERS, WHERE, st.integers(0, 60), st.just(0.0), st.none()),
        st.tuples(st.just("warm"), NUMBERS, WHERE, st.integers(0, 60), st.just(0.0), st.none()),
        st.tuples(st.just("delete"), NUMBERS, WHERE),
        st.tuples(st.just("size"), st.floats(0.3, 4.0)),
        st.tuples(st.just("wait"), st.just(1.0)),
    ),
    min_size=10,
    max_size=60,
)
QUICKLY = settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))


class TierContract:
    """Subclass it in a test module, with a fixture or attribute `subject`."""

    subject: Subject

    @QUICKLY
    @given(steps=STEPS)
    def test_with_room_for_all_hits_follow_from_lifetimes(self, steps: list[tuple[object, ...]]) -> None:
        asyncio.run(run(self.subject, steps))

    @QUICKLY
    @given(steps=LRU_STEPS, room=st.floats(0.3, 4.0))
    def test_without_ageing_hits_follow_from_the_last_touch(self, steps: list[tuple[object, ...]], room: float) -> None:
        asyncio.run(run(self.subject, [("size", room), *steps]))

    def test_an_answer_comes_back_as_it_was(self) -> None:
        async def scenario(tier: Tier) -> None:
            answer = Answer(bytes(range(256)) * 4, START - 3.0, 60.0, 123, 45, 0.25)
            assert await tier.store(key_of(1), answer, START)
            found = await tier.lookup(key_of(1), START + 1)
            assert found is not None
            assert found.answer == answer
            assert found.similarity == 1.0

        with_tier(self.subject, scenario)

    def test_no_answer_crosses_a_partition(self) -> None:
        async def scenario(tier: Tier) -> None:
            for index in range(3):
                assert await tier.store(key_of(1, index), answer_of(index, 10, START), START)
            assert not await tier.delete(key_of(2, 0))
            assert await tier.clear(PARTITIONS[1]) == 1
            found = await tier.batch_lookup([key_of(1, index) for index in range(3)], START)
            assert [None if one is None else one.answer.body[:6] for one in found] == [b"000000", None, b"000002"]

        with_tier(self.subject, scenario)

    def test_a_read_never_renews_a_lifetime(self) -> None:
        async def scenario(tier: Tier) -> None:
            taken = await tier.apply(KnobSettings(ROOM, 10.0, 0.0), START)
            assert taken.ttl_seconds == 10.0
            await tier.store(key_of(1), answer_of(1, 10, START), START)
            for second in range(1, 10):
                assert await tier.lookup(key_of(1), START + second) is not None
            assert await tier.lookup(key_of(1), START + 10) is None

        with_tier(self.subject, scenario)

    def test_the_least_recently_touched_goes_and_a_lookup_touches(self) -> None:
        async def scenario(tier: Tier) -> None:
            each = self.subject.entry_bytes(key_of(1), answer_of(1, 100, START))
            await tier.apply(KnobSettings(3.0 * each, ENDLESS, 0.0), START)
            for number in (1, 2, 3):
                await tier.store(key_of(number), answer_of(number, 100, START), START)
            assert await tier.lookup(key_of(1), START) is not None
            await tier.store(key_of(4), answer_of(4, 100, START), START)
            found = await tier.batch_lookup([key_of(number) for number in (1, 2, 3, 4)], START)
            assert [one is not None for one in found] == [True, False, True, True]

        with_tier(self.subject, scenario)

    def test_an_entrys_own_lifetime_can_only_shorten_and_age_runs_from_the_write(self) -> None:
        async def scenario(tier: Tier) -> None:
            await tier.apply(KnobSettings(ROOM, 10.0, 0.0), START)
            await tier.store(key_of(1), answer_of(1, 10, START, 4.0), START)
            await tier.store(key_of(2), answer_of(2, 10, START, 99.0), START)
            await tier.store(key_of(3), answer_of(3, 10, START - 7.0), START)  # written elsewhere, seven seconds ago
            assert not await tier.store(key_of(4), answer_of(4, 10, START - 10.0), START)
            expected = {0.0: [1, 2, 3], 3.0: [1, 2], 4.0: [2], 9.5: [2], 10.0: []}
            for seconds, numbers in expected.items():
                found = await tier.batch_lookup([key_of(number) for number in (1, 2, 3, 4)], START + seconds)
                assert [n for n, one in zip((1, 2, 3, 4), found, strict=True) if one is not None] == numbers, seconds

        with_tier(self.subject, scenario)

    def test_a_change_of_the_lifetime_counts_for_what_is_there(self) -> None:
        async def scenario(tier: Tier) -> None:
            await tier.apply(KnobSettings(ROOM, 10.0, 0.0), START)
            await tier.store(key_of(1), answer_of(1, 10, START), START)
            await tier.apply(KnobSettings(ROOM, 100.0, 0.0), START + 9)
            assert await tier.lookup(key_of(1), START + 60) is not None
            await tier.apply(KnobSettings(ROOM, 50.0, 0.0), START + 60)
            assert await tier.lookup(key_of(1), START + 60) is None

        with_tier(self.subject, scenario)

    def test_housekeeping_removes_what_is_too_old(self) -> None:
        async def scenario(tier: Tier) -> None:
            for number in range(8):
                await tier.store(key_of(number), answer_of(number, 10, START), START)
            await tier.apply(KnobSettings(ROOM, 5.0, 0.0), START + 1)
            while await tier.tend(START + 6):
                pass
            found = await tier.stats()
            assert (found.entries, found.used_bytes, found.expirations) == (0, 0, 8)

        with_tier(self.subject, scenario)

    def test_what_is_held_can_be_asked_without_touching_or_counting(self) -> None:
        async def scenario(tier: Tier) -> None:
            each = self.subject.entry_bytes(key_of(1), answer_of(1, 100, START))
            await tier.apply(KnobSettings(2.0 * each, 50.0, 0.0), START)
            for number in (1, 2):
                await tier.store(key_of(number), answer_of(number, 100, START, 20.0), START)
            before = await tier.stats()
            assert [await tier.holds(key_of(number), START + 1) for number in (1, 2, 3)] == [True, True, False]
            assert not await tier.holds(key_of(1, 1), START + 1)
            assert await tier.stats() == before
            await tier.store(key_of(3), answer_of(3, 100, START + 2), START + 2)
            held = [await tier.holds(key_of(number), START + 2) for number in (1, 2, 3)]
            assert held == [False, True, True]  # asking did not make the first one the latest
            assert not await tier.holds(key_of(2), START + 20)

        with_tier(self.subject, scenario)

    def test_size_binds_though_every_entry_has_a_lifetime(self) -> None:
        async def scenario(tier: Tier) -> None:
            each = self.subject.entry_bytes(key_of(1), answer_of(1, 100, START))
            await tier.apply(KnobSettings(3.5 * each, ENDLESS, 0.0), START)
            for number in range(20):
                await tier.store(key_of(number), answer_of(number, 100, START, 1_000.0), START)
                assert (await tier.stats()).used_bytes <= (await tier.settings()).cache_size
            assert (await tier.stats()).entries == 3

        with_tier(self.subject, scenario)

    def test_a_smaller_capacity_is_reached_in_steps(self) -> None:
        most = self.subject.most_removed

        async def scenario(tier: Tier) -> None:
            for number in range(4 * most):
                await tier.store(key_of(number), answer_of(number, 100, START), START)
            each = self.subject.entry_bytes(key_of(0), answer_of(0, 100, START))
            taken = await tier.apply(KnobSettings(float(most * each + 1), ENDLESS, 0.0), START)
            assert taken.cache_size == most * each + 1
            assert (await tier.stats()).entries == 4 * most
            counted = [4 * most]
            for _ in range(10):
                assert (await tier.settings()).cache_size >= (await tier.stats()).used_bytes
                more = await tier.tend(START)
                counted.append((await tier.stats()).entries)
                if not more:
                    break
            assert counted[-1] == most
            assert max(before - after for before, after in itertools.pairwise(counted)) <= most
            assert await tier.settings() == taken
            assert await tier.lookup(key_of(0), START) is None  # the least recently touched went
            assert await tier.lookup(key_of(4 * most - 1), START) is not None

        with_tier(self.subject, scenario)

    def test_what_is_asked_for_stays_within_the_operators_limits_and_is_read_back(self) -> None:
        async def scenario(tier: Tier) -> None:
            assert await tier.settings() == SPACE.default()
            taken = await tier.apply(KnobSettings(1e12, 0.001, 0.5), START)
            assert taken == KnobSettings(ROOM, 1.0, 0.5)
            assert await tier.settings() == taken
            undone = await tier.apply(SPACE.default(), START)
            assert await tier.settings() == undone == SPACE.default()

        with_tier(self.subject, scenario)

    def test_everything_is_counted(self) -> None:
        async def scenario(tier: Tier) -> None:
            await tier.store(key_of(1), answer_of(1, 10, START), START)
            await tier.warm(key_of(2), answer_of(2, 10, START), START)
            await tier.batch_lookup([key_of(1), key_of(2), key_of(3)], START)
            await tier.lookup(key_of(1), START)
            await tier.delete(key_of(1))
            await tier.delete(key_of(1))
            found = await tier.stats()
            assert (found.hits, found.misses, found.warmups, found.deletes, found.entries) == (3, 1, 1, 2, 1)
            assert found.used_bytes == self.subject.entry_bytes(key_of(2), answer_of(2, 10, START))

        with_tier(self.subject, scenario)


def with_tier(subject: Subject, scenario: Callable[[Tier], object]) -> None:
    async def whole() -> None:
        async with subject.make(SPACE) as tier:
            await scenario(tier)  # type: ignore[misc]

    asyncio.run(whole())


async def run(subject: Subject, steps: list[tuple[object, ...]]) -> None:
    async with subject.make(SPACE) as tier:
        walk = _Walk(tier, Model(ROOM, ENDLESS, subject.entry_bytes), subject)
        for step in steps:
            walk.model.age(walk.now)
            await getattr(walk, str(step[0]))(*step[1:])
            found = await tier.stats()
            assert found.used_bytes <= (await tier.settings()).cache_size
            assert walk.model.used - walk.doubted() <= found.used_bytes <= walk.model.used
            assert found.hits + found.misses == walk.lookups


@dataclass
class _Walk:
    """One sequence of calls, on the tier and on the model."""

    tier: Tier
    model: Model
    subject: Subject
    now: float = START
    lookups: int = 0

    def doubted(self) -> int:
        return sum(self.model.entry_bytes(key, self.model.held[key]) for key in self.model.doubtful)

    async def lookup(self, number: int, partition: int) -> None:
        key = key_of(number, partition)
        doubtful, expected = key in self.model.doubtful, self.model.lookup(key, self.now)
        found = await self.tier.lookup(key, self.now)
        self.lookups += 1
        if found is None and doubtful:
            self.model.drop(key)  # it was removed when it was too old, under a shorter lifetime
            return
        assert (None if found is None else found.answer) == expected

    async def store(self, number: int, partition: int, size: int, age: float, own: float | None) -> None:
        key, answer = key_of(number, partition), answer_of(number, size, self.now - age, own)
        assert await self.tier.store(key, answer, self.now) == self.model.store(key, answer, self.now)

    async def warm(self, number: int, partition: int, size: int, age: float, own: float | None) -> None:
        key, answer = key_of(number, partition), answer_of(number, size, self.now - age, own)
        assert await self.tier.warm(key, answer, self.now) == self.model.store(key, answer, self.now)

    async def delete(self, number: int, partition: int) -> None:
        key = key_of(number, partition)
        doubtful, expected = key in self.model.doubtful, self.model.drop(key)
        assert await self.tier.delete(key) == expected or doubtful

    async def clear(self, partition: int) -> None:
        gone = [key for key in self.model.held if key.partition == PARTITIONS[partition]]
        least = len([key for key in gone if key not in self.model.doubtful])
        assert least <= await self.tier.clear(PARTITIONS[partition]) <= len(gone)
        for key in gone:
            self.model.drop(key)

    async def ttl(self, seconds: float) -> None:
        self.model.ttl = seconds
        self.model.age(self.now)
        now = await self.tier.settings()
        assert (await self.tier.apply(replace(now, ttl_seconds=seconds), self.now)).ttl_seconds == seconds

    async def size(self, entries: float) -> None:
        """Reached at once here, step by step."""
        wanted = float(int(entries * self.subject.entry_bytes(key_of(1), answer_of(1, 30, START))))
        self.model.capacity = max(wanted, 1.0)
        while self.model.used > self.model.capacity:
            self.model.drop(next(iter(self.model.held)))
        await self.tier.apply(KnobSettings(wanted, self.model.ttl, 0.0), self.now)
        while await self.tier.tend(self.now):
            pass
        assert (await self.tier.settings()).cache_size == self.model.capacity

    async def wait(self, seconds: float) -> None:
        self.now += seconds
        self.model.age(self.now)

    async def tend(self) -> None:
        await self.tier.tend(self.now)
