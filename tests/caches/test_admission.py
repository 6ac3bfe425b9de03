"""Admission at the second request: beside the plain list of all requests, and in its place in the stack."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caches.admission import Doorkeeper, SecondHitCounts
from caches.errors import InputError
from caches.flight import Flight
from caches.place import Place
from caches.policies.settings import SecondHit
from caches.stack import Served, Stack, StackRules
from caches.tiers.memory import MemoryTier
from caches.tiers.tier import Answer
from tests.contracts.tier_contract import SPACE, START, answer_of, key_of

PLAIN = StackRules(ttl_jitter=0.0, refresh_beta=0.0)
Log = list[tuple[int, float]]


def admitted(log: Log, number: int, now: float, rule: SecondHit) -> bool:
    """By the whole log: goes back from now while fewer than `remembered` other keys were asked for in between, since
    then this one is forgotten."""
    times: list[float] = []
    others: set[int] = set()
    for other, time in reversed(log):
        if other == number:
            times.append(time)
            others = set()
        else:
            others.add(other)
            if len(others) == rule.remembered:
                break
    return len(times) >= rule.requests and now - times[rule.requests - 1] <= rule.window_seconds


STEPS = st.lists(st.tuples(st.integers(0, 4), st.sampled_from([0.0, 0.5, 1.0, 3.0])), max_size=40)
RULES = st.builds(SecondHit, st.integers(1, 3), st.sampled_from([1.0, 2.0, 5.0]), st.integers(1, 5))


@given(steps=STEPS, rule=RULES)
def test_it_admits_what_the_list_of_all_requests_says(steps: list[tuple[int, float]], rule: SecondHit) -> None:
    admission, log, now = SecondHitCounts(rule), Log(), START
    for number, wait in steps:
        now += wait
        admission.asked(b"%d" % number, now)
        log.append((number, now))
        for one in range(5):
            assert admission.admits(b"%d" % one, now) == admitted(log, one, now, rule), (log, one)
        assert len(admission) <= rule.remembered


WALK = st.lists(
    st.tuples(st.sampled_from(["fetch", "store", "delete", "wait"]), st.integers(0, 4), st.sampled_from([0.5, 2.0])),
    max_size=40,
)


@settings(deadline=None)
@given(steps=WALK, rule=RULES)
def test_a_place_takes_in_what_was_asked_for_often_enough_or_is_there(
    steps: list[tuple[str, int, float]], rule: SecondHit
) -> None:
    """With room for all and endless lifetimes: what is held is what was let in and not deleted."""

    async def whole() -> None:
        place, log, held, now, kept_out = (
            Place(MemoryTier(SPACE), admission=Doorkeeper.alike(rule)),
            Log(),
            set[int](),
            START,
            0,
        )
        for step, number, wait in steps:
            key = key_of(number)
            if step == "wait":
                now += wait
            elif step == "delete":
                assert await place.tier.delete(key) == (number in held)
                held.discard(number)
            else:
                if step == "fetch":
                    log.append((number, now))
                    assert (await place.lookup(key, now) is not None) == (number in held)
                taken = number in held or admitted(log, number, now, rule)
                assert await place.store(key, answer_of(number, 10, now), now) == taken
                held |= {number} if taken else set()
                kept_out += not taken
        assert place.stats.kept_out == kept_out
        assert (await place.tier.stats()).entries == len(held)

    asyncio.run(whole())


async def test_the_first_repeat_misses_and_a_renewal_replaces_what_is_there() -> None:
    now, calls = [START], []

    async def backend(flight: Flight[Served]) -> Answer:
        calls.append(now[0])
        return answer_of(len(calls), 10, now[0])

    stack = Stack([Place(MemoryTier(SPACE), admission=Doorkeeper.alike(SecondHit()))], PLAIN, clock=lambda: now[0])
    tiers = []
    for _ in range(4):
        now[0] += 1.0
        tiers.append((await stack.fetch(key_of(1), backend)).tier)
    assert (tiers, calls) == ([None, None, "memory", "memory"], [START + 1, START + 2])
    now[0] += 10_000.0  # nothing was asked for within the window, but the entry is there
    await stack.renew(key_of(1), backend)
    served = await stack.lookup(key_of(1))
    assert served is not None
    assert served.answer.written_seconds == now[0]


async def test_what_a_lower_tier_has_comes_up_at_the_second_request() -> None:
    upper, lower = MemoryTier(SPACE, "l1"), MemoryTier(SPACE, "l2")
    stack = Stack([Place(upper, admission=Doorkeeper.alike(SecondHit())), Place(lower)], PLAIN, clock=lambda: START)
    await lower.store(key_of(1), answer_of(1, 10, START), START)
    tiers = []
    for _ in range(3):
        served = await stack.lookup(key_of(1))
        tiers.append(None if served is None else served.tier)
    assert tiers == ["l2", "l2", "l1"]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"requests": 0}, "requests: got 0, expected 1 or more"),
        ({"remembered": 0}, "remembered: got 0, expected 1 or more"),
        ({"window_seconds": 0.0}, "window_seconds: got 0.0, expected above 0"),
    ],
)
def test_rules_that_make_no_sense_are_refused(given: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        SecondHit(**given)
