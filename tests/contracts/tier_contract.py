"""One contract for every tier of the live cache: sequences of calls beside a model that keeps a plain list.

Three families, because tiers may remove what is too old when they like as long as they never serve it: with room for
everything, hits follow from lifetimes alone; with endless lifetimes, from what was least recently touched; and whatever
happens, the limits hold.
"""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caches.errors import InputError
from caches.keys.request_key import RequestKey
from caches.knobs import KnobSettings
from caches.place import Place
from caches.stack import Stack, StackRules
from caches.tiers.selection import Selection
from caches.tiers.tier import Answer, Tier
from tests.contracts.tier_model import (
    ENDLESS,
    FEW,
    FLUSH_STEPS,
    LRU_STEPS,
    PARTITIONS,
    QUICKLY,
    ROOM,
    SPACE,
    START,
    STEPS,
    Model,
    Subject,
    answer_of,
    key_of,
    run,
    with_tier,
)

__all__ = (
    "ENDLESS",
    "PARTITIONS",
    "QUICKLY",
    "ROOM",
    "SPACE",
    "START",
    "STEPS",
    "Model",
    "Subject",
    "TierContract",
    "answer_of",
    "key_of",
    "with_tier",
)


class TierContract:
    """Subclass it in a test module, with a fixture or attribute `subject`."""

    subject: Subject

    @QUICKLY
    @given(steps=STEPS)
    def test_with_room_for_all_hits_follow_from_lifetimes(self, steps: list[tuple[object, ...]]) -> None:
        asyncio.run(run(self.subject, steps))

    @QUICKLY
    @given(steps=LRU_STEPS, room=st.floats(0.3, 4.0))
    def test_without_ageing_hits_follow_from_the_last_touch(self, steps: list[tuple[object, ...]], room: float) -> None:
        asyncio.run(run(self.subject, [("size", room), *steps]))

    def test_an_answer_comes_back_as_it_was(self) -> None:
        async def scenario(tier: Tier) -> None:
            answer = Answer(bytes(range(256)) * 4, START - 3.0, 60.0, 123, 45, 0.25)
            assert await tier.store(key_of(1), answer, START)
            found = await tier.lookup(key_of(1), START + 1)
            assert found is not None
            assert found.answer == answer
            assert found.similarity == 1.0

        with_tier(self.subject, scenario)

    def test_no_answer_crosses_a_partition(self) -> None:
        async def scenario(tier: Tier) -> None:
            for index in range(3):
                assert await tier.store(key_of(1, index), answer_of(index, 10, START), START)
            assert not await tier.delete(key_of(2, 0))
            assert await tier.clear(Selection(PARTITIONS[1])) == 1
            found = await tier.batch_lookup([key_of(1, index) for index in range(3)], START)
            assert [None if one is None else one.answer.body[:6] for one in found] == [b"000000", None, b"000002"]

        with_tier(self.subject, scenario)

    def test_an_invalidation_takes_what_its_model_and_tag_say_and_counts_it_before(self) -> None:
        stored = {1: (), 2: ("red",), 3: ("blue", "red"), 4: ("blue",), 5: ("red",), 6: ()}
        here = PARTITIONS[0]
        takes = {
            Selection(here, "model"): (),
            Selection(here, tag="re"): (),
            Selection(here, "model 1", "red"): (3, 5),
            Selection(here, tag="blue"): (4,),  # 3 has gone
            Selection(here, "model 0"): (2, 6),
            Selection(here): (1,),
        }

        async def scenario(tier: Tier) -> None:
            for number, tags in stored.items():
                for partition in (0, 1):
                    await tier.store(key_of(number, partition, tags), answer_of(number, 10, START), START)
            gone: set[int] = set()
            for selection, numbers in takes.items():
                assert await tier.count(selection) == len(numbers), selection
                assert await tier.clear(selection) == len(numbers), selection
                assert await tier.count(selection) == 0
                gone |= set(numbers)
                held = [await tier.holds(key_of(number), START) for number in stored]
                assert held == [number not in gone for number in stored], selection
            found = await tier.stats()
            assert (found.deletes, found.hits, found.misses) == (6, 0, 0)
            assert await tier.count(Selection(PARTITIONS[1])) == 6

        with_tier(self.subject, scenario)

    def test_the_tags_are_those_of_the_request_that_stored_it_last(self) -> None:
        async def scenario(tier: Tier) -> None:
            await tier.store(key_of(1, 0, ("red", "blue")), answer_of(1, 10, START), START)
            found = await tier.lookup(key_of(1, 0, ("green",)), START)
            assert found is not None
            assert found.tags == {"red", "blue"}
            await tier.store(key_of(1, 0, ("green",)), answer_of(1, 10, START), START)
            assert await tier.count(Selection(PARTITIONS[0], tag="red")) == 0
            assert await tier.count(Selection(PARTITIONS[0], tag="green")) == 1

        with_tier(self.subject, scenario)

    def test_a_count_touches_nothing(self) -> None:
        async def scenario(tier: Tier) -> None:
            each = self.subject.entry_bytes(key_of(1), answer_of(1, 100, START))
            await tier.apply(KnobSettings(2.0 * each, ENDLESS, 0.0), START)
            for number in (1, 2):
                await tier.store(key_of(number), answer_of(number, 100, START), START)
            before = await tier.stats()
            assert await tier.count(Selection(PARTITIONS[0], "model 1")) == 1
            assert await tier.count(Selection(PARTITIONS[0])) == 2
            assert await tier.stats() == before
            await tier.store(key_of(3), answer_of(3, 100, START), START)
            assert [await tier.holds(key_of(number), START) for number in (1, 2, 3)] == [False, True, True]

        with_tier(self.subject, scenario)

    def test_labels_of_any_text_and_length_are_told_apart(self) -> None:
        names = ("", "a", "A", "é", 'b"\\', "c\nd", "null", "2", "m" * 3_000, "m" * 2_999 + "n")

        async def scenario(tier: Tier) -> None:
            for number, name in enumerate(names):
                key = replace(key_of(number), model=name, tags=frozenset({f"{number}"}))
                await tier.store(key, answer_of(number, 10, START), START)
            for number, name in enumerate(names):
                assert await tier.clear(Selection(PARTITIONS[0], name, f"{number + 1}")) == 0
                assert await tier.clear(Selection(PARTITIONS[0], name)) == 1, name
                assert not await tier.holds(key_of(number), START)

        with_tier(self.subject, scenario)

    @FEW
    @given(steps=FLUSH_STEPS)
    def test_a_flush_outdates_what_was_written_before_it_and_nothing_else(self, steps: list[tuple[Any, ...]]) -> None:
        """In a stack over this tier, beside a list of all that was stored and all that was flushed."""

        async def scenario(tier: Tier) -> None:
            now, stored, flushes = START, dict[RequestKey, tuple[RequestKey, Answer]](), list[tuple[Selection, float]]()
            stack = Stack([Place(tier)], StackRules(0.0, 0.0), clock=lambda: now)
            for step in steps:
                now += 1.0
                if step[0] == "store":
                    _, number, where, age, tags = step
                    answer = answer_of(number, 10, now - age)
                    await stack.store(key_of(number, where, tags), answer)
                    stored[key_of(number, where)] = key_of(number, where, tags), answer
                elif step[0] == "flush":
                    selection = Selection(PARTITIONS[step[1]], *step[2:])
                    flushes.append((selection, stack.flush(selection)))
                else:
                    await stack.tend()
                for plain, (by, answer) in stored.items():
                    gone = any(one.takes(by) and answer.written_seconds <= at for one, at in flushes)
                    served = await stack.lookup(plain)
                    assert (None if served is None else served.answer) == (None if gone else answer), (step, plain)

        with_tier(self.subject, scenario)

    def test_more_than_one_step_takes_is_cleared(self) -> None:
        async def scenario(tier: Tier) -> None:
            keys = [key_of(number, 0, ("red",) if number % 3 == 0 else ()) for number in range(1_500)]
            await asyncio.gather(*(self._store_all(tier, keys[first::10]) for first in range(10)))
            red = Selection(PARTITIONS[0], tag="red")
            assert await tier.count(red) == 500
            assert await tier.clear(red) == 500
            assert await tier.clear(Selection(PARTITIONS[0])) == 1_000

        with_tier(self.subject, scenario)

    async def _store_all(self, tier: Tier, keys: list[RequestKey]) -> None:
        for key in keys:
            await tier.store(key, answer_of(1, 10, START), START)

    def test_a_read_never_renews_a_lifetime(self) -> None:
        async def scenario(tier: Tier) -> None:
            taken = await tier.apply(KnobSettings(ROOM, 10.0, 0.0), START)
            assert taken.ttl_seconds == 10.0
            await tier.store(key_of(1), answer_of(1, 10, START), START)
            for second in range(1, 10):
                assert await tier.lookup(key_of(1), START + second) is not None
            assert await tier.lookup(key_of(1), START + 10) is None

        with_tier(self.subject, scenario)

    def test_the_least_recently_touched_goes_and_a_lookup_touches(self) -> None:
        async def scenario(tier: Tier) -> None:
            each = self.subject.entry_bytes(key_of(1), answer_of(1, 100, START))
            await tier.apply(KnobSettings(3.0 * each, ENDLESS, 0.0), START)
            for number in (1, 2, 3):
                await tier.store(key_of(number), answer_of(number, 100, START), START)
            assert await tier.lookup(key_of(1), START) is not None
            await tier.store(key_of(4), answer_of(4, 100, START), START)
            found = await tier.batch_lookup([key_of(number) for number in (1, 2, 3, 4)], START)
            assert [one is not None for one in found] == [True, False, True, True]

        with_tier(self.subject, scenario)

    def test_an_entrys_own_lifetime_can_only_shorten_and_age_runs_from_the_write(self) -> None:
        async def scenario(tier: Tier) -> None:
            await tier.apply(KnobSettings(ROOM, 10.0, 0.0), START)
            await tier.store(key_of(1), answer_of(1, 10, START, 4.0), START)
            await tier.store(key_of(2), answer_of(2, 10, START, 99.0), START)
            await tier.store(key_of(3), answer_of(3, 10, START - 7.0), START)  # written elsewhere, seven seconds ago
            assert not await tier.store(key_of(4), answer_of(4, 10, START - 10.0), START)
            expected = {0.0: [1, 2, 3], 3.0: [1, 2], 4.0: [2], 9.5: [2], 10.0: []}
            for seconds, numbers in expected.items():
                found = await tier.batch_lookup([key_of(number) for number in (1, 2, 3, 4)], START + seconds)
                assert [n for n, one in zip((1, 2, 3, 4), found, strict=True) if one is not None] == numbers, seconds

        with_tier(self.subject, scenario)

    def test_a_change_of_the_lifetime_counts_for_what_is_there(self) -> None:
        async def scenario(tier: Tier) -> None:
            await tier.apply(KnobSettings(ROOM, 10.0, 0.0), START)
            await tier.store(key_of(1), answer_of(1, 10, START), START)
            await tier.apply(KnobSettings(ROOM, 100.0, 0.0), START + 9)
            assert await tier.lookup(key_of(1), START + 60) is not None
            await tier.apply(KnobSettings(ROOM, 50.0, 0.0), START + 60)
            assert await tier.lookup(key_of(1), START + 60) is None

        with_tier(self.subject, scenario)

    def test_housekeeping_removes_what_is_too_old(self) -> None:
        async def scenario(tier: Tier) -> None:
            for number in range(8):
                await tier.store(key_of(number), answer_of(number, 10, START), START)
            await tier.apply(KnobSettings(ROOM, 5.0, 0.0), START + 1)
            while await tier.tend(START + 6):
                pass
            found = await tier.stats()
            assert (found.entries, found.used_bytes, found.expirations) == (0, 0, 8)

        with_tier(self.subject, scenario)

    def test_what_is_held_can_be_asked_without_touching_or_counting(self) -> None:
        async def scenario(tier: Tier) -> None:
            each = self.subject.entry_bytes(key_of(1), answer_of(1, 100, START))
            await tier.apply(KnobSettings(2.0 * each, 50.0, 0.0), START)
            for number in (1, 2):
                await tier.store(key_of(number), answer_of(number, 100, START, 20.0), START)
            before = await tier.stats()
            assert [await tier.holds(key_of(number), START + 1) for number in (1, 2, 3)] == [True, True, False]
            assert not await tier.holds(key_of(1, 1), START + 1)
            assert await tier.stats() == before
            await tier.store(key_of(3), answer_of(3, 100, START + 2), START + 2)
            held = [await tier.holds(key_of(number), START + 2) for number in (1, 2, 3)]
            assert held == [False, True, True]  # asking did not make the first one the latest
            assert not await tier.holds(key_of(2), START + 20)

        with_tier(self.subject, scenario)

    def test_size_binds_though_every_entry_has_a_lifetime(self) -> None:
        async def scenario(tier: Tier) -> None:
            each = self.subject.entry_bytes(key_of(1), answer_of(1, 100, START))
            await tier.apply(KnobSettings(3.5 * each, ENDLESS, 0.0), START)
            for number in range(20):
                await tier.store(key_of(number), answer_of(number, 100, START, 1_000.0), START)
                assert (await tier.stats()).used_bytes <= (await tier.settings()).cache_size
            assert (await tier.stats()).entries == 3

        with_tier(self.subject, scenario)

    def test_a_smaller_capacity_is_reached_in_steps(self) -> None:
        most = self.subject.most_removed

        async def scenario(tier: Tier) -> None:
            for number in range(4 * most):
                await tier.store(key_of(number), answer_of(number, 100, START), START)
            each = self.subject.entry_bytes(key_of(0), answer_of(0, 100, START))
            taken = await tier.apply(KnobSettings(float(most * each + 1), ENDLESS, 0.0), START)
            assert taken.cache_size == most * each + 1
            assert (await tier.stats()).entries == 4 * most
            counted = [4 * most]
            for _ in range(10):
                assert (await tier.settings()).cache_size >= (await tier.stats()).used_bytes
                more = await tier.tend(START)
                counted.append((await tier.stats()).entries)
                if not more:
                    break
            assert counted[-1] == most
            assert max(before - after for before, after in itertools.pairwise(counted)) <= most
            assert await tier.settings() == taken
            assert await tier.lookup(key_of(0), START) is None  # the least recently touched went
            assert await tier.lookup(key_of(4 * most - 1), START) is not None

        with_tier(self.subject, scenario)

    def test_what_is_asked_for_stays_within_the_operators_limits_and_is_read_back(self) -> None:
        async def scenario(tier: Tier) -> None:
            assert await tier.settings() == SPACE.default()
            taken = await tier.apply(KnobSettings(1e12, 0.001, 0.5), START)
            assert taken == KnobSettings(ROOM, 1.0, 0.5)
            assert await tier.settings() == taken
            undone = await tier.apply(SPACE.default(), START)
            assert await tier.settings() == undone == SPACE.default()

        with_tier(self.subject, scenario)

    def test_an_eviction_policy_is_taken_where_there_is_a_choice_and_none_where_there_is_not(self) -> None:
        offered = self.subject.policies

        async def scenario(tier: Tier) -> None:
            for number in range(20):
                await tier.store(key_of(number), answer_of(number, 10, START), START)
            before = replace(await tier.stats(), used_bytes=0)  # which a server of its own counts with all that it does
            for name in ("sieve", "w-tinylfu", None, "lru"):
                taken = await tier.apply(replace(SPACE.default(), eviction_policy=name), START)
                assert taken == replace(SPACE.default(), eviction_policy=name if offered else None)
                while await tier.tend(START):
                    pass
                assert await tier.settings() == taken
            assert replace(await tier.stats(), used_bytes=0) == before
            wrong = replace(SPACE.default(), ttl_seconds=77.0, eviction_policy="crystal-ball")
            if not offered:
                assert await tier.apply(wrong, START) == replace(wrong, eviction_policy=None)
                return
            with pytest.raises(InputError, match="eviction_policy: got 'crystal-ball', expected of lru, lru-2"):
                await tier.apply(wrong, START)
            assert await tier.settings() == replace(SPACE.default(), eviction_policy="lru")

        with_tier(self.subject, scenario)

    def test_everything_is_counted(self) -> None:
        async def scenario(tier: Tier) -> None:
            await tier.store(key_of(1), answer_of(1, 10, START), START)
            await tier.warm(key_of(2), answer_of(2, 10, START), START)
            await tier.batch_lookup([key_of(1), key_of(2), key_of(3)], START)
            await tier.lookup(key_of(1), START)
            await tier.delete(key_of(1))
            await tier.delete(key_of(1))
            found = await tier.stats()
            assert (found.hits, found.misses, found.warmups, found.deletes, found.entries) == (3, 1, 1, 2, 1)
            assert found.used_bytes == self.subject.entry_bytes(key_of(2), answer_of(2, 10, START))

        with_tier(self.subject, scenario)
