"""The tier of two arms: by the contract of all tiers, whole where one arm has all keys and per arm where both have
some, and by what it says of arms."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caches.keys.request_key import RequestKey
from caches.knobs import KnobSettings, KnobSpace
from caches.policies.catalog import EVICTIONS
from caches.target import Arm, Plan, Split
from caches.tiers.selection import Selection, label_bytes
from caches.tiers.split import SplitTier
from caches.tiers.tier import Answer, Tier
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
)
from tests.contracts.tier_model import LRU_STEPS, Walk
from tuner.router import assign, assigner

OVERHEAD = 100
SIZE = OVERHEAD + 106 + len("model 1")  # of an entry with a body of a hundred and a number
CONTROL, TREATMENT = Arm.CONTROL, Arm.TREATMENT


def split_tier(space: KnobSpace = SPACE, most_removed: int = 3) -> SplitTier:
    return SplitTier(space, assigner, entry_overhead_bytes=OVERHEAD, most_removed=most_removed)


def split_at(share: float) -> Callable[[KnobSpace], AbstractAsyncContextManager[Tier]]:
    @asynccontextmanager
    async def empty(space: KnobSpace) -> AsyncIterator[Tier]:
        tier = split_tier(space)
        tier.aim(replace(tier.plan, split=Split("salt", share)), START)
        yield tier

    return empty


def entry_bytes(key: RequestKey, answer: Answer) -> int:
    return len(answer.body) + label_bytes(key) + OVERHEAD


class TestAllKeysAreControls(TierContract):
    subject = Subject(split_at(0.0), entry_bytes, 3, tuple(EVICTIONS))


class TestAllKeysAreTreatments(TierContract):
    subject = Subject(split_at(1.0), entry_bytes, 3, tuple(EVICTIONS))


@dataclass
class ArmsModel(Model):
    """Order and capacity hold within an arm."""

    split: Split = field(default_factory=Split)

    def room(self, arm: Arm) -> int:
        treatment = int(self.split.treatment * self.capacity)
        return treatment if arm is TREATMENT else int(self.capacity) - treatment

    def of(self, arm: Arm) -> list[RequestKey]:
        return [key for key in self.held if assign(key.id, self.split) is arm]

    def make_room(self, arm: Arm) -> None:
        while sum(self.entry_bytes(*self.held[key]) for key in self.of(arm)) > self.room(arm):
            self.drop(self.of(arm)[0])

    def store(self, key: RequestKey, answer: Answer, now: float) -> bool:
        if answer.outlived(self.ttl, now):
            return False
        plain, arm = replace(key, tags=frozenset()), assign(key.id, self.split)
        self.drop(plain)
        if self.entry_bytes(key, answer) > self.room(arm):
            return False
        self.held[plain] = key, answer
        self.make_room(arm)
        return True


class ArmsWalk(Walk):
    async def size(self, entries: float) -> None:
        assert isinstance(self.model, ArmsModel)
        self.model.capacity = max(float(int(entries * entry_bytes(key_of(1), answer_of(1, 30, START)))), 1.0)
        for arm in Arm:
            self.model.make_room(arm)
        await self.tier.apply(KnobSettings(self.model.capacity, self.model.ttl, 0.0), self.now)
        while await self.tier.tend(self.now):
            pass
        assert (await self.tier.settings()).cache_size == self.model.capacity


async def run_arms(subject: Subject, split: Split, steps: list[tuple[object, ...]]) -> None:
    async with subject.make(SPACE) as tier:
        walk = ArmsWalk(tier, ArmsModel(ROOM, ENDLESS, entry_bytes, split=split), subject)
        for step in steps:
            walk.model.age(walk.now)
            await getattr(walk, str(step[0]))(*step[1:])
            found = await tier.stats()
            assert found.used_bytes <= (await tier.settings()).cache_size
            assert walk.model.used - walk.doubted() <= found.used_bytes <= walk.model.used
            assert found.hits + found.misses == walk.lookups


class TestBothArmsHaveKeys(TierContract):
    """Order and capacity hold within an arm: what is about one order of all entries has its own model here."""

    share = 0.5
    subject = Subject(split_at(share), entry_bytes, 3, tuple(EVICTIONS))

    test_the_least_recently_touched_goes_and_a_lookup_touches = None  # type: ignore[assignment]
    test_a_count_touches_nothing = None  # type: ignore[assignment]
    test_what_is_held_can_be_asked_without_touching_or_counting = None  # type: ignore[assignment]
    test_size_binds_though_every_entry_has_a_lifetime = None  # type: ignore[assignment]
    test_a_smaller_capacity_is_reached_in_steps = None  # type: ignore[assignment]

    @QUICKLY
    @given(steps=STEPS)
    def test_with_room_for_all_hits_follow_from_lifetimes(self, steps: list[tuple[object, ...]]) -> None:
        asyncio.run(run_arms(self.subject, Split("salt", self.share), steps))

    @QUICKLY
    @given(steps=LRU_STEPS, room=st.floats(0.3, 4.0))
    def test_without_ageing_hits_follow_from_the_last_touch(self, steps: list[tuple[object, ...]], room: float) -> None:
        asyncio.run(run_arms(self.subject, Split("salt", self.share), [("size", room), *steps]))


class TestAFewKeysAreTreatments(TestBothArmsHaveKeys):
    share = 0.2
    subject = Subject(split_at(share), entry_bytes, 3, tuple(EVICTIONS))


def keys_of(arm: Arm, split: Split, count: int) -> list[RequestKey]:
    found = [key for key in map(key_of, range(20 * count)) if assign(key.id, split) is arm]
    return found[:count]


def settings_of(entries: float, ttl_seconds: float = ENDLESS, warmup_ratio: float = 0.0) -> KnobSettings:
    return KnobSettings(entries * SIZE, ttl_seconds, warmup_ratio)


async def filled(tier: SplitTier, count: int, now: float = START) -> list[RequestKey]:
    """With so many entries of equal size, all of tags and model alike."""
    keys = [replace(key_of(number), model="model 1") for number in range(count)]
    for number, key in enumerate(keys):
        await tier.store(key, answer_of(number, 100, now), now)
    return keys


async def settled(tier: SplitTier, now: float = START) -> int:
    """The number of steps."""
    steps = 1
    while await tier.tend(now):
        steps += 1
    return steps


async def held(tier: SplitTier, keys: list[RequestKey]) -> list[bool]:
    return [await tier.holds(key, START) for key in keys]


async def test_each_arm_has_its_own_settings_and_its_share_of_its_capacity() -> None:
    tier, split = split_tier(), Split("a", 0.25)
    plan = Plan(split, settings_of(40, 50.0, 0.1), settings_of(80, 10.0, 0.7))
    assert tier.aim(plan, START) == plan == tier.plan
    await settled(tier)
    await filled(tier, 500)
    assert {arm: stats.entries for arm, stats in tier.arm_stats().items()} == {CONTROL: 30, TREATMENT: 20}
    assert tier.binding() == {CONTROL: plan.control, TREATMENT: plan.treatment}
    assert await tier.settings() == KnobSettings(50.0 * SIZE, 50.0, 0.1)
    (control,), (treatment,) = keys_of(CONTROL, split, 1), keys_of(TREATMENT, split, 1)
    for key in (control, treatment):
        await tier.store(key, answer_of(1, 100, START), START)
    found = [await tier.lookup(key, START + 9.0) for key in (control, treatment)]
    assert [None if one is None else one.ttl_seconds for one in found] == [50.0, 10.0]
    assert [await tier.holds(key, START + 10.0) for key in (control, treatment)] == [True, False]


async def test_an_arm_without_a_share_holds_nothing_and_is_no_part_of_what_binds() -> None:
    tier = split_tier()
    small = settings_of(7, 3.0)
    tier.aim(Plan(Split("a", 1.0), settings_of(90), small), START)
    await settled(tier)
    await filled(tier, 20)
    assert {arm: stats.entries for arm, stats in tier.arm_stats().items()} == {CONTROL: 0, TREATMENT: 7}
    assert tier.binding() == {TREATMENT: small}
    assert await tier.settings() == small


async def test_what_is_applied_through_the_seam_counts_for_both_arms() -> None:
    tier = split_tier()
    tier.aim(Plan(Split("a", 0.5), settings_of(40), settings_of(20, 5.0)), START)
    taken = await tier.apply(settings_of(10, 7.0), START)
    assert tier.plan == Plan(Split("a", 0.5), taken, taken)


async def test_a_ramp_from_5_to_20_percent_loses_nothing_and_never_exceeds_the_capacity() -> None:
    tier, whole = split_tier(most_removed=10), settings_of(400)
    tier.aim(Plan(Split("a", 0.05), whole, whole), START)
    keys = await filled(tier, 350)
    before = sum(await held(tier, keys))
    wider = Split("a", 0.2)
    tier.aim(Plan(wider, whole, whole), START)
    moving = [key for key in keys if assign(key.id, Split("a", 0.05)) is not assign(key.id, wider)]
    most = 0
    while await tier.tend(START):
        most = max(most, (await tier.stats()).used_bytes)
        assert (await tier.settings()).cache_size <= whole.cache_size
    assert most <= whole.cache_size
    assert sum(await held(tier, keys)) == before
    assert tier.arm_stats()[TREATMENT].entries == len([key for key in keys if assign(key.id, wider) is TREATMENT])
    assert (await tier.stats()).deletes == (await tier.stats()).expirations == 0
    for key in moving:
        assert await tier.lookup(key, START) is not None
    assert tier.arm_stats()[TREATMENT].hits == len(moving)


async def test_in_a_full_cache_a_ramp_evicts_little_and_in_steps() -> None:
    """Forty of four hundred entries at most: what the shares of the keys here differ from those of the capacity."""
    tier, whole = split_tier(most_removed=10), settings_of(400)
    tier.aim(Plan(Split("a", 0.05), whole, whole), START)
    keys = await filled(tier, 1_000)
    before = await tier.stats()
    assert before.used_bytes == 400 * SIZE
    tier.aim(Plan(Split("a", 0.2), whole, whole), START)
    entries = [before.entries]
    while await tier.tend(START):
        found = await tier.stats()
        assert found.used_bytes <= (await tier.settings()).cache_size <= whole.cache_size
        entries.append(found.entries)
    assert max(a - b for a, b in itertools.pairwise(entries)) <= 20
    assert tier.arm_stats()[TREATMENT].entries >= 60
    assert sum(await held(tier, keys)) == (await tier.stats()).entries >= 360


async def test_what_is_asked_for_is_handed_over_at_once_with_its_age_and_lifetime() -> None:
    tier, split = split_tier(), Split("a", 0.5)
    mine = keys_of(TREATMENT, split, 3)
    answers = [replace(answer_of(one, 100, START - 3.0, 8.0), prompt_tokens=9) for one in range(3)]
    for key, answer in zip(mine, answers, strict=True):
        await tier.store(key, answer, START)
    whole = tier.plan.control
    tier.aim(Plan(split, whole, whole), START)
    assert tier.arm_stats()[CONTROL].entries == 3
    found = await tier.lookup(mine[0], START + 4.9)
    assert found is not None
    assert found.answer == answers[0]
    assert await tier.holds(mine[1], START + 4.9)
    assert tier.arm_stats()[CONTROL].entries == 1
    assert tier.arm_stats()[TREATMENT].hits == 1
    assert [await tier.holds(key, START + 5.0) for key in mine] == [False] * 3


async def test_a_key_that_changed_sides_and_was_stored_anew_has_only_its_new_answer() -> None:
    tier, split = split_tier(), Split("a", 0.5)
    (key,) = keys_of(TREATMENT, split, 1)
    await tier.store(key, answer_of(1, 100, START), START)
    whole = tier.plan.control
    tier.aim(Plan(split, whole, whole), START)
    await tier.store(key, answer_of(2, 100, START), START)
    tier.aim(Plan(Split(), whole, whole), START)
    found = await tier.lookup(key, START)
    assert found is not None
    assert found.answer.body.startswith(b"000002")
    assert (await tier.stats()).entries == 1
    assert await tier.delete(key)
    assert not await tier.delete(key)


async def test_an_entry_that_is_too_old_for_its_new_arm_is_not_taken_over() -> None:
    tier, split = split_tier(), Split("a", 0.5)
    (key,) = keys_of(TREATMENT, split, 1)
    await tier.store(key, answer_of(1, 100, START), START)
    tier.aim(Plan(split, tier.plan.control, settings_of(100, 5.0)), START + 5.0)
    assert await tier.lookup(key, START + 5.0) is None
    await settled(tier, START + 5.0)
    assert (await tier.stats()).expirations == 1
    assert (await tier.stats()).entries == 0


async def test_another_salt_exchanges_keys_and_keeps_most_of_a_full_cache() -> None:
    tier, whole = split_tier(most_removed=50), settings_of(400)
    tier.aim(Plan(Split("a", 0.5), whole, whole), START)
    keys = await filled(tier, 1_500)
    tier.aim(Plan(Split("b", 0.5), whole, whole), START)
    await settled(tier)
    assert sum(await held(tier, keys)) >= 340
    for arm, stats in tier.arm_stats().items():
        assert stats.used_bytes <= whole.cache_size / 2, arm
    for key in keys:
        await tier.lookup(key, START)
    hits = {arm: stats.hits for arm, stats in tier.arm_stats().items()}
    assert hits == {arm: stats.entries for arm, stats in tier.arm_stats().items()}


async def test_nothing_that_changes_sides_escapes_an_invalidation() -> None:
    """Housekeeping and requests go on while it works through more entries than it takes at a time."""
    tier, whole, number = split_tier(most_removed=500), settings_of(40_000), 9_000
    keys = await filled(tier, number)
    tier.aim(Plan(Split("a", 0.5), whole, whole), START)
    clearing = asyncio.create_task(tier.clear(Selection(PARTITIONS[0])))
    asked = 0
    while not clearing.done():
        await tier.tend(START)
        await tier.lookup(keys[-1 - asked % number], START)
        asked += 7
        await asyncio.sleep(0)
    assert await clearing >= number - asked
    await settled(tier)
    assert (await tier.stats()).entries == 0


async def test_the_hand_over_is_in_steps_and_others_have_their_turn_between_them() -> None:
    tier, whole = split_tier(most_removed=50), settings_of(40_000)
    keys = await filled(tier, 5_000)
    tier.aim(Plan(Split("a", 0.5), whole, whole), START)
    changed = len([key for key in keys if assign(key.id, Split("a", 0.5)) is TREATMENT])
    moved = [0]

    async def looks() -> None:
        while True:
            moved.append(tier.arm_stats()[TREATMENT].entries)
            await asyncio.sleep(0)

    looking = asyncio.create_task(looks())
    await settled(tier)
    looking.cancel()
    assert (
        max(b - a for a, b in itertools.pairwise(moved)) <= 100
    )  # two steps: the last of a call, the first of the next
    assert tier.arm_stats()[TREATMENT].entries == changed


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
async def test_the_same_plan_again_changes_nothing(share: float) -> None:
    tier = split_tier()
    plan = Plan(Split("a", share), settings_of(40, 9.0), settings_of(30, 8.0))
    tier.aim(plan, START)
    await filled(tier, 100)
    await settled(tier)
    before = tier.arm_stats(), tier.binding(), await tier.settings()
    tier.aim(plan, START)
    assert (tier.arm_stats(), tier.binding(), await tier.settings()) == before
    assert not await tier.tend(START)
