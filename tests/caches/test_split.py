"""Two isolated caches that keys move between: what holds after any sequence of calls."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from caches.in_process import InProcessCache
from caches.knobs import KnobSettings
from caches.policies.live.making import name_of
from caches.split import LOOKED_AT, SplitCache
from caches.target import Arm, Plan, Split
from tuner.router import assign

CONTROL, TREATMENT = Arm.CONTROL, Arm.TREATMENT
SMALL = st.integers(0, 12)
SPLITS = st.builds(Split, st.sampled_from("ab"), st.sampled_from([0.0, 0.2, 0.5, 0.8, 1.0]))
KNOBS = st.builds(
    KnobSettings,
    st.sampled_from([20.0, 60.0, 61.0, 200.0]),
    st.sampled_from([4.0, 1e6]),
    st.just(0.0),
    st.sampled_from([None, None, "lru", "sieve", "s3-fifo", "lfu"]),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), SMALL, st.integers(1, 30)),
        st.tuples(st.just("ask"), SMALL, st.integers(1, 30)),
        st.tuples(st.just("delete"), SMALL),
        st.tuples(st.just("aim"), st.builds(Plan, SPLITS, KNOBS, KNOBS)),
        st.tuples(st.just("tend"), st.integers(1, 4)),
        st.tuples(st.just("wait"), st.sampled_from([0.0, 1.0, 3.0])),
    ),
    max_size=80,
)


def picker(split: Split) -> Callable[[int], Arm]:
    return lambda key: assign(b"%d" % key, split)


def split_cache(plan: Plan) -> SplitCache[int, tuple[int, float]]:
    return SplitCache({arm: InProcessCache(1, 1.0) for arm in Arm}, plan, picker)


def plan_of(size: float, split: Split = Split(), ttl: float = 1e6) -> Plan:
    same = KnobSettings(size, ttl, 0.0)
    return Plan(split, same, same)


class Walk:
    """Beside the caches, the last answer of each key: its number and when it was written."""

    def __init__(self, plan: Plan) -> None:
        self.cache, self.now = split_cache(plan), 0.0
        self.stored: dict[int, tuple[int, float]] = {}
        self.answers = 0

    def ask(self, key: int, size: int) -> None:
        arm = self.cache.place(key, self.now)
        assert arm is picker(self.cache.plan.split)(key)
        assert self.cache.caches[Arm.CONTROL if arm is TREATMENT else TREATMENT].peek(key) is None
        cache = self.cache.caches[arm]
        found = cache.get(key, self.now)
        if found is not None:
            assert found == self.stored[key]
            assert self.now - found[1] < self.cache.plan.settings(arm).ttl_seconds
            return
        self.answers += 1
        self.stored[key] = self.answers, self.now
        cache.put(key, self.stored[key], size, self.now)

    def delete(self, key: int) -> None:
        self.cache.caches[self.cache.place(key, self.now)].delete(key, self.now)
        self.stored.pop(key, None)

    def aim(self, plan: Plan) -> None:
        self.cache.aim(plan, self.now, 2)

    def tend(self, most: int) -> None:
        self.cache.tend(most, self.now)

    def wait(self, seconds: float) -> None:
        self.now += seconds

    def settle(self) -> None:
        for _ in range(200):
            if not self.cache.tend(5, self.now):
                return
        raise AssertionError("housekeeping does not end")


def capacities(plan: Plan) -> dict[Arm, int]:
    treatment = int(plan.split.treatment * plan.treatment.cache_size)
    return {
        CONTROL: int(plan.control.cache_size) - int(plan.split.treatment * plan.control.cache_size),
        TREATMENT: treatment,
    }


@settings(max_examples=300, deadline=None)
@given(st.builds(Plan, SPLITS, KNOBS, KNOBS), STEPS)
def test_arms_stay_apart_and_within_their_bytes(plan: Plan, steps: list[tuple[object, ...]]) -> None:
    walk = Walk(plan)
    for step in steps:
        before = walk.cache.capacity_bytes
        getattr(walk, str(step[0]))(*step[1:])
        caches = walk.cache.caches
        assert not caches[CONTROL].resident() & caches[TREATMENT].resident()
        assert all(cache.used_bytes <= cache.capacity_bytes for cache in caches.values())
        assert walk.cache.capacity_bytes <= max(before, sum(capacities(walk.cache.plan).values()))
        assert all(cache.ttl_seconds == walk.cache.plan.settings(arm).ttl_seconds for arm, cache in caches.items())
    walk.settle()
    plan, caches = walk.cache.plan, walk.cache.caches
    assert not walk.cache.moving
    assert {arm: cache.capacity_bytes for arm, cache in caches.items()} == capacities(plan)
    assert walk.cache.binding() == {arm: plan.settings(arm) for arm in Arm if plan.split.share(arm) > 0}
    policies = {arm: plan.settings(arm).eviction_policy or "lru" for arm in Arm}
    assert {arm: name_of(cache.eviction) for arm, cache in caches.items()} == policies
    for arm, cache in caches.items():
        assert all(picker(plan.split)(key) is arm for key in cache.resident())


@settings(max_examples=100, deadline=None)
@given(st.lists(SPLITS, min_size=1, max_size=4), st.lists(st.integers(1, 4), max_size=6))
def test_with_room_no_change_of_the_split_loses_anything(splits: list[Split], tends: list[int]) -> None:
    """However far the change before had come."""
    walk = Walk(plan_of(10_000.0))
    for key in range(13):
        walk.ask(key, 10)
    for split in splits:
        walk.aim(plan_of(10_000.0, split))
        for most in tends:
            walk.tend(most)
    walk.settle()
    assert sum(len(cache.resident()) for cache in walk.cache.caches.values()) == 13
    for key in range(13):
        walk.ask(key, 10)
    assert walk.answers == 13


def test_what_is_handed_over_keeps_its_order() -> None:
    """Ten keys of ten bytes, the last touched first; then room for four in the arm that has them all now."""
    walk = Walk(plan_of(100.0))
    for key in range(10):
        walk.ask(key, 10)
    for key in range(9, -1, -1):
        walk.ask(key, 10)
    walk.aim(plan_of(100.0, Split("a", 1.0)))
    walk.settle()
    walk.aim(plan_of(40.0, Split("a", 1.0)))
    walk.settle()
    assert walk.cache.caches[TREATMENT].by_touch() == [3, 2, 1, 0]


def test_capacity_goes_with_the_entries() -> None:
    """A cache of a hundred bytes, full with ten entries, that change sides three at a time."""
    walk = Walk(plan_of(100.0))
    for key in range(10):
        walk.ask(key, 10)
    walk.aim(plan_of(100.0, Split("a", 1.0)))
    seen = []
    for _ in range(4):
        walk.tend(3)
        seen.append(tuple(cache.capacity_bytes for cache in walk.cache.caches.values()))
    assert seen == [(70, 30), (40, 60), (10, 90), (0, 100)]
    assert walk.cache.binding() == {TREATMENT: KnobSettings(100.0, 1e6, 0.0)}


def test_while_it_shrinks_what_binds_is_stated_for_the_whole_cache() -> None:
    walk = Walk(plan_of(1_000.0, Split("a", 0.5)))
    for key in range(100):
        walk.ask(key, 10)
    held = walk.cache.caches[TREATMENT].used_bytes
    assert held > 400
    same = KnobSettings(400.0, 1e6, 0.0)
    walk.aim(Plan(Split("a", 0.5), KnobSettings(1_000.0, 1e6, 0.0), same))
    assert walk.cache.binding()[TREATMENT].cache_size == held / 0.5
    walk.tend(2)
    assert walk.cache.binding()[TREATMENT].cache_size == (held - 20) / 0.5
    walk.settle()
    assert walk.cache.binding()[TREATMENT] == same


def test_a_step_looks_at_a_bounded_number_of_keys() -> None:
    walk = Walk(plan_of(1e6))
    for key in range(2 * LOOKED_AT + 1):
        walk.ask(key, 1)
    walk.aim(plan_of(1e6, Split("a", 0.0001)))
    steps = 0
    while walk.cache.moving:
        walk.tend(1_000)
        steps += 1
    assert steps == 3
