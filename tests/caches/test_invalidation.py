"""Invalidation in a stack: what it removes, and that nothing older comes back after it."""

from __future__ import annotations

import asyncio
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caches.breaker import Breaker, BreakerRule
from caches.flight import Flight
from caches.hot_keys import Candidate
from caches.invalidation import What
from caches.keys.request_key import RequestKey
from caches.place import Place
from caches.stack import Served, Stack
from caches.tiers.memory import MemoryTier
from caches.tiers.selection import Selection
from caches.tiers.tier import Answer, Found, TierError
from caches.warming import Surroundings, Warmed, WarmRule, warm
from tests.caches.test_stack import PLAIN, Backend, Clock, open_backend, stack_of
from tests.contracts.tier_contract import PARTITIONS, SPACE, START, answer_of, key_of

HERE = Selection(PARTITIONS[0])
RED = key_of(1, tags=("red",))


class Held(MemoryTier):
    """A tier whose calls wait at a gate, where it is closed."""

    def __init__(self, name: str) -> None:
        super().__init__(SPACE, name)
        self.gates: dict[str, asyncio.Event] = {}
        self.waiting = asyncio.Event()

    def close_gate(self, what: str) -> None:
        self.gates[what] = asyncio.Event()

    async def _pass(self, what: str) -> None:
        if what in self.gates:
            self.waiting.set()
            await self.gates[what].wait()

    async def lookup(self, key: RequestKey, now_seconds: float) -> Found | None:
        found = await super().lookup(key, now_seconds)
        await self._pass("lookup")
        return found

    async def store(self, key: RequestKey, answer: Answer, now_seconds: float) -> bool:
        await self._pass("store")
        return await super().store(key, answer, now_seconds)

    async def clear(self, selection: Selection) -> int:
        await self._pass("clear")
        return await super().clear(selection)


async def test_by_model_tag_and_key_in_every_tier() -> None:
    clock = Clock()
    stack, _ = stack_of(clock, [MemoryTier(SPACE, "l1"), MemoryTier(SPACE, "l2")])
    for number, tags in {1: ("red",), 2: (), 3: ("red", "blue"), 4: ("red",), 5: ()}.items():
        await stack.store(key_of(number, tags=tags), answer_of(number, 10, START))
    for what, number in (
        (Selection(PARTITIONS[1]), 0),
        (Selection(PARTITIONS[0], "model 1", "red"), 2),
        (Selection(PARTITIONS[0], tag="red"), 1),
        (key_of(5), 1),
        (key_of(5), 0),
        (HERE, 1),
    ):
        assert await stack.count(what) == {"l1": number, "l2": number}
        assert await stack.clear(what) == {"l1": number, "l2": number}
        assert await stack.count(what) == {"l1": 0, "l2": 0}


async def test_a_copy_has_the_tags_of_the_request_that_stored_it() -> None:
    clock, upper, lower = Clock(), MemoryTier(SPACE, "l1"), MemoryTier(SPACE, "l2")
    stack, _ = stack_of(clock, [upper, lower])
    await lower.store(RED, answer_of(1, 10, START), START)
    assert await stack.lookup(key_of(1, tags=("blue",))) is not None
    assert await stack.count(Selection(PARTITIONS[0], tag="blue")) == {"l1": 0, "l2": 0}
    assert await stack.clear(Selection(PARTITIONS[0], tag="red")) == {"l1": 1, "l2": 1}


@pytest.mark.parametrize("what", [HERE, RED, Selection(PARTITIONS[0], "model 1"), Selection(PARTITIONS[0], tag="red")])
async def test_a_call_that_began_before_is_not_stored_and_nobody_waits_for_it_who_asks_after(what: What) -> None:
    clock = Clock()
    stack, _ = stack_of(clock, [MemoryTier(SPACE, "l1"), MemoryTier(SPACE, "l2")])
    old, new = Backend(clock), open_backend(clock)
    before = [asyncio.ensure_future(stack.fetch(RED, old)) for _ in range(2)]
    await asyncio.sleep(0.01)
    await stack.clear(what)
    after = await stack.fetch(RED, new)
    old.gate.set()
    await asyncio.gather(*before)
    assert (old.calls, new.calls) == (1, 1)
    assert [one.result().tier for one in before] == [None, None]
    found = await stack.lookup(RED)
    assert found is not None
    assert found.answer is after.answer


@pytest.mark.parametrize(
    "what",
    [
        Selection(PARTITIONS[1]),
        Selection(PARTITIONS[0], "model 0"),
        Selection(PARTITIONS[0], tag="blue"),
        key_of(3),
    ],
)
async def test_a_call_that_is_not_meant_goes_on(what: What) -> None:
    clock = Clock()
    stack, _ = stack_of(clock, [MemoryTier(SPACE, "l1")])
    backend = Backend(clock)
    call = asyncio.ensure_future(stack.fetch(RED, backend))
    await asyncio.sleep(0.01)
    await stack.clear(what)
    backend.gate.set()
    await call
    assert await stack.count(RED) == {"l1": 1}


async def test_an_early_renewal_that_began_before_is_not_stored() -> None:
    clock = Clock()
    stack, _ = stack_of(clock, [MemoryTier(SPACE, "l1")])
    backend = Backend(clock)
    renewal = asyncio.ensure_future(stack.renew(RED, backend))
    await asyncio.sleep(0.01)
    await stack.clear(HERE)
    backend.gate.set()
    await renewal
    assert await stack.lookup(RED) is None


async def test_what_was_found_below_before_is_not_kept_above_after() -> None:
    clock, upper, lower = Clock(), MemoryTier(SPACE, "l1"), Held("l2")
    stack, _ = stack_of(clock, [upper, lower])
    await lower.store(RED, answer_of(1, 10, START), START)
    lower.close_gate("lookup")
    looking = asyncio.ensure_future(stack.lookup(key_of(1)))
    await lower.waiting.wait()
    assert await stack.clear(Selection(PARTITIONS[0], tag="red")) == {"l1": 0, "l2": 1}
    lower.gates["lookup"].set()
    assert await looking is not None  # it asked before
    assert await stack.count(HERE) == {"l1": 0, "l2": 0}


async def test_it_waits_for_a_store_that_has_begun() -> None:
    clock, upper, lower = Clock(), MemoryTier(SPACE, "l1"), Held("l2")
    stack, _ = stack_of(clock, [upper, lower])
    lower.close_gate("store")
    storing = asyncio.ensure_future(stack.fetch(RED, open_backend(clock)))
    await lower.waiting.wait()
    clearing = asyncio.ensure_future(stack.clear(HERE))
    await asyncio.sleep(0.01)
    assert not clearing.done()
    lower.gates["store"].set()
    await storing
    assert await clearing == {"l1": 1, "l2": 1}
    assert await stack.lookup(RED) is None


async def test_what_is_asked_while_it_clears_is_answered_and_not_stored() -> None:
    clock, tier = Clock(), Held("l1")
    stack, _ = stack_of(clock, [tier])
    tier.close_gate("clear")
    clearing = asyncio.ensure_future(stack.clear(HERE))
    await tier.waiting.wait()
    assert (await stack.fetch(RED, open_backend(clock))).tier is None
    await stack.fetch(key_of(1, 1), open_backend(clock))  # of another partition
    tier.gates["clear"].set()
    await clearing
    assert [await stack.count(key) for key in (RED, key_of(1, 1))] == [{"l1": 0}, {"l1": 1}]


async def test_one_that_was_given_up_holds_nothing_back_after() -> None:
    clock, tier = Clock(), Held("l1")
    stack, _ = stack_of(clock, [tier])
    await stack.store(RED, answer_of(1, 10, START))
    tier.close_gate("clear")
    clearing = asyncio.ensure_future(stack.clear(HERE))
    await tier.waiting.wait()
    clearing.cancel()
    await asyncio.gather(clearing, return_exceptions=True)
    del tier.gates["clear"]
    await stack.store(key_of(2), answer_of(2, 10, START))
    assert await stack.clear(HERE) == {"l1": 2}


async def test_a_tier_that_fails_is_told_apart_from_one_that_holds_nothing() -> None:
    class Broken(MemoryTier):
        async def clear(self, selection: Selection) -> int:
            raise TierError("tier l2: told to fail")

    clock = Clock()
    stack, places = stack_of(clock, [MemoryTier(SPACE, "l1"), Broken(SPACE, "l2")])
    places[1].breaker = Breaker(BreakerRule(first_seconds=10.0))
    assert await stack.count(HERE) == {"l1": 0, "l2": 0}
    assert await stack.clear(HERE) == {"l1": 0, "l2": None}
    assert await stack.count(HERE) == {"l1": 0, "l2": None}  # left alone for a while
    clock.now += 11
    assert await stack.count(HERE) == {"l1": 0, "l2": 0}


async def test_it_may_take_longer_than_a_call() -> None:
    class Slow(MemoryTier):
        async def clear(self, selection: Selection) -> int:
            await asyncio.sleep(0.2)
            return await super().clear(selection)

    stack, _ = stack_of(Clock(), [MemoryTier(SPACE, "l1"), Slow(SPACE, "l2")], slow=0.1)
    assert await stack.clear(HERE) == {"l1": 0, "l2": 0}


class Dawdling(MemoryTier):
    """Lets others have their turn before and after each call, at random."""

    def __init__(self, name: str, chance: random.Random) -> None:
        super().__init__(SPACE, name)
        self._chance = chance

    async def _dawdle(self) -> None:
        for _ in range(self._chance.randrange(4)):
            await asyncio.sleep(0)

    async def lookup(self, key: RequestKey, now_seconds: float) -> Found | None:
        await self._dawdle()
        found = await super().lookup(key, now_seconds)
        await self._dawdle()
        return found

    async def store(self, key: RequestKey, answer: Answer, now_seconds: float) -> bool:
        await self._dawdle()
        taken = await super().store(key, answer, now_seconds)
        await self._dawdle()
        return taken

    async def clear(self, selection: Selection) -> int:
        await self._dawdle()
        gone = await super().clear(selection)
        await self._dawdle()
        return gone

    async def delete(self, key: RequestKey) -> bool:
        await self._dawdle()
        return await super().delete(key)


async def test_what_warming_copied_meanwhile_does_not_stay() -> None:
    clock, upper, lower = Clock(), MemoryTier(SPACE, "l1"), Held("l2")
    stack, _ = stack_of(clock, [upper, lower])
    await lower.store(RED, answer_of(1, 10, START), START)
    around = Surroundings(
        clock, asyncio.sleep, lambda: False, lambda: 0.5, passage=lambda key: stack.passage(key, copied=True)
    )

    async def warmed() -> Warmed:
        return await warm(upper, [lower], [Candidate(key_of(1), 1.0, False)], around, WarmRule(stages=(1.0,)))

    assert (await warmed()).copied == 1
    assert await stack.count(Selection(PARTITIONS[0], tag="red")) == {"l1": 1, "l2": 1}  # with its tags
    await upper.delete(RED)
    lower.close_gate("lookup")
    warming = asyncio.ensure_future(warmed())
    await lower.waiting.wait()
    await stack.clear(HERE)
    lower.gates["lookup"].set()
    assert await warming == Warmed(left=1)
    assert await stack.count(HERE) == {"l1": 0, "l2": 0}


WHATS = [HERE, Selection(PARTITIONS[0], "model 1"), Selection(PARTITIONS[0], tag="red"), RED]


@settings(max_examples=200, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    moves=st.lists(st.tuples(st.sampled_from(["ask", "look", "renew", "change"]), st.integers(0, 12)), max_size=40),
)
def test_who_asks_after_an_invalidation_never_gets_what_was_true_before_it(
    seed: int, moves: list[tuple[str, int]]
) -> None:
    asyncio.run(_changing_world(random.Random(seed), moves))


async def _changing_world(chance: random.Random, moves: list[tuple[str, int]]) -> None:
    """The backend knows a number that rises; each rise is followed by an invalidation. Whoever asks after that has
    ended must be told a number at least as high, from whichever tier."""
    tiers = [Dawdling(name, chance) for name in ("l1", "l2", "l3")]
    places = [Place(tier, None if depth < 2 else 60.0) for depth, tier in enumerate(tiers)]
    stack = Stack(places, PLAIN, clock=Clock())
    true = settled = 0

    async def call(_flight: Flight[Served]) -> Answer:
        told = true
        for _ in range(chance.randrange(60)):
            await asyncio.sleep(0)
        return answer_of(told, 1, START)

    async def ask() -> None:
        least = settled
        served = await stack.fetch(RED, call)
        assert int(served.answer.body[:6]) >= least

    async def look() -> None:
        """Without a tag: what it copies from tier to tier has one."""
        least = settled
        found = await stack.lookup(key_of(1))
        assert found is None or int(found.answer.body[:6]) >= least

    async def renew() -> None:
        await stack.renew(RED, call)

    async def change() -> None:
        nonlocal true, settled
        true += 1
        now_true = true
        await stack.clear(chance.choice(WHATS))
        settled = max(settled, now_true)

    work = []
    for name, steps in moves:
        work.append(asyncio.ensure_future({"ask": ask, "look": look, "renew": renew, "change": change}[name]()))
        for _ in range(steps):
            await asyncio.sleep(0)
    await asyncio.gather(*work)
    await ask()
