"""What the contract of tiers is written with: keys and answers, a model that keeps a plain list, and sequences of
calls on both."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from caches.keys.request_key import Partition, RequestKey
from caches.knobs import Knob, KnobSettings, KnobSpace
from caches.tiers.selection import Selection
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
    entries in one call. entry_bytes: what it counts for an answer. policies: names of the eviction policies that it can
    be told to have."""

    make: Callable[[KnobSpace], AbstractAsyncContextManager[Tier]]
    entry_bytes: Callable[[RequestKey, Answer], int]
    most_removed: int
    policies: tuple[str, ...] = ()


def key_of(number: int, partition: int = 0, tags: tuple[str, ...] = ()) -> RequestKey:
    """No two numbers share a context, so that only equal requests can share an answer."""
    digest, model = hashlib.sha256(b"%d" % number).digest(), f"model {number % 2}"
    return RequestKey(PARTITIONS[partition], digest, digest, f"question {number}", model, frozenset(tags))


def answer_of(number: int, size: int, written: float, ttl: float | None = None) -> Answer:
    return Answer(b"%06d" % number + b"." * size, written, ttl, 10, size // 4, 0.5)


@dataclass
class Model:
    """held: as they were stored, by key without tags, least recently touched first. doubtful: too old at some time, so
    that a tier may have removed them or not."""

    capacity: float
    ttl: float
    entry_bytes: Callable[[RequestKey, Answer], int]
    held: dict[RequestKey, tuple[RequestKey, Answer]] = field(default_factory=dict)
    doubtful: set[RequestKey] = field(default_factory=set)

    @property
    def used(self) -> int:
        return sum(self.entry_bytes(key, answer) for key, answer in self.held.values())

    def age(self, now: float) -> None:
        self.doubtful |= {key for key, (_, answer) in self.held.items() if answer.outlived(self.ttl, now)}

    def lookup(self, key: RequestKey, now: float) -> tuple[Answer, frozenset[str]] | None:
        if key not in self.held or self.held[key][1].outlived(self.ttl, now):
            self.drop(key)
            return None
        self.held[key] = self.held.pop(key)
        stored_by, answer = self.held[key]
        return answer, stored_by.tags

    def store(self, key: RequestKey, answer: Answer, now: float) -> bool:
        if answer.outlived(self.ttl, now):
            return False
        plain = replace(key, tags=frozenset())
        self.drop(plain)
        if self.entry_bytes(key, answer) > self.capacity:
            return False
        self.held[plain] = key, answer
        while self.used > self.capacity:
            self.drop(next(iter(self.held)))
        return True

    def drop(self, key: RequestKey) -> bool:
        self.doubtful.discard(key)
        return self.held.pop(key, None) is not None

    def selected(self, partition: int, model: str | None, tag: str | None) -> list[RequestKey]:
        return [
            plain
            for plain, (key, _) in self.held.items()
            if key.partition == PARTITIONS[partition]
            and (model is None or key.model == model)
            and (tag is None or tag in key.tags)
        ]


NUMBERS, WHERE = st.integers(0, 3), st.sampled_from([0, 0, 0, 1])
TTLS = st.sampled_from([1.0, 3.0, 10.0, 50.0])
OWN = st.sampled_from([None, None, 2.0, 20.0])
AGES = st.sampled_from([0.0, 0.0, 1.0, 5.0])
TAGS = st.sampled_from([(), (), ("red",), ("blue", "red"), ("blue",)])
BY = st.sampled_from([None, None, "model 0", "model 1", "model"]), st.sampled_from([None, None, "red", "blue", "re"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("lookup"), NUMBERS, WHERE),
        st.tuples(st.just("store"), NUMBERS, WHERE, st.integers(0, 60), AGES, OWN, TAGS),
        st.tuples(st.just("warm"), NUMBERS, WHERE, st.integers(0, 60), st.just(0.0), OWN, TAGS),
        st.tuples(st.just("delete"), NUMBERS, WHERE),
        st.tuples(st.just("clear"), WHERE, *BY),
        st.tuples(st.just("count"), WHERE, *BY),
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
        st.tuples(st.just("store"), NUMBERS, WHERE, st.integers(0, 60), st.just(0.0), st.none(), TAGS),
        st.tuples(st.just("warm"), NUMBERS, WHERE, st.integers(0, 60), st.just(0.0), st.none(), TAGS),
        st.tuples(st.just("delete"), NUMBERS, WHERE),
        st.tuples(st.just("clear"), WHERE, *BY),
        st.tuples(st.just("count"), WHERE, *BY),
        st.tuples(st.just("size"), st.floats(0.3, 4.0)),
        st.tuples(st.just("wait"), st.just(1.0)),
    ),
    min_size=10,
    max_size=60,
)
FLUSH_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("store"), NUMBERS, WHERE, AGES, TAGS),
        st.tuples(st.just("flush"), WHERE, *BY),
        st.tuples(st.just("tend")),
    ),
    min_size=4,
    max_size=16,
)
FEW = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
QUICKLY = settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))


def with_tier(subject: Subject, scenario: Callable[[Tier], object]) -> None:
    async def whole() -> None:
        async with subject.make(SPACE) as tier:
            await scenario(tier)  # type: ignore[misc]

    asyncio.run(whole())


async def run(subject: Subject, steps: list[tuple[object, ...]]) -> None:
    async with subject.make(SPACE) as tier:
        walk = Walk(tier, Model(ROOM, ENDLESS, subject.entry_bytes), subject)
        for step in steps:
            walk.model.age(walk.now)
            await getattr(walk, str(step[0]))(*step[1:])
            found = await tier.stats()
            assert found.used_bytes <= (await tier.settings()).cache_size
            assert walk.model.used - walk.doubted() <= found.used_bytes <= walk.model.used
            assert found.hits + found.misses == walk.lookups


@dataclass
class Walk:
    """One sequence of calls, on the tier and on the model."""

    tier: Tier
    model: Model
    subject: Subject
    now: float = START
    lookups: int = 0

    def doubted(self) -> int:
        return sum(self.model.entry_bytes(*self.model.held[key]) for key in self.model.doubtful)

    async def lookup(self, number: int, partition: int) -> None:
        key = key_of(number, partition)
        doubtful, expected = key in self.model.doubtful, self.model.lookup(key, self.now)
        found = await self.tier.lookup(key, self.now)
        self.lookups += 1
        if found is None and doubtful:
            self.model.drop(key)  # it was removed when it was too old, under a shorter lifetime
            return
        assert (None if found is None else (found.answer, found.tags)) == expected

    async def store(
        self, number: int, partition: int, size: int, age: float, own: float | None, tags: tuple[str, ...]
    ) -> None:
        key, answer = key_of(number, partition, tags), answer_of(number, size, self.now - age, own)
        assert await self.tier.store(key, answer, self.now) == self.model.store(key, answer, self.now)

    async def warm(
        self, number: int, partition: int, size: int, age: float, own: float | None, tags: tuple[str, ...]
    ) -> None:
        key, answer = key_of(number, partition, tags), answer_of(number, size, self.now - age, own)
        assert await self.tier.warm(key, answer, self.now) == self.model.store(key, answer, self.now)

    async def delete(self, number: int, partition: int) -> None:
        key = key_of(number, partition)
        doubtful, expected = key in self.model.doubtful, self.model.drop(key)
        assert await self.tier.delete(key) == expected or doubtful

    async def clear(self, partition: int, model: str | None, tag: str | None) -> None:
        gone = self.model.selected(partition, model, tag)
        least = len([key for key in gone if key not in self.model.doubtful])
        assert least <= await self.tier.clear(Selection(PARTITIONS[partition], model, tag)) <= len(gone)
        for key in gone:
            self.model.drop(key)

    async def count(self, partition: int, model: str | None, tag: str | None) -> None:
        held = self.model.selected(partition, model, tag)
        least = len([key for key in held if key not in self.model.doubtful])
        before = await self.tier.stats()
        assert least <= await self.tier.count(Selection(PARTITIONS[partition], model, tag)) <= len(held)
        after = await self.tier.stats()
        assert replace(after, used_bytes=before.used_bytes) == before

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
