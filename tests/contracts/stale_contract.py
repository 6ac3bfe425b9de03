"""One contract for the tier of answers past their lifetime, over every kind of tier that can keep them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from caches.knobs import Knob, KnobSpace
from caches.tiers.selection import Selection
from caches.tiers.stale import StaleTier
from caches.tiers.tier import Answer
from tests.contracts.tier_model import PARTITIONS, QUICKLY, ROOM, START, Subject, answer_of, key_of

LIFETIME, GRACE = 10.0, 30.0
FEW = settings(QUICKLY, max_examples=25)
# It keeps what it gets for as long as any lifetime and the grace last.
SPACE = KnobSpace(
    Knob("cache_size", "bytes", 1.0, ROOM, ROOM, 1.0, "log"),
    Knob("ttl_seconds", "seconds", 1.0, 1_000.0, LIFETIME + GRACE, 1.0, "log"),
    Knob("warmup_ratio", "share", 0.0, 1.0, 0.0, 1.0, "linear"),
)


def with_stale(subject: Subject, scenario: Callable[[StaleTier], Any]) -> None:
    async def whole() -> None:
        async with subject.make(SPACE) as kept:
            await scenario(StaleTier(kept, GRACE))

    asyncio.run(whole())


async def served(tier: StaleTier, number: int, now: float, grace: float | None = None) -> Answer | None:
    found = await tier.retained(key_of(number), now)
    if found is None or not tier.may_serve(found.answer, LIFETIME, now, grace):
        return None
    return found.answer


class StaleContract:
    """Subclass it in a test module, with a fixture or attribute `subject`: the tier that keeps."""

    subject: Subject

    def test_an_answer_comes_back_as_it_was_until_lifetime_and_grace_are_over(self) -> None:
        async def scenario(tier: StaleTier) -> None:
            answer = answer_of(1, 20, START)
            assert await tier.store(key_of(1), answer, START)
            for age in (0.0, 9.0, 11.0, 39.0):
                assert await served(tier, 1, START + age) == answer, age
            assert await served(tier, 1, START + 40.0) is None

        with_stale(self.subject, scenario)

    def test_a_lifetime_of_its_own_ends_earlier_and_has_the_grace_too(self) -> None:
        async def scenario(tier: StaleTier) -> None:
            answer = answer_of(1, 20, START, ttl=4.0)
            assert await tier.store(key_of(1), answer, START)
            assert await served(tier, 1, START + 33.0) == answer
            assert await served(tier, 1, START + 34.0) is None

        with_stale(self.subject, scenario)

    def test_a_request_may_want_less_grace_and_gets_no_more(self) -> None:
        async def scenario(tier: StaleTier) -> None:
            await tier.store(key_of(1), answer_of(1, 20, START), START)
            assert await served(tier, 1, START + 14.0, grace=5.0) is not None
            assert await served(tier, 1, START + 15.0, grace=5.0) is None
            assert await served(tier, 1, START + 10.0, grace=0.0) is None
            assert await served(tier, 1, START + 39.9, grace=1e6) is not None
            assert await served(tier, 1, START + 40.0, grace=1e6) is None

        with_stale(self.subject, scenario)

    def test_no_lookup_ever_hits_and_none_is_counted(self) -> None:
        async def scenario(tier: StaleTier) -> None:
            await tier.store(key_of(1), answer_of(1, 20, START), START)
            assert await tier.lookup(key_of(1), START) is None
            assert await tier.batch_lookup([key_of(1), key_of(2)], START) == [None, None]
            assert not await tier.holds(key_of(1), START)
            counts = await tier.stats()
            assert (counts.hits, counts.misses, counts.entries) == (0, 0, 1)

        with_stale(self.subject, scenario)

    def test_an_invalidation_takes_what_it_holds_too(self) -> None:
        async def scenario(tier: StaleTier) -> None:
            for number in (1, 2, 3):
                await tier.store(
                    key_of(number, tags=("red",) if number == 2 else ()), answer_of(number, 9, START), START
                )
            assert await tier.count(Selection(PARTITIONS[0], tag="red")) == 1
            assert await tier.clear(Selection(PARTITIONS[0], tag="red")) == 1
            assert await tier.delete(key_of(3))
            assert [await served(tier, number, START) is not None for number in (1, 2, 3)] == [True, False, False]

        with_stale(self.subject, scenario)

    def test_another_partition_has_another_answer(self) -> None:
        async def scenario(tier: StaleTier) -> None:
            await tier.store(key_of(1, 1), answer_of(1, 9, START), START)
            assert await served(tier, 1, START) is None

        with_stale(self.subject, scenario)

    @FEW
    @given(
        st.lists(
            st.tuples(st.integers(0, 2), st.sampled_from([None, 4.0, 20.0]), st.sampled_from([0.0, 3.0, 12.0, 25.0])),
            min_size=1,
            max_size=12,
        )
    )
    def test_what_is_served_is_the_last_answer_within_lifetime_and_grace(
        self, steps: list[tuple[int, float | None, float]]
    ) -> None:
        async def scenario(tier: StaleTier) -> None:
            now, last = START, dict[int, Answer]()
            for number, own, wait in steps:
                now += wait
                last[number] = answer_of(number, 10, now, own)
                assert await tier.store(key_of(number), last[number], now)
                for one, answer in last.items():
                    lifetime = min(LIFETIME, answer.ttl_seconds or LIFETIME)
                    fits = now - answer.written_seconds < lifetime + GRACE
                    assert await served(tier, one, now) == (answer if fits else None)

        with_stale(self.subject, scenario)
