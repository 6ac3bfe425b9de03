"""The tiers beside a list of entries that is searched from end to end: hits by meaning, touches, bytes, lifetimes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from caches.keys.request_key import Partition, RequestKey
from caches.knobs import KnobSettings
from caches.semantic.guard import veto
from caches.semantic.matching import MatchingOptions
from caches.semantic.tier import SemanticOptions, SemanticTier
from caches.tiers.tier import Answer
from tests.caches.semantic.shared_tiers import by_meaning
from tests.caches.semantic.toy import START, ToyEmbedder, ask, space
from tests.caches.semantic.vector_stores import redis_vectors, vectors_in
from tests.contracts.meaning_contract import MeaningTier

QUESTIONS = (
    *("how do i reset my password", "how can i reset my password", "how do i not reset my password", None),
    *("how do i reset my old password", "what is 10 usd to eur", "what is 10 eur to usd", "what is 11 usd to eur"),
    *("please what is 10 usd to eur", "is tea safe", "is tea unsafe", "tea is safe"),
)
PLACES = ((Partition("a", "x"), b"c"), (Partition("a", "x"), b"d"), (Partition("b", "x"), b"c"))
THRESHOLD = 0.75


@dataclass
class Model:
    """Least recently touched first."""

    tier: MeaningTier
    capacity: int = 1_000_000
    ttl: float = 1e6
    held: dict[RequestKey, Answer] = field(default_factory=dict)
    toy: ToyEmbedder = field(default_factory=ToyEmbedder)

    def used(self) -> int:
        return sum(self.tier.entry_bytes(key, answer) for key, answer in self.held.items())

    def acceptable(self, key: RequestKey, now: float) -> dict[bytes, float]:
        """Bodies that may be served to a question, and how similar theirs is; the equal request's alone where held."""
        fresh = {other: answer for other, answer in self.held.items() if not answer.outlived(self.ttl, now)}
        if key in fresh:
            return {fresh[key].body: 1.0}
        found = {}
        for other, answer in fresh.items():
            if (other.partition, other.context) != (key.partition, key.context):
                continue
            if key.question is None or other.question is None or veto(key.question, other.question) is not None:
                continue
            one, two = self.toy.embed([key.question, other.question])
            if float(one @ two) >= THRESHOLD:
                found[answer.body] = float(one @ two)
        return found

    def touch(self, body: bytes) -> None:
        key = next(key for key, answer in self.held.items() if answer.body == body)
        self.held[key] = self.held.pop(key)

    def store(self, key: RequestKey, answer: Answer, now: float) -> None:
        self.expire(now)
        self.held.pop(key, None)
        if self.tier.entry_bytes(key, answer) <= self.capacity:
            self.held[key] = answer
        self.shrink()

    def shrink(self) -> None:
        while self.used() > self.capacity:
            del self.held[next(iter(self.held))]

    def expire(self, now: float) -> None:
        self.held = {key: answer for key, answer in self.held.items() if not answer.outlived(self.ttl, now)}


KEYS = st.builds(
    lambda question, place: ask(question, place[0], place[1]), st.sampled_from(QUESTIONS), st.sampled_from(PLACES)
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("lookup"), KEYS),
        st.tuples(st.just("lookup"), KEYS),
        st.tuples(st.just("store"), KEYS, st.integers(8, 200)),
        st.tuples(st.just("delete"), KEYS),
        st.tuples(st.just("wait"), st.sampled_from([1.0, 5.0])),
        st.tuples(st.just("apply"), st.integers(300, 2_000), st.sampled_from([3.0, 10.0, 1e6])),
    ),
    max_size=60,
)


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=STEPS)
def test_it_does_what_the_list_does(steps: list[tuple[object, ...]]) -> None:
    async def whole() -> None:
        options = SemanticOptions(THRESHOLD, entry_overhead_bytes=8, matrix_up_to=4)
        tier = SemanticTier(ToyEmbedder(), space(1e6, 1e6), options=options)

        async def vectors() -> int:
            return len(tier._index)

        await walk(tier, vectors, steps)

    asyncio.run(whole())


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=STEPS)
def test_the_shared_tier_does_too(vector_redis_server: str, steps: list[tuple[object, ...]]) -> None:
    """And no vector outlives its entry by more than the next housekeeping."""

    async def whole() -> None:
        make = by_meaning(vector_redis_server, redis_vectors(vector_redis_server))
        async with make(ToyEmbedder(), space(1e6, 1e6), MatchingOptions(THRESHOLD)) as tier:
            await walk(tier, lambda: vectors_in(vector_redis_server), steps)

    asyncio.run(whole())


async def walk(tier: MeaningTier, vectors_held: Callable[[], Awaitable[int]], steps: list[tuple[object, ...]]) -> None:
    model, now = Model(tier), START
    for number, (what, *with_) in enumerate(steps):
        match what, with_:
            case "lookup", [RequestKey() as key]:
                await check_lookup(tier, model, key, now)
            case "store", [RequestKey() as key, int(size)]:
                answer = Answer(b"%d" % number + b"." * size, now)
                await tier.store(key, answer, now)
                model.store(key, answer, now)
            case "delete", [RequestKey() as key]:
                model.expire(now)
                await tier.tend(now)
                assert await tier.delete(key) == (model.held.pop(key, None) is not None)
            case "wait", [float(seconds)]:
                now += seconds
            case "apply", [int(size), float(ttl)]:
                model.capacity, model.ttl = size, ttl
                model.expire(now)
                model.shrink()
                await tier.apply(KnobSettings(size, ttl, 0.0), now)
        while await tier.tend(now):
            pass
        model.expire(now)
        stats, bound = await tier.stats(), await tier.settings()
        assert (stats.entries, stats.used_bytes) == (len(model.held), model.used())
        assert stats.used_bytes <= bound.cache_size == model.capacity
        assert await vectors_held() == sum(key.question is not None for key in model.held)


async def check_lookup(tier: MeaningTier, model: Model, key: RequestKey, now: float) -> None:
    allowed = model.acceptable(key, now)
    found = await tier.lookup(key, now)
    assert (found is None) == (not allowed)
    if found is not None:
        assert found.answer.body in allowed
        assert abs(found.similarity - max(allowed.values())) < 1e-5  # the most similar that may
        model.touch(found.answer.body)
