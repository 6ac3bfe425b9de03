"""Warming: from where, in which order, how fast, and when it stops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from caches.hot_keys import Candidate
from caches.keys.request_key import RequestKey
from caches.tiers.memory import MemoryTier
from caches.tiers.tier import TierError
from caches.warming import Surroundings, Warmed, WarmRule, warm
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


async def test_while_it_is_busy_it_waits_and_in_the_end_gives_up() -> None:
    upper, lower = await tiers([1, 2])
    world = World(busy_until=5.0)
    found = await warm(upper, [lower], candidates(1), world.surroundings(), ALL_AT_ONCE)
    assert found == Warmed(copied=1)
    assert world.now - START >= 5.0
    world = World(busy_until=1e9)
    found = await warm(upper, [lower], candidates(2), world.surroundings(), ALL_AT_ONCE)
    assert found == Warmed(stopped="it was busy for 60 s")
    assert not await upper.holds(key_of(2), START)


async def test_a_tier_that_fails_leaves_its_candidates_and_no_candidates_are_nothing() -> None:
    class Failing(MemoryTier):
        async def holds(self, key: RequestKey, now_seconds: float) -> bool:
            raise TierError("tier l2: told to fail")

    upper = MemoryTier(SPACE, "l1")
    found = await warm(upper, [Failing(SPACE)], candidates(1, 2), World().surroundings(), ALL_AT_ONCE)
    assert found == Warmed(left=2)
    assert await warm(upper, [], [], World().surroundings()) == Warmed()
