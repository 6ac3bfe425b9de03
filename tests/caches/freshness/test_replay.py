"""Schedules in the shadow cache: the hits of a live stack, stale answers by hand, and what is learnt on the way."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from caches.errors import InputError
from caches.freshness.freshness import Freshness, Rule
from caches.freshness.lifetime import Bounded, Bounds
from caches.freshness.load_meter import LoadMeter
from caches.freshness.replay import Arrived, Asking, Changes, Rules, replayed
from caches.freshness.schedules import FIXED, HAZARD, LOAD, SAMPLING, schedule_of, useful_rounds
from caches.keys.by_name import ByName
from caches.knobs import KnobSettings
from caches.place import Place
from caches.stack import Stack, StackRules
from caches.tiers.memory import MemoryTier
from caches.tiers.retaining import retained
from tests.contracts.tier_contract import SPACE, START, answer_of, key_of

NONE_CHANGE = Changes(np.empty(0, np.int64), np.empty(0))
BASE, EVERY = 16.0, 10.0
GAPS = st.lists(
    st.tuples(st.sampled_from([0.5, 1.0, 4.0, 9.0]), st.integers(0, 3), st.booleans()), min_size=1, max_size=60
)


def arrived(gaps: list[tuple[float, int, bool]]) -> Arrived:
    seconds = np.cumsum([gap for gap, _, _ in gaps])
    key = np.array([key for _, key, _ in gaps], np.int32)
    failed = np.array([failed for _, _, failed in gaps])
    return Arrived(seconds, key, 4, np.zeros(len(key), np.int64), failed=failed)


def rules(name: str, bounds: Bounds = Bounds(), **more: object) -> Rules:
    return replace(Rules(BASE, [Bounded(schedule_of(name), bounds)], EVERY), **more)  # type: ignore[arg-type]


async def live(name: str, requests: Arrived, temperatures: list[float]) -> list[bool]:
    """What a stack over a tier in memory hits; answers are stored whether the backend failed before or not."""
    now = START
    freshness = Freshness(ByName({}, Rule(name, Bounded(schedule_of(name)))), LoadMeter(EVERY))
    tier = retained(MemoryTier, SPACE, 2.0)
    stack = Stack([Place(tier)], StackRules(0.0, 0.0), clock=lambda: now, freshness=freshness)
    await tier.apply(KnobSettings(1e6, BASE, 0.0), now)
    hits = []
    assert requests.failed is not None
    for second, number, failed in zip(requests.seconds, requests.key.tolist(), requests.failed.tolist(), strict=True):
        now = START + float(second)
        key = key_of(number)
        freshness.asked(key, temperatures[number], None, now)
        served = await stack.lookup(key)
        hits.append(served is not None)
        if served is None:
            freshness.called(key, failed, now)
            await stack.store(key, answer_of(number, 10, now))
    return hits


@given(gaps=GAPS, name=st.sampled_from([FIXED, LOAD, SAMPLING]))
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_it_hits_what_a_live_stack_hits(gaps: list[tuple[float, int, bool]], name: str) -> None:
    requests, temperatures = arrived(gaps), [0.0, 0.1, 0.3, 2.0]
    if name == SAMPLING:
        shares = np.array([min(1.0, useful_rounds(one, 1.0) / 8.0) for one in temperatures])
        requests = replace(requests, share=shares[requests.key])
    found = replayed(requests, NONE_CHANGE, 1e9, rules(name))
    assert found.hit.tolist() == asyncio.run(live(name, requests, temperatures))
    assert not found.stale.any()


def test_an_answer_is_stale_when_its_key_changed_since_it_was_written() -> None:
    seconds, key = np.array([0.0, 1.0, 2.0, 3.0, 4.0, 20.0, 21.0]), np.array([0, 1, 0, 0, 1, 0, 0], np.int32)
    changes = Changes(np.array([0, 1, 1]), np.array([2.5, 0.5, 30.0]))
    requests = Arrived(seconds, key, 2, np.zeros(7, np.int64))
    found = replayed(requests, changes, 1e9, rules(FIXED))
    assert found.hit.tolist() == [False, False, True, True, True, False, True]
    assert found.stale.tolist() == [False, False, False, True, False, False, False]


def test_a_measured_rate_shortens_the_lifetime_of_its_namespace_alone() -> None:
    """Keys of namespace 0 change every ten seconds, those of 1 never."""
    rng = np.random.default_rng(3)
    seconds = np.sort(rng.uniform(0.0, 2_000.0, 4_000))
    key = rng.integers(0, 20, 4_000).astype(np.int32)
    times = np.arange(5.0, 2_000.0, 10.0)
    changes = Changes(np.repeat(np.arange(10), len(times)), np.tile(times, 10))
    requests = Arrived(seconds, key, 20, (key >= 10).astype(np.int64))
    told = Rules(
        500.0, [Bounded(schedule_of(HAZARD), Bounds(0.001, 2.0))] * 2, 100.0, Asking(0.5, per_second=1.0), seed=1
    )
    found = replayed(requests, changes, 1e9, told)
    last = found.lifetime_seconds[-1]
    assert last[0] < 10.0
    assert last[1] > 100.0
    assert 0 < found.asked_again.sum() <= 2_000 + 1
    assert found.hit[found.asked_again].all()
    fixed = replayed(requests, changes, 1e9, replace(told, bounded=[Bounded(schedule_of(FIXED))] * 2, asking=Asking()))
    assert not fixed.asked_again.any()
    late = seconds > 1_000.0
    share = [float(one.stale[late].sum() / one.hit[late].sum()) for one in (found, fixed)]
    assert share[0] < 0.1 < share[1]


def test_a_capacity_holds() -> None:
    seconds = np.arange(8.0)
    requests = Arrived(seconds, np.array([0, 1, 0, 1] * 2, np.int32), 2, np.zeros(8, np.int64), np.full(8, 10))
    assert replayed(requests, NONE_CHANGE, 20.0, rules(FIXED)).hit.sum() == 6
    assert replayed(requests, NONE_CHANGE, 19.0, rules(FIXED)).hit.sum() == 0
    with pytest.raises(InputError, match=r"every_seconds: got 0"):
        replayed(requests, NONE_CHANGE, 20.0, rules(FIXED, every_seconds=0.0))
