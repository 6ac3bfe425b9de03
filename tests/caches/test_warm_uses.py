"""What is counted of warmed entries, by hand and beside a plain record of all that happened."""

from __future__ import annotations

from dataclasses import astuple

from hypothesis import given
from hypothesis import strategies as st

from caches.tiers.memory import MemoryTier
from caches.warm_uses import WarmUses
from tests.contracts.tier_contract import SPACE, START, answer_of, key_of


async def test_hit_useless_and_waiting() -> None:
    uses, tier = WarmUses(), MemoryTier(SPACE)
    for number in range(4):
        await tier.warm(key_of(number), answer_of(number, 10, START), START)
        uses.warmed(key_of(number))
    uses.asked(key_of(0), hit=True)
    uses.asked(key_of(0), hit=True)  # counted once
    uses.asked(key_of(1), hit=False)  # it was gone, though it comes back by this very request
    uses.asked(key_of(9), hit=True)  # nobody warmed it
    await tier.delete(key_of(2))
    await uses.settle(tier, START)
    assert astuple(uses.counts) == (4, 1, 2)  # warmed, hit, useless
    assert len(uses) == 1


async def test_share_of_a_stage() -> None:
    uses, tier = WarmUses(), MemoryTier(SPACE)
    assert uses.share_hit([]) is None
    keys = [key_of(number) for number in range(4)]
    for key in keys:
        uses.warmed(key)
    assert uses.share_hit(keys) == 0.0
    uses.asked(keys[0], hit=True)
    uses.asked(keys[1], hit=False)
    assert uses.share_hit(keys) == 0.25
    assert [uses.knows(key) for key in keys] == [True, False, True, True]
    await uses.settle(tier, START)  # none is there
    assert not any(uses.knows(key) for key in keys)


@given(st.lists(st.tuples(st.sampled_from(["warm", "hit", "miss", "evict"]), st.integers(0, 3)), max_size=60))
async def test_every_warmed_entry_ends_as_one_thing(events: list[tuple[str, int]]) -> None:
    """The record says of each entry how it ended: what was not hit until it left, or was warmed anew, was useless."""
    uses, tier, record = WarmUses(), MemoryTier(SPACE), list[str]()
    waiting: dict[int, int] = {}
    for what, number in events:
        key = key_of(number)
        if what == "warm":
            await tier.warm(key, answer_of(number, 10, START), START)
            uses.warmed(key)
            if number in waiting:
                record[waiting[number]] = "useless"
            waiting[number] = len(record)
            record.append("waiting")
        elif what == "evict":
            await tier.delete(key)
            await uses.settle(tier, START)
            if number in waiting:
                record[waiting.pop(number)] = "useless"
        else:
            uses.asked(key, hit=what == "hit")
            if number in waiting:
                record[waiting.pop(number)] = "hit" if what == "hit" else "useless"
    assert astuple(uses.counts) == (len(record), record.count("hit"), record.count("useless"))
    assert len(uses) == record.count("waiting")
