"""The stack: tiers one above the other, one call for equal requests, and nothing that a tier does wrong gets out."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from caches.breaker import BreakerRule, State
from caches.flight import Flight
from caches.keys.request_key import Partition, RequestKey
from caches.knobs import KnobSettings
from caches.place import Place
from caches.stack import Served, Stack, StackRules
from caches.tiers.memory import MemoryTier
from caches.tiers.selection import Selection
from caches.tiers.tier import Answer, Found, TierError
from caches.worth import WorthRule
from tests.contracts.tier_contract import SPACE, START, answer_of, key_of

PLAIN = StackRules(ttl_jitter=0.0, refresh_beta=0.0)


@dataclass
class Clock:
    now: float = START

    def __call__(self) -> float:
        return self.now


class Troubled(MemoryTier):
    """A tier in memory that can be told to fail or to hang."""

    trouble: str = ""
    asked: int = 0

    async def lookup(self, key: RequestKey, now_seconds: float) -> Found | None:
        self.asked += 1
        if self.trouble == "fails":
            raise TierError("tier troubled: told to fail")
        if self.trouble == "hangs":
            await asyncio.sleep(3600)
        return await super().lookup(key, now_seconds)


@dataclass
class Backend:
    """Answers after a while, and counts."""

    clock: Clock
    calls: int = 0
    error: Exception | None = None
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, flight: Flight[Served]) -> Answer:
        self.calls += 1
        number = self.calls
        flight.publish(b"begin")
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return answer_of(number, 10, self.clock.now)


def open_backend(clock: Clock) -> Backend:
    backend = Backend(clock)
    backend.gate.set()
    return backend


def stack_of(
    clock: Clock, tiers: Sequence[MemoryTier], rules: StackRules = PLAIN, slow: float | None = None
) -> tuple[Stack, list[Place]]:
    places = [Place(tier, slow if depth else None, ticks=clock) for depth, tier in enumerate(tiers)]
    return Stack(places, rules, clock=clock), places


async def test_a_lower_tiers_answer_is_kept_above_with_its_age() -> None:
    clock, upper, lower = Clock(), MemoryTier(SPACE, "l1"), MemoryTier(SPACE, "l2")
    stack, _ = stack_of(clock, [upper, lower])
    answer = answer_of(1, 10, START)
    await lower.store(key_of(1), answer, START)
    clock.now += 5
    assert await stack.lookup(key_of(1)) == Served(answer, "l2", 5.0, level=1)
    clock.now += 2
    assert await stack.lookup(key_of(1)) == Served(answer, "l1", 7.0, level=1)
    assert await stack.lookup(key_of(2)) is None


async def test_what_a_slow_tier_has_is_learnt_by_one_below_that_answers_at_once() -> None:
    """As after a start with an empty tier of answers by meaning, below a Redis that holds much; stored once."""
    clock, slow, quick = Clock(), MemoryTier(SPACE, "slow"), Troubled(SPACE, "quick")
    for places in ([Place(slow, 1.0), Place(quick)], [Place(MemoryTier(SPACE, "l1")), Place(slow, 1.0), Place(quick)]):
        stack = Stack(places, PLAIN, clock=clock)
        await slow.store(key_of(1), answer_of(1, 10, START), START)
        await quick.delete(key_of(1))
        clock.now += 5
        assert (await stack.lookup(key_of(1))) == Served(answer_of(1, 10, START), "slow", clock.now - START, level=2)
        assert await quick.lookup(key_of(1), clock.now) == Found(answer_of(1, 10, START))
        writes = (await quick.stats()).writes
        await places[0].tier.delete(key_of(1))
        await slow.store(key_of(1), answer_of(1, 10, START), START)
        assert await stack.lookup(key_of(1)) is not None
        assert (await quick.stats()).writes == writes


async def test_what_the_backend_answers_is_written_to_all_tiers() -> None:
    clock, upper, lower = Clock(), MemoryTier(SPACE, "l1"), MemoryTier(SPACE, "l2")
    stack, _ = stack_of(clock, [upper, lower])
    backend = open_backend(clock)
    served = await stack.fetch(key_of(1), backend)
    assert (served.tier, served.age_seconds) == (None, 0.0)
    for tier in (upper, lower):
        assert await tier.lookup(key_of(1), START) == Found(served.answer)
    assert (await stack.fetch(key_of(1), backend)).tier == "l1"
    assert backend.calls == 1
    assert await stack.delete(key_of(1))
    assert not await stack.delete(key_of(1))
    await stack.fetch(key_of(1), backend)
    assert await stack.clear(Selection(Partition("b", "x"))) == {"l1": 0, "l2": 0}
    assert await stack.clear(Selection(key_of(1).partition)) == {"l1": 1, "l2": 1}
    assert await stack.lookup(key_of(1)) is None


async def test_a_caller_can_ask_for_something_younger() -> None:
    clock = Clock()
    stack, _ = stack_of(clock, [MemoryTier(SPACE)])
    await stack.store(key_of(1), answer_of(1, 10, START))
    clock.now += 10
    assert await stack.lookup(key_of(1), max_age_seconds=9.0) is None
    assert await stack.lookup(key_of(1), max_age_seconds=10.0) is not None


async def test_a_thousand_equal_requests_make_one_call() -> None:
    clock = Clock()
    stack, _ = stack_of(clock, [MemoryTier(SPACE)])
    backend = Backend(clock)
    waiting = [asyncio.ensure_future(stack.fetch(key_of(1), backend)) for _ in range(1000)]
    await asyncio.sleep(0.01)
    backend.gate.set()
    served = await asyncio.gather(*waiting)
    assert backend.calls == 1
    assert {one.answer.body for one in served} == {served[0].answer.body}
    assert (await stack.fetch(key_of(2), backend)).answer.body != served[0].answer.body


async def test_an_error_reaches_all_that_wait_and_is_not_stored() -> None:
    clock = Clock()
    stack, _ = stack_of(clock, [MemoryTier(SPACE)])
    backend = Backend(clock, error=ValueError("upstream said no"))
    waiting = [asyncio.ensure_future(stack.fetch(key_of(1), backend)) for _ in range(5)]
    await asyncio.sleep(0)
    backend.gate.set()
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert [str(one) for one in results] == ["upstream said no"] * 5
    backend.error = None
    assert (await stack.fetch(key_of(1), backend)).tier is None
    assert backend.calls == 2


async def test_a_request_that_is_given_up_alone_ends_its_call() -> None:
    clock = Clock()
    stack, _ = stack_of(clock, [MemoryTier(SPACE)])
    backend = Backend(clock)
    alone = asyncio.ensure_future(stack.fetch(key_of(1), backend))
    await asyncio.sleep(0.01)
    alone.cancel()
    await asyncio.sleep(0.01)
    backend.gate.set()
    assert (await stack.fetch(key_of(1), backend)).tier is None
    assert backend.calls == 2


async def test_a_request_that_is_given_up_while_others_wait_does_not() -> None:
    clock = Clock()
    stack, _ = stack_of(clock, [MemoryTier(SPACE)])
    backend = Backend(clock)
    first = asyncio.ensure_future(stack.fetch(key_of(1), backend))
    await asyncio.sleep(0.01)
    second = asyncio.ensure_future(stack.fetch(key_of(1), backend))
    await asyncio.sleep(0.01)
    first.cancel()
    await asyncio.sleep(0.01)
    backend.gate.set()
    assert (await second).tier is None
    assert backend.calls == 1


@pytest.mark.parametrize("trouble", ["fails", "hangs"])
async def test_a_tier_in_trouble_costs_its_time_once_and_is_left_alone(trouble: str) -> None:
    clock, lower = Clock(), Troubled(SPACE, "l2")
    lower.trouble = trouble
    places = [
        Place(MemoryTier(SPACE, "l1"), ticks=clock),
        Place(lower, 0.05, BreakerRule(first_seconds=10.0), ticks=clock),
    ]
    stack = Stack(places, PLAIN, clock=clock)
    for number in range(20):
        assert await stack.lookup(key_of(number)) is None
    assert lower.asked == 1
    assert (places[1].stats.failed, places[1].stats.skipped, places[1].breaker.state) == (1, 19, State.OPEN)
    lower.trouble = ""
    clock.now += 10
    assert await stack.lookup(key_of(1)) is None
    assert places[1].breaker.state is State.CLOSED


async def test_a_tier_that_does_not_pay_is_passed_by() -> None:
    clock = Clock()

    class Slow(MemoryTier):
        async def lookup(self, key: RequestKey, now_seconds: float) -> Found | None:
            clock.now += 0.01
            return await super().lookup(key, now_seconds)

    rule = WorthRule(least=10, least_seconds=0.0, memory=50, probe_every=10)
    place = Place(Slow(SPACE, "l2"), 1.0, worth_rule=rule, ticks=clock)
    stack = Stack([Place(MemoryTier(SPACE, "l1"), ticks=clock), place], PLAIN, clock=clock)
    for number in range(110):
        await stack.lookup(key_of(number))
    assert place.stats.passed_by == 90
    assert (await place.tier.stats()).misses == 20


async def test_lifetimes_are_jittered_by_key_and_only_shortened() -> None:
    clock = Clock()
    stack, _ = stack_of(clock, [MemoryTier(SPACE)], StackRules(ttl_jitter=0.5, refresh_beta=0.0))
    await stack.places[0].tier.apply(KnobSettings(1e6, 100.0, 0.0), START)
    await stack.tend()
    for number in range(200):
        await stack.store(key_of(number), answer_of(number, 10, START))
    left = []
    for seconds in (49.0, 75.0, 99.9):
        clock.now = START + seconds
        left.append(sum([await stack.lookup(key_of(number)) is not None for number in range(200)]))
    assert left[0] == 200
    assert 70 < left[1] < 130  # half of them, evenly
    assert left[2] < 5


async def test_a_lifetime_set_elsewhere_is_seen_after_housekeeping() -> None:
    clock, tier = Clock(), MemoryTier(SPACE)
    stack, _ = stack_of(clock, [tier], StackRules(ttl_jitter=0.5, refresh_beta=0.0))
    await stack.store(key_of(1), answer_of(1, 10, START))
    assert await stack.lookup(key_of(1)) is not None
    await tier.apply(KnobSettings(1e6, 100.0, 0.0), START)
    await stack.tend()
    clock.now = START + 99.9
    assert await tier.lookup(key_of(1), clock.now) is not None
    assert await stack.lookup(key_of(1)) is None  # the jitter is of the new lifetime


async def test_hot_entries_are_renewed_early_and_once() -> None:
    clock = Clock()
    stack, _ = stack_of(clock, [MemoryTier(SPACE)], StackRules(ttl_jitter=0.0, refresh_beta=1.0))
    await stack.places[0].tier.apply(KnobSettings(1e6, 100.0, 0.0), START)
    await stack.tend()
    await stack.store(key_of(1), Answer(b"old", START, compute_seconds=2.0))

    async def due(at: float) -> float:
        clock.now = START + at
        served = [await stack.lookup(key_of(1)) for _ in range(2000)]
        return sum(one is not None and one.refresh_due for one in served) / 2000

    assert await due(50.0) == 0.0
    assert abs(await due(98.0) - 0.368) < 0.05  # exp(-2 s left / 2 s that a call takes)
    assert abs(await due(99.9) - 0.951) < 0.03
    backend = Backend(clock)
    renewing = [asyncio.ensure_future(stack.renew(key_of(1), backend)) for _ in range(3)]
    await asyncio.sleep(0)
    backend.gate.set()
    await asyncio.gather(*renewing)
    assert backend.calls == 1
    found = await stack.lookup(key_of(1))
    assert found is not None
    assert found.answer.body != b"old"


async def test_a_call_that_nobody_waits_for_any_more_ends() -> None:
    clock = Clock()
    stack, _ = stack_of(clock, [MemoryTier(SPACE)])
    backend = Backend(clock)
    requests = []
    for _ in range(3):
        requests.append(asyncio.ensure_future(stack.fetch(key_of(1), backend)))
        await asyncio.sleep(0.01)
    for request in requests:  # the leader first
        request.cancel()
        await asyncio.sleep(0.01)
    backend.gate.set()
    await asyncio.sleep(0.01)
    assert backend.calls == 1
    assert await stack.lookup(key_of(1)) is None


async def test_requests_for_something_new_share_the_call_that_is_on_its_way() -> None:
    clock = Clock()
    stack, _ = stack_of(clock, [MemoryTier(SPACE)])
    await stack.store(key_of(1), answer_of(9, 10, START - 1.0))
    backend = Backend(clock)
    waiting = [asyncio.ensure_future(stack.fetch(key_of(1), backend, max_age_seconds=0.0)) for _ in range(5)]
    await asyncio.sleep(0.01)
    clock.now += 2.0  # by the time it is there it is two seconds old for who has waited
    backend.gate.set()
    assert {(await one).answer.body[:6] for one in waiting} == {b"000001"}
    assert backend.calls == 1


async def test_closing_waits_for_the_work_that_it_ends() -> None:
    clock, ended = Clock(), []
    stack, _ = stack_of(clock, [MemoryTier(SPACE)])

    async def call(flight: Flight[Served]) -> Answer:
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0.01)
            ended.append(True)
        raise AssertionError

    request = asyncio.ensure_future(stack.fetch(key_of(1), call))
    await asyncio.sleep(0.01)
    await stack.close()
    assert ended == [True]
    with pytest.raises(asyncio.CancelledError):
        await request
