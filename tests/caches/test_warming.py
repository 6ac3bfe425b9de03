"""Warming: from where, in which order, how fast, and when it stops."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from caches.errors import InputError
from caches.hot_keys import Candidate
from caches.keys.request_key import RequestKey
from caches.tiers.memory import MemoryTier
from caches.tiers.tier import TierError
from caches.warm_uses import WarmUses
from caches.warming import NotRenewed, Surroundings, Warmed, WarmRule, warm
from tests.contracts.tier_contract import SPACE, START, answer_of, key_of

ALL_AT_ONCE = WarmRule(stages=(1.0,), per_second=10.0)


@dataclass
class World:
    """A clock that only sleeping moves. ratios: what the hit ratio is said to be, one after the other; the last stays.
    busy_until: in this world's seconds."""

    now: float = START
    ratios: Sequence[float | None] = (0.5,)
    busy_until: float = 0.0
    asked: int = 0
    renewed: list[RequestKey] = field(default_factory=list)

    async def sleep(self, seconds: float) -> None:
        self.now += seconds

    def hit_ratio(self) -> float | None:
        self.asked += 1
        return self.ratios[min(self.asked, len(self.ratios)) - 1]

    async def renew(self, key: RequestKey) -> None:
        self.renewed.append(key)

    def surroundings(self, renews: bool = False) -> Surroundings:
        return Surroundings(
            lambda: self.now,
            self.sleep,
            lambda: self.now < START + self.busy_until,
            self.hit_ratio,
            self.renew if renews else None,
        )


def candidates(*numbers: int) -> list[Candidate]:
    return [Candidate(key_of(number), 1.0, False) for number in numbers]


async def tiers(lower_has: Sequence[int]) -> tuple[MemoryTier, MemoryTier]:
    upper, lower = MemoryTier(SPACE, "l1"), MemoryTier(SPACE, "l2")
    for number in lower_has:
        await lower.store(key_of(number), answer_of(number, 10, START), START)
    return upper, lower


async def test_what_a_lower_tier_has_is_copied_and_the_rest_left_or_renewed() -> None:
    world = World()
    upper, lower = await tiers([1, 2, 3])
    await upper.store(key_of(1), answer_of(1, 10, START), START)
    assert await warm(upper, [lower], candidates(1, 2, 3, 4), world.surroundings(), ALL_AT_ONCE) == Warmed(1, 2, 0, 1)
    counted = await upper.stats()
    assert (counted.warmups, counted.hits, counted.misses) == (2, 0, 0)
    found = await upper.lookup(key_of(3), world.now)
    assert found is not None
    assert found.answer == answer_of(3, 10, START)  # with the age that it has
    again = await warm(upper, [lower], candidates(1, 2, 3, 4), world.surroundings(renews=True), ALL_AT_ONCE)
    assert again == Warmed(there=3, renewed=1)
    assert world.renewed == [key_of(4)]


async def test_it_keeps_its_rate() -> None:
    world = World()
    upper, lower = await tiers(range(20))
    await warm(upper, [lower], candidates(*range(20)), world.surroundings(), ALL_AT_ONCE)
    assert round(world.now - START, 6) == 2.0  # ten a second


async def test_stages_are_gated_by_the_hit_ratio() -> None:
    rule = WarmRule(stages=(0.05, 0.2, 1.0), per_second=1e9, gate_seconds=10.0, most_lost=0.02)
    for ratios, copied, stopped in (
        ([0.50, 0.49, 0.49, 0.50], 100, None),
        ([0.50, 0.47], 5, "the hit ratio fell from 0.500 to 0.470"),
        ([0.50, 0.50, 0.50, 0.40], 20, "the hit ratio fell from 0.500 to 0.400"),
        ([0.50, None], 5, "nothing was asked for, so nothing is known of the hit ratio"),
    ):
        world = World(ratios=ratios)
        upper, lower = await tiers(range(100))
        found = await warm(upper, [lower], candidates(*range(100)), world.surroundings(), rule)
        assert found == Warmed(copied=copied, stopped=stopped)
        assert await upper.holds(key_of(0), world.now)  # in their order
        assert await upper.holds(key_of(99), world.now) == (copied == 100)


async def test_stages_are_gated_by_what_became_of_the_stage_before() -> None:
    """Of a stage of 5, so many are asked for while its gate is open."""
    rule = WarmRule(stages=(0.05, 1.0), per_second=1e9, least_used=0.4)
    for hits, copied, stopped in (
        (2, 100, None),
        (1, 5, "20.0% of what was warmed was asked for, less than 40.0%"),
    ):
        world = World()
        upper, lower = await tiers(range(100))
        around = world.surroundings()

        async def gated(seconds: float, hits: int = hits, uses: WarmUses = around.uses) -> None:
            if seconds == rule.gate_seconds:
                for number in range(hits):
                    uses.asked(key_of(number), hit=True)

        found = await warm(upper, [lower], candidates(*range(100)), replace(around, sleep=gated), rule)
        assert found == Warmed(copied=copied, stopped=stopped)
        assert (around.uses.counts.warmed, around.uses.counts.hit) == (copied, hits)


async def test_a_gate_stays_closed_until_what_was_warmed_is_asked_for() -> None:
    rule = WarmRule(stages=(0.05, 0.2, 1.0), per_second=1e9, least_used=0.4)
    upper, lower = await tiers(range(100))
    around, every = World().surroundings(), candidates(*range(100))
    for asked_for, there, copied in ((0, 0, 5), (0, 5, 0), (1, 5, 0), (3, 5, 15), (20, 20, 80)):
        for number in range(asked_for):
            around.uses.asked(key_of(number), hit=True)
        found = await warm(upper, [lower], every, around, rule)
        assert (found.there, found.copied) == (there, copied)
        assert (found.stopped is None) == (copied == 80)


async def test_a_stage_that_warms_nothing_has_no_say() -> None:
    upper, lower = await tiers(range(100))
    for number in range(5):
        await upper.store(key_of(number), answer_of(number, 10, START), START)
    rule = WarmRule(stages=(0.05, 1.0), per_second=1e9, least_used=0.4)
    found = await warm(upper, [lower], candidates(*range(100)), World().surroundings(), rule)
    assert found == Warmed(there=5, copied=95)


async def test_so_many_backend_calls_at_once_and_a_stage_ends_with_its_calls() -> None:
    world, running, most = World(), 0, 0

    async def renew(key: RequestKey) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(5):
            await asyncio.sleep(0)
        running -= 1
        if key == key_of(3):
            raise NotRenewed("told to fail")

    async def sleep(seconds: float) -> None:
        await asyncio.sleep(0)

    told: list[Warmed] = []
    around = replace(world.surroundings(), renew=renew, sleep=sleep, told=told.append)
    found = await warm(MemoryTier(SPACE), [], candidates(*range(9)), around, WarmRule(stages=(1.0,), backend_calls=3))
    assert found == Warmed(renewed=8, left=1) == told[-1]
    assert (most, running) == (3, 0)


async def test_who_ends_a_warm_up_ends_its_calls() -> None:
    begun, ended = list[RequestKey](), list[RequestKey]()

    async def renew(key: RequestKey) -> None:
        begun.append(key)
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append(key)

    around = replace(World().surroundings(), renew=renew, sleep=asyncio.sleep)
    rule = WarmRule(stages=(1.0,), backend_calls=2, per_second=1e6)
    warming = asyncio.create_task(warm(MemoryTier(SPACE), [], candidates(1, 2, 3), around, rule))
    while len(begun) < 2:
        await asyncio.sleep(0.001)
    warming.cancel()
    await asyncio.gather(warming, return_exceptions=True)
    assert warming.cancelled()
    assert sorted(key.question or "" for key in ended) == ["question 1", "question 2"]


@pytest.mark.parametrize(
    "wrong",
    [{"stages": ()}, {"stages": (0.5,)}, {"stages": (0.5, 0.2, 1.0)}, {"per_second": 0.0}, {"least_used": -1.0}],
)
def test_bad_rules_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(wrong))):
        WarmRule(**wrong)


async def test_while_it_is_busy_it_waits_and_in_the_end_gives_up() -> None:
    upper, lower = await tiers([1, 2])
    world = World(busy_until=5.0)
    found = await warm(upper, [lower], candidates(1), world.surroundings(), ALL_AT_ONCE)
    assert found == Warmed(copied=1, paused_seconds=5.0)
    assert world.now - START >= 5.0
    world = World(busy_until=1e9)
    found = await warm(upper, [lower], candidates(2), world.surroundings(), ALL_AT_ONCE)
    assert found == Warmed(paused_seconds=60.0, stopped="it was busy for 60 s")
    assert not await upper.holds(key_of(2), START)


async def test_a_tier_that_fails_leaves_its_candidates_and_no_candidates_are_nothing() -> None:
    class Failing(MemoryTier):
        async def holds(self, key: RequestKey, now_seconds: float) -> bool:
            raise TierError("tier l2: told to fail")

    upper = MemoryTier(SPACE, "l1")
    found = await warm(upper, [Failing(SPACE)], candidates(1, 2), World().surroundings(), ALL_AT_ONCE)
    assert found == Warmed(left=2)
    assert await warm(upper, [], [], World().surroundings()) == Warmed()
