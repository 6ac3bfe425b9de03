"""Policies in the tiers that a gateway has: what a miss costs, and two arms."""

from __future__ import annotations

from dataclasses import replace

import pytest

from caches.knobs import KnobSettings
from caches.policies.catalog import ADMISSIONS, EVICTIONS
from caches.policies.settings import Gdsf, TinyLfu
from caches.target import Arm, Plan, Split
from caches.tiers.memory import MemoryTier
from caches.tiers.selection import label_bytes
from caches.tiers.split import SplitTier
from tests.contracts.tier_contract import SPACE, START, answer_of, key_of
from tuner.router import assigner

OVERHEAD = 100


def entry_bytes(number: int) -> int:
    return answer_of(number, 100, START).size_bytes + label_bytes(key_of(number)) + OVERHEAD


async def test_the_cost_of_a_miss_is_what_the_backend_took() -> None:
    """Room for two of equal size: GDSF lets go of what was cheapest, whichever was asked for last."""
    tier = MemoryTier(SPACE, entry_overhead_bytes=OVERHEAD, eviction=Gdsf())
    await tier.apply(KnobSettings(2 * entry_bytes(0) + 10, 60.0, 0.0), START)
    for number, seconds in enumerate((5.0, 1.0, 3.0)):
        answer = replace(answer_of(number, 100, START), compute_seconds=seconds)
        assert await tier.store(key_of(number), answer, START)
    assert [await tier.holds(key_of(number), START) for number in range(3)] == [True, False, True]


async def test_what_nobody_asks_for_is_refused_and_a_renewal_is_not() -> None:
    tier = MemoryTier(SPACE, entry_overhead_bytes=OVERHEAD, admission=TinyLfu())
    await tier.apply(KnobSettings(entry_bytes(0), 60.0, 0.0), START)
    for number in (0, 0, 1):
        assert await tier.lookup(key_of(number), START) is None
    assert await tier.store(key_of(0), answer_of(0, 100, START), START)
    assert not await tier.store(key_of(1), answer_of(1, 100, START), START)
    assert (await tier.stats()).refusals == 1
    renewed = answer_of(0, 99, START + 1.0)
    assert await tier.store(key_of(0), renewed, START + 1.0)
    found = await tier.lookup(key_of(0), START + 1.0)
    assert found is not None
    assert found.answer == renewed
    assert await tier.warm(key_of(1), answer_of(1, 100, START), START + 1.0)


@pytest.mark.parametrize("admission", ["all", "tinylfu"])
@pytest.mark.parametrize("name", EVICTIONS)
async def test_arms_exchange_keys_whatever_the_policy(name: str, admission: str) -> None:
    """A split that changes twice, with as many keys as fit: nothing is lost but for space, and space is kept."""
    tier = SplitTier(
        SPACE,
        assigner,
        entry_overhead_bytes=OVERHEAD,
        most_removed=3,
        eviction=EVICTIONS[name],
        admission=ADMISSIONS[admission],
    )
    size = 60 * entry_bytes(0)
    settings = KnobSettings(float(size), 1_000.0, 0.0)
    await tier.apply(settings, START)
    for number in range(40):
        await tier.lookup(key_of(number), START)
        assert await tier.store(key_of(number), answer_of(number, 100, START), START)
    for share in (0.5, 0.2):
        tier.aim(Plan(Split("salt", share), settings, settings), START)
        for _ in range(200):
            if not await tier.tend(START):
                break
        stats = await tier.stats()
        assert stats.used_bytes <= size
        assert stats.entries + stats.evictions + stats.refusals >= 40
        held = [number for number in range(40) if await tier.holds(key_of(number), START)]
        assert len(held) == stats.entries
    assert sum([await tier.delete(key_of(number)) for number in range(40)]) == stats.entries
    assert {arm: one.entries for arm, one in tier.arm_stats().items()} == dict.fromkeys(Arm, 0)
