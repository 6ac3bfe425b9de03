"""A live cache that changes its eviction policy, at once and in steps, beside the oracles of both policies."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caches.in_process import InProcessCache
from caches.policies.catalog import EVICTIONS
from caches.policies.live.cache import live_cache
from caches.policies.live.parted import PartedOrder
from caches.policies.settings import (
    Admission,
    AdmitAll,
    CostAware,
    Eviction,
    Lru,
    LruK,
    S3Fifo,
    SecondHit,
    Sieve,
    TinyLfu,
    WTinyLfu,
)
from caches.stats import CacheStats, Expiry
from tests.caches.policies.oracles import Held, Oracle, oracle_of
from tests.contracts.cache_contract import Change, Request, Script, WarmUp, latest, scripts
from tests.contracts.policy_contract import COSTS, LABELS, ExactCounts, PolicyModel
from traces.trace import Operation

PAIRS = list(itertools.permutations(EVICTIONS, 2))
ADMISSIONS: Sequence[Admission] = (AdmitAll(), AdmitAll(), SecondHit(2, 3.0, 4), TinyLfu(1.0), CostAware(1.0))
Cache = InProcessCache[int, tuple[float]]


class Changing:
    """An oracle that decides, and perhaps another one that is being told. unknown: what that one has not been told of,
    least recently touched first."""

    def __init__(self, oracle: Oracle) -> None:
        self.oracle = oracle
        self.next: Oracle | None = None
        self.unknown: list[int] = []
        self.at = 0.0
        self.old: Held | None = None
        self.back = False

    @property
    def held(self) -> list[Held]:
        return self.oracle.held

    def __getattr__(self, name: str) -> Any:
        return getattr(self.oracle, name)

    def used(self, key: int, capacity: int, now: float) -> None:
        self.oracle.used(key, capacity, now)
        if self.next is not None:
            if key in self.unknown:
                self.enter(key, capacity)
            self.next.used(key, capacity, now)

    def returns(self, key: int) -> bool:
        self.back = self.next is not None and self.next.returns(key)
        return self.oracle.returns(key)

    def take(self, key: int, evicted: bool, rewritten: bool, capacity: int) -> Held:
        taken = self.oracle.take(key, evicted, rewritten, capacity)
        if key in self.unknown:
            self.unknown.remove(key)
        elif self.next is not None:
            gone = self.next.take(key, evicted, rewritten, capacity)
            self.old = gone if rewritten else None
        return taken

    def put(self, one: Held, old: Held | None, returning: bool, capacity: int, now: float) -> None:
        self.oracle.put(one, old, returning, capacity, now)
        if self.next is not None:
            self.next.put(Held(one.key, one.size, one.cost), self.old, self.back, capacity, now)
        self.old = None

    def enter(self, key: int, capacity: int) -> None:
        assert self.next is not None
        one = self.oracle.entry(key)
        self.next.put(Held(key, one.size, one.cost), None, self.next.returns(key), capacity, self.at)
        self.unknown.remove(key)


class ChangingModel(PolicyModel):
    """The model of the contract, with a change of the policy."""

    def __init__(self, script: Script, eviction: Eviction, admission: Admission) -> None:
        super().__init__(script, eviction, admission)
        self.both = Changing(self.oracle)
        self.oracle = self.both  # type: ignore[assignment]
        self.next_counts: ExactCounts | None = None

    def read(self, request: Request, own: float) -> tuple[str, float]:
        if self.next_counts is not None:
            self.next_counts.asked(request.key, len(self.held))
        return super().read(request, own)

    def change(self, eviction: Eviction, now: float) -> None:
        shared = isinstance(self.admission, TinyLfu | CostAware)
        if isinstance(eviction, WTinyLfu) and not shared:
            self.next_counts = ExactCounts(eviction.sample)
        self.both.next = oracle_of(eviction, self.next_counts or self.counts)
        self.both.unknown = sorted((one.key for one in self.held), key=lambda key: self.times[key].touched_number)
        self.both.at = now

    def tell_next(self, most: int) -> None:
        if self.both.next is None:
            return
        for key in self.both.unknown[:most]:
            self.both.enter(key, self.capacity)
        if not self.both.unknown:
            self.both.oracle, self.both.next = self.both.next, None
            self.counts, self.next_counts = self.next_counts or self.counts, None


def perform(cache: Cache, script: Script, index: int) -> None:
    step = script.steps[index]
    if isinstance(step, Change):
        cache.apply(step.capacity, step.ttl, step.time)
    elif isinstance(step, WarmUp):
        cache.apply(cache.capacity_bytes, cache.ttl_seconds, step.time)
        for _, one in latest(script, index, step.keys):
            if cache.could_miss(LABELS[one.key], step.time, step.until):
                cache.warm(LABELS[one.key], (step.time,), one.size, step.time, cost=COSTS[one.key])
    else:
        key, value, cost = LABELS[step.key], (step.time,), COSTS[step.key]
        if step.operation is Operation.WRITE:
            cache.write(key, value, step.size, step.time, step.ttl, cost)
        elif step.operation is Operation.DELETE:
            cache.delete(key, step.time)
        elif cache.get(key, step.time, step.size) is None:
            cache.put(key, value, step.size, step.time, step.ttl, cost=cost)


def follow(model: PolicyModel, script: Script, index: int) -> None:
    step = script.steps[index]
    if isinstance(step, Change):
        model.capacity, model.ttl = step.capacity, step.ttl
    model.settle(step.time)
    if isinstance(step, WarmUp):
        for _, one in latest(script, index, step.keys):
            model.warm(one, step)
    elif isinstance(step, Request):
        model.request(step)


def told(cache: Cache) -> tuple[CacheStats, frozenset[int]]:
    return cache.stats(), frozenset(LABELS.index(label) for label in cache.resident())


def made(script: Script, eviction: Eviction, admission: Admission) -> Cache:
    return live_cache(script.capacity, script.ttl, script.expiry, None, eviction, admission)


@st.composite
def long_scripts(draw: Callable[..., Any]) -> tuple[Script, int]:
    """A script, and after which of its steps the policy changes."""
    script = draw(scripts())
    script = replace(script, capacity=max(script.capacity, 6))
    return script, draw(st.integers(0, len(script.steps) - 1))


@pytest.mark.parametrize(("before", "after"), PAIRS)
@settings(max_examples=6, deadline=None)
@given(case=long_scripts(), admission=st.sampled_from(ADMISSIONS), most=st.sampled_from([1, 1, 2, 100]))
def test_it_equals_both_oracles_after_every_step(
    before: str, after: str, case: tuple[Script, int], admission: Admission, most: int
) -> None:
    script, at = case
    cache, model = made(script, EVICTIONS[before], admission), ChangingModel(script, EVICTIONS[before], admission)
    for index, step in enumerate(script.steps):
        perform(cache, script, index)
        follow(model, script, index)
        if index == at:
            counted = cache.stats()
            done = cache.change_policy(EVICTIONS[after], step.time, most)
            model.change(EVICTIONS[after], step.time)
            if done:  # small enough, or by the order of touches, which is there
                model.tell_next(len(COSTS))
            assert cache.stats() == counted
        elif index > at and cache.eviction != cache.eviction_aim:
            cache.tend_policy(most)
            model.tell_next(most)
        else:
            cache.tend_policy(most)
        assert told(cache) == model.tell(), index
        assert (cache.eviction == EVICTIONS[after]) == (index >= at and model.both.next is None)


def filled(eviction: Eviction, admission: Admission = AdmitAll()) -> Cache:
    """Forty entries, of which some were asked for again."""
    cache: Cache = live_cache(100, 1e9, Expiry.SINCE_WRITE, None, eviction, admission)
    for number in (*range(60), *range(59, 20, -3), *range(25, 60, 7), 31, 31, 40):
        play(cache, number, float(number))
    return cache


def play(cache: Cache, number: int, salt: float) -> bool:
    now = 1_000.0 + salt * 1e-3
    if cache.get(number, now) is not None:
        return True
    cache.put(number, (now,), 1 + number % 4, now, cost=1.0 + number % 3)
    return False


def later(cache: Cache) -> list[object]:
    """What requests come to from now on."""
    return [(play(cache, number * 7 % 90, 1e3 + number), cache.by_touch()) for number in range(300)]


@pytest.mark.parametrize(("before", "after"), PAIRS)
def test_in_steps_it_is_as_at_once_where_nothing_happens_in_between(before: str, after: str) -> None:
    at_once, stepped = filled(EVICTIONS[before]), filled(EVICTIONS[before])
    counted, order = at_once.stats(), at_once.by_touch()
    assert at_once.change_policy(EVICTIONS[after], 2_000.0)
    stepped.change_policy(EVICTIONS[after], 2_000.0, 3)
    steps = 0
    while not stepped.tend_policy(3):
        steps += 1
        assert steps < 100
        assert stepped.by_touch() == order
    assert at_once.stats() == stepped.stats() == counted
    assert later(at_once) == later(stepped)


@pytest.mark.parametrize("between", [0, 2, 5, 25])
def test_a_second_change_starts_over_from_what_is_held(between: int) -> None:
    at_once, twice = filled(Sieve()), filled(Sieve())
    twice.change_policy(LruK(2), 1_500.0, 3)
    for _ in range(between):
        twice.tend_policy(3)
    order = twice.by_touch()
    if between == 25:  # the first one was done
        at_once.change_policy(LruK(2), 1_500.0)
    at_once.change_policy(S3Fifo(), 2_000.0)
    twice.change_policy(S3Fifo(), 2_000.0, 3)
    while not twice.tend_policy(3):
        assert twice.by_touch() == order
    assert twice.eviction == S3Fifo()
    assert later(at_once) == later(twice)


def test_what_decides_still_can_be_asked_for_again() -> None:
    never, back = filled(S3Fifo()), filled(S3Fifo())
    back.change_policy(LruK(2), 1_500.0, 3)
    back.tend_policy(3)
    assert (back.eviction, back.eviction_aim) == (S3Fifo(), LruK(2))
    assert back.change_policy(S3Fifo(), 1_600.0, 3)
    assert later(never) == later(back)
    while not back.tend_policy(3):
        pass
    assert (back.eviction, back.eviction_aim) == (S3Fifo(), S3Fifo())


def test_the_same_aim_again_does_not_start_over() -> None:
    cache = filled(Sieve())
    for _ in range(100):
        if cache.change_policy(LruK(2), 2_000.0, 3):
            break
        cache.tend_policy(3)
    assert cache.eviction == LruK(2)


@pytest.mark.parametrize("name", [name for name in EVICTIONS if name != "lru"])
def test_to_least_recently_used_it_is_at_once_and_costs_nothing_after(name: str) -> None:
    cache = filled(EVICTIONS[name])
    order = cache.by_touch()
    assert cache.change_policy(Lru(), 2_000.0, 1)
    assert cache.tend_policy(1)
    assert cache._policy is live_cache(1, 1.0)._policy is None
    cache.apply(50, 1e9, 2_000.0)
    left = cache.by_touch()
    assert left == order[-len(left) :]


def test_frequencies_stay_where_the_rule_of_admission_goes_by_them() -> None:
    """Asked for five times before the change: enough to beat what was asked for once since."""
    for admission, stays in ((TinyLfu(), True), (AdmitAll(), False)):
        cache: InProcessCache[int, str] = live_cache(100, 1e9, eviction=WTinyLfu(window=0.5), admission=admission)
        for _ in range(5):
            cache.get(1, 1.0)
        cache.change_policy(Sieve(), 1.0)
        cache.change_policy(WTinyLfu(window=0.5), 1.0)
        assert cache._policy is not None
        sketch = cache._policy._ranking.sketch
        assert sketch is not None
        assert sketch.frequency(1) == (5 if stays else 0)


def test_a_second_hit_is_remembered_across_a_change() -> None:
    cache: InProcessCache[int, str] = live_cache(100, 1e9, eviction=Lru(), admission=SecondHit())
    assert cache.get(1, 1.0) is None
    assert not cache.put(1, "one", 1, 1.0)
    cache.change_policy(WTinyLfu(), 1.0)
    assert cache.get(1, 2.0) is None
    assert cache.put(1, "one", 1, 2.0)


def test_a_step_is_bounded() -> None:
    """Ten thousand entries, a hundred at a time: a hundred steps tell the new policy, a hundred make one part again."""
    cache: InProcessCache[int, int] = InProcessCache(10_000, 1e9)
    for number in range(10_000):
        cache.put(number, number, 1, 0.0)
    assert not cache.change_policy(Sieve(), 1.0, 100)
    steps = 0
    while cache.eviction == Lru():
        cache.tend_policy(100)
        steps += 1
    assert steps == 100
    while isinstance(cache._by_touch, PartedOrder):
        cache.tend_policy(100)
        steps += 1
    assert steps == 200
    assert cache.by_touch() == list(range(10_000))
