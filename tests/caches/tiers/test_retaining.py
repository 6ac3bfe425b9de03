"""A tier that keeps longer than it says: to a stack whose lifetimes are fixed it is as any other."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from caches.errors import InputError
from caches.freshness.freshness import Freshness, Rule
from caches.freshness.lifetime import Bounded
from caches.freshness.load_meter import LoadMeter
from caches.freshness.schedules import FIXED, HAZARD, Fixed, schedule_of
from caches.keys.by_name import ByName
from caches.knobs import KnobSettings
from caches.place import Place
from caches.stack import Stack, StackRules
from caches.target import Arm, Plan
from caches.tiers.memory import MemoryTier
from caches.tiers.retaining import RetainingTier, inside, retained
from caches.tiers.split import SplitTier
from caches.tiers.tier import Tier
from tests.contracts.tier_contract import SPACE, START, answer_of, key_of
from tuner.router import assigner

PLAIN = StackRules(0.0, 0.0)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("store"), st.integers(0, 3)),
        st.tuples(st.just("ttl"), st.sampled_from([2.0, 10.0, 50.0])),
        st.tuples(st.just("wait"), st.sampled_from([0.5, 2.0, 30.0])),
        st.tuples(st.just("tend")),
    ),
    max_size=25,
)


def fixed(name: str = FIXED) -> Freshness:
    return Freshness(ByName({}, Rule(name, Bounded(schedule_of(name)))), LoadMeter())


def memory(retention: float) -> Tier:
    return retained(MemoryTier, SPACE, retention)


def test_without_a_retention_there_is_nothing_around_it() -> None:
    assert isinstance(memory(1.0), MemoryTier)
    tier = memory(2.0)
    assert isinstance(tier, RetainingTier)
    assert isinstance(inside(tier), MemoryTier)
    assert inside(inside(tier)) is inside(tier)
    with pytest.raises(InputError, match=r"retention: got 0.5, expected 1 or more"):
        RetainingTier(memory(1.0), 0.5)


@given(steps=STEPS)
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
def test_under_fixed_lifetimes_a_stack_serves_what_it_would_serve_without(steps: list[tuple[Any, ...]]) -> None:
    """But for one thing: what a shortened lifetime ended is there still when it is made longer again, so the lifetime
    only ever falls here."""

    async def scenario() -> None:
        now, ttl = START, 50.0
        stacks = [Stack([Place(memory(times))], PLAIN, clock=lambda: now, freshness=fixed()) for times in (1.0, 3.0)]
        for stack in stacks:
            await stack.places[0].tier.apply(KnobSettings(1e6, ttl, 0.0), now)
        for step in steps:
            if step[0] == "store":
                for stack in stacks:
                    await stack.store(key_of(step[1]), answer_of(step[1], 10, now))
            elif step[0] == "ttl":
                ttl = min(ttl, step[1])
                wished = KnobSettings(1e6, ttl, 0.0)
                assert [await stack.places[0].tier.apply(wished, now) for stack in stacks] == [wished, wished]
                for stack in stacks:
                    await stack.places[0].tend_ttl()
            elif step[0] == "wait":
                now += step[1]
            else:
                for stack in stacks:
                    await stack.tend()
            for number in range(4):
                plain, kept = [await stack.lookup(key_of(number)) for stack in stacks]
                assert (plain is None) == (kept is None), (step, number)
                if plain is not None and kept is not None:
                    assert plain.answer == kept.answer

    asyncio.run(scenario())


def test_settings_are_told_as_they_were_wished_within_the_same_ranges() -> None:
    async def scenario() -> None:
        tier = memory(2.0)
        assert await tier.settings() == SPACE.default()
        wished = KnobSettings(1e5, 123.0, 0.5)
        assert await tier.apply(wished, START) == wished == await tier.settings()
        longest = await tier.apply(replace(wished, ttl_seconds=1e12), START)
        assert longest.ttl_seconds == SPACE.ttl_seconds.high

    asyncio.run(scenario())


def test_a_schedule_may_let_an_entry_live_longer_than_the_base() -> None:
    async def scenario(tier: Tier, expected: list[bool]) -> None:
        now = START
        stack = Stack([Place(tier)], PLAIN, clock=lambda: now, freshness=longer())
        await tier.apply(KnobSettings(1e6, 10.0, 0.0), now)
        await stack.store(key_of(1), answer_of(1, 10, START))
        found = []
        for age in (9.0, 11.0, 19.0, 20.5):
            now = START + age
            await stack.tend()
            found.append(await stack.lookup(key_of(1)) is not None)
        assert found == expected

    asyncio.run(scenario(memory(2.0), [True, True, True, False]))
    asyncio.run(scenario(SplitTier(SPACE, assigner, retention=2.0), [True, True, True, False]))
    asyncio.run(scenario(memory(1.0), [True, False, False, False]))


def test_arms_say_the_lifetimes_that_they_were_given() -> None:
    async def scenario() -> None:
        tier = SplitTier(SPACE, assigner, retention=2.0)
        own = KnobSettings(1e6, 10.0, 0.0)
        taken = tier.aim(Plan(tier.plan.split, own, own), START)
        assert taken.control == own
        assert tier.binding()[Arm.CONTROL] == own
        await tier.store(key_of(1), answer_of(1, 10, START), START)
        found = await tier.lookup(key_of(1), START + 15.0)
        assert found is not None
        assert found.ttl_seconds == 10.0

    asyncio.run(scenario())


def longer() -> Freshness:
    class Twice(Fixed):
        def lifetime(self, entry: Any, context: Any) -> float:
            return 2.0 * float(entry.base_ttl_seconds)

    return Freshness(ByName({}, Rule(HAZARD, Bounded(Twice()))), LoadMeter())


async def test_an_eviction_policy_is_that_of_the_tier_inside() -> None:
    tier = memory(2.0)
    wanted = replace(SPACE.default(), ttl_seconds=20.0, eviction_policy="sieve")
    assert await tier.apply(wanted, START) == wanted == await tier.settings()
    kept = inside(tier)
    assert isinstance(kept, MemoryTier)
    assert (kept.eviction_policy, kept.cache.ttl_seconds) == ("sieve", 40.0)
