"""The tier of two arms, each under an eviction policy of its own."""

from __future__ import annotations

from dataclasses import replace

import pytest

from caches.errors import InputError
from caches.keys.request_key import RequestKey
from caches.knobs import KnobSettings
from caches.policies.settings import Lfu, Lru, Sieve, TinyLfu
from caches.target import Arm, Plan, Split
from caches.tiers.split import SplitTier
from tests.caches.tiers.test_split import CONTROL, SIZE, TREATMENT, filled, keys_of, settings_of, settled, split_tier
from tests.contracts.tier_contract import SPACE, START, answer_of
from tuner.router import assign, assigner

HALVES = Split("a", 0.5)


def under(settings: KnobSettings, name: str | None) -> KnobSettings:
    return replace(settings, eviction_policy=name)


def decides(tier: SplitTier) -> dict[Arm, str | None]:
    return {arm: one.eviction_policy for arm, one in zip(Arm, tier.tiers, strict=True)}


async def ask(tier: SplitTier, key: RequestKey, seconds: float) -> bool:
    found = await tier.lookup(key, START + seconds)
    if found is None:
        await tier.store(key, answer_of(1, 100, START), START + seconds)
    return found is not None


async def test_each_arm_goes_by_its_own_policy() -> None:
    """Room for two in each arm, and of three keys the first is asked for most often and longest ago: the least recently
    used of the other two goes under lfu, the first one under lru."""
    tier = split_tier()
    plan = Plan(HALVES, under(settings_of(4), "lru"), under(settings_of(4), "lfu"))
    assert tier.aim(plan, START) == plan == tier.plan
    await settled(tier)
    assert tier.binding() == {CONTROL: plan.control, TREATMENT: plan.treatment}
    for arm, left in ((CONTROL, [False, True, True]), (TREATMENT, [True, False, True])):
        often, once, last = (replace(key, model="model 1") for key in keys_of(arm, HALVES, 3))
        assert [await ask(tier, key, 0.0) for key in (often, often, often, once, last)] == [False, True, True] + [
            False
        ] * 2
        assert [await tier.holds(key, START) for key in (often, once, last)] == left, arm


async def test_a_change_goes_in_steps_and_each_arm_says_what_decides() -> None:
    tier = split_tier(most_removed=3)
    same = settings_of(400)
    tier.aim(Plan(HALVES, same, same), START)
    keys = await filled(tier, 60)
    before = await tier.stats()
    aimed = Plan(HALVES, same, under(same, "sieve"))
    assert tier.aim(aimed, START) == aimed
    assert tier.binding() == {CONTROL: same, TREATMENT: under(same, "lru")}
    assert decides(tier) == {CONTROL: "lru", TREATMENT: "lru"}
    assert await settled(tier) > 5
    assert tier.binding() == {CONTROL: same, TREATMENT: under(same, "sieve")}
    assert decides(tier) == {CONTROL: "lru", TREATMENT: "sieve"}
    assert (await tier.settings()).eviction_policy is None
    assert await tier.stats() == before
    assert all([await tier.holds(key, START) for key in keys])
    tier.aim(Plan(HALVES, same, same), START)
    assert await settled(tier) == 1  # by the order of touches, which is there
    assert decides(tier) == {CONTROL: "lru", TREATMENT: "lru"}


async def test_none_is_what_the_tier_was_made_with() -> None:
    tier = SplitTier(SPACE, assigner, eviction=Sieve(), admission=TinyLfu())
    assert decides(tier) == {CONTROL: "sieve", TREATMENT: "sieve"}
    assert (await tier.settings()).eviction_policy is None
    taken = await tier.apply(under(SPACE.default(), "lru-2"), START)
    assert taken == under(SPACE.default(), "lru-2") == tier.plan.treatment
    assert tier.eviction_policy == "lru-2"
    await tier.apply(SPACE.default(), START)
    assert tier.eviction_policy == "sieve"
    assert [one.cache.admission for one in tier.tiers] == [TinyLfu()] * 2


async def test_one_without_a_name_decides_namelessly() -> None:
    tier = SplitTier(SPACE, assigner, eviction=Lfu(decay=0.5), most_removed=1)
    await filled(tier, 5)
    tier.aim(Plan(Split(), under(SPACE.default(), "sieve"), SPACE.default()), START)
    assert tier.eviction_policy is None
    assert tier.binding() == {CONTROL: SPACE.default()}
    await settled(tier)
    assert tier.eviction_policy == "sieve"


async def test_keys_change_sides_and_policies_change_at_once_and_nothing_is_lost() -> None:
    tier, whole = split_tier(most_removed=3), settings_of(400)
    tier.aim(Plan(HALVES, under(whole, "sieve"), under(whole, "s3-fifo")), START)
    keys = await filled(tier, 150)
    for share, control, treatment in ((0.3, "lfu", "w-tinylfu"), (0.8, "gdsf", "lfu-lru"), (0.4, "lru", "lru-2")):
        split = Split("b", share)
        tier.aim(Plan(split, under(whole, control), under(whole, treatment)), START)
        for _ in range(9):  # on the way, others are asked for and the next aim comes
            await tier.tend(START)
            for key in keys[::7]:
                assert await tier.lookup(key, START) is not None
    await settled(tier)
    assert decides(tier) == {CONTROL: "lru", TREATMENT: "lru-2"}
    assert all([await tier.holds(key, START) for key in keys])
    mine = sum(assign(key.id, split) is TREATMENT for key in keys)
    assert {arm: stats.entries for arm, stats in tier.arm_stats().items()} == {CONTROL: 150 - mine, TREATMENT: mine}
    small = settings_of(60)
    tier.aim(Plan(split, under(small, "lru"), under(small, "lru-2")), START)
    await settled(tier)
    assert (await tier.stats()).used_bytes <= 60 * SIZE
    assert tier.tiers[0].cache.eviction == Lru()


@pytest.mark.parametrize("arm", list(Arm))
async def test_a_policy_that_is_not_offered_changes_nothing(arm: Arm) -> None:
    tier = SplitTier(SPACE, assigner, policies=("lru", "sieve"))
    before = tier.plan
    wrong = replace(before, split=HALVES, **{arm.value: under(settings_of(9), "lfu")})
    with pytest.raises(InputError, match="eviction_policy: got 'lfu', expected of lru, sieve"):
        tier.aim(wrong, START)
    assert tier.plan == before
    with pytest.raises(InputError, match="eviction_policy: got 'gdsf', expected of lru, sieve"):
        await tier.apply(under(settings_of(9), "gdsf"), START)
    assert tier.plan == before
