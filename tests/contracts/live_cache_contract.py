"""One contract for every live cache that is tuned: what it is told, what it says of itself, and how its arms stand
apart. Keys are numbers here; what is asked for counts as a hit where the cache gave the answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields, replace

import numpy as np
import pytest

from caches.errors import InputError
from caches.knobs import Knob, KnobSettings, KnobSpace
from caches.policies.catalog import EVICTIONS
from caches.target import Arm, ArmCounters, CacheUnavailable, Counted, Fenced, LiveCache, Plan, Split
from tuner.experiment import imbalance
from tuner.router import assign, points

CONTROL, TREATMENT = Arm.CONTROL, Arm.TREATMENT
SPACE = KnobSpace(
    Knob("cache_size", "bytes", 1e3, 1e8, 1e7, 0.1, "log"),
    Knob("ttl_seconds", "seconds", 0.5, 86_400.0, 3_600.0, 0.1, "log"),
    Knob("warmup_ratio", "share", 0.0, 1.0, 0.0, 0.25, "linear"),
)
DEFAULT = SPACE.default()
HALVES = Split("salt", 0.5)
COUNTERS = tuple(field.name for field in fields(ArmCounters) if field.name not in ("entries", "used_bytes"))


@dataclass(frozen=True)
class LiveSubject:
    """A live cache under test, empty, with the ranges of SPACE.

    ask: a request for the key of that number, which is answered; whether by the cache. name_of: what the key's arm is
    drawn by. until: time passes until this holds, and the test fails where it never does. wait: so many seconds pass.
    largest_bytes: no entry counts for more.
    """

    cache: LiveCache
    ask: Callable[[int], bool]
    name_of: Callable[[int], bytes]
    until: Callable[[Callable[[], object]], None]
    wait: Callable[[float], None]
    largest_bytes: int

    def ask_all(self, numbers: Iterable[int]) -> list[bool]:
        return [self.ask(number) for number in numbers]

    def arm_of(self, number: int, split: Split) -> Arm:
        return assign(self.name_of(number), split)

    def of_arm(self, arm: Arm, split: Split, numbers: Iterable[int]) -> list[int]:
        return [number for number in numbers if self.arm_of(number, split) is arm]

    def counted(self, name: str) -> dict[Arm, int]:
        return {arm: getattr(counters, name) for arm, counters in self.cache.counters().arms.items()}

    def reached(self) -> bool:
        """Whether what binds is what was planned."""
        standing = self.cache.standing()
        plan = standing.plan
        return standing.binding == {arm: plan.settings(arm) for arm in Arm if plan.split.share(arm) > 0}


def alike(split: Split, **changes: float) -> Plan:
    """With the same settings for both arms."""
    same = replace(DEFAULT, **changes)
    return Plan(split, same, same)


class LiveCacheContract:
    """Subclass it in a test module, with a method `make`."""

    def make(self) -> AbstractContextManager[LiveSubject]:
        raise NotImplementedError

    @pytest.fixture
    def one(self) -> Iterable[LiveSubject]:
        with self.make() as subject:
            yield subject

    def test_it_begins_with_the_operators_settings_for_all_keys(self, one: LiveSubject) -> None:
        standing, counted = one.cache.standing(), one.cache.counters()
        assert one.cache.knob_space() == SPACE
        assert standing.plan == Plan(Split(), DEFAULT, DEFAULT)
        assert standing.binding == {CONTROL: DEFAULT}
        assert standing.fence == 0
        assert standing.began_seconds == counted.began_seconds <= counted.at_seconds
        for counters in counted.arms.values():
            assert {getattr(counters, name) for name in COUNTERS if "seconds" not in name} == {0}
            assert counters.latency_seconds.number == counters.latency_seconds.total == 0

    def test_a_plan_is_taken_within_the_ranges_and_read_back(self, one: LiveSubject) -> None:
        inside = KnobSettings(2e6, 60.0, 0.5)
        wished = Plan(Split("salt", 0.25), inside, KnobSettings(1e12, 0.0001, 7.0))
        taken = one.cache.apply(wished, 3)
        assert taken.plan == Plan(Split("salt", 0.25), inside, KnobSettings(1e8, 0.5, 1.0))
        assert taken.fence == 3
        one.until(one.reached)
        assert one.cache.standing() == replace(taken, binding={CONTROL: inside, TREATMENT: taken.plan.treatment})

    def test_each_arm_gets_the_eviction_policy_of_its_settings_and_nothing_is_lost(self, one: LiveSubject) -> None:
        one.cache.apply(alike(HALVES), 1)
        one.ask_all(range(40))
        entries, evictions = one.counted("entries"), one.counted("evictions")
        for control, treatment in (("sieve", None), ("w-tinylfu", "lru-2"), (None, "lru"), (None, None)):
            settings = [replace(DEFAULT, eviction_policy=name) for name in (control, treatment)]
            plan = Plan(HALVES, *settings)
            assert one.cache.apply(plan, 1).plan == plan
            one.until(one.reached)
            assert one.ask_all(range(40)) == [True] * 40
        assert (one.counted("entries"), one.counted("evictions")) == (entries, evictions)

    def test_it_tells_what_it_was_made_with_first_and_what_else_it_can_be_brought_under(self, one: LiveSubject) -> None:
        """The subject under test is made with least recently used, and offers every policy of the catalog."""
        before = one.cache.standing()
        names = one.cache.eviction_policies()
        assert names[0] == "lru"
        assert sorted(names) == sorted(EVICTIONS)
        assert one.cache.standing() == before
        for name in names:
            same = replace(DEFAULT, eviction_policy=name)
            assert one.cache.apply(Plan(HALVES, same, same), 1).plan.treatment.eviction_policy == name
            assert one.cache.eviction_policies() == names

    def test_an_eviction_policy_that_there_is_not_is_refused_and_changes_nothing(self, one: LiveSubject) -> None:
        one.cache.apply(alike(HALVES), 1)
        before = one.cache.standing()
        wrong = Plan(Split("other", 0.1), DEFAULT, replace(DEFAULT, ttl_seconds=9.0, eviction_policy="crystal-ball"))
        with pytest.raises((InputError, CacheUnavailable)):
            one.cache.apply(wrong, 2)
        assert one.cache.standing() == before

    def test_the_same_plan_again_changes_nothing(self, one: LiveSubject) -> None:
        plan = alike(HALVES, cache_size=1e6)
        one.cache.apply(plan, 1)
        one.ask_all(range(20))
        one.until(one.reached)
        before, entries = one.cache.standing(), one.counted("entries")
        assert one.cache.apply(plan, 1) == before == one.cache.standing()
        assert one.counted("entries") == entries
        assert one.ask_all(range(20)) == [True] * 20

    def test_whoever_has_an_older_fence_is_refused_and_changes_nothing(self, one: LiveSubject) -> None:
        one.cache.apply(alike(HALVES), 7)
        one.until(one.reached)
        before = one.cache.standing()
        with pytest.raises(Fenced):
            one.cache.apply(alike(Split("other", 0.1), ttl_seconds=9.0), 6)
        assert one.cache.standing() == before
        assert one.cache.apply(alike(HALVES, ttl_seconds=9.0), 7).plan.control.ttl_seconds == 9.0
        assert one.cache.apply(alike(HALVES), 8).fence == 8

    def test_keys_stay_with_their_arm_and_are_counted_there(self, one: LiveSubject) -> None:
        one.cache.apply(alike(HALVES), 1)
        numbers = range(30)
        assert one.ask_all(numbers) == [False] * 30
        assert one.ask_all(numbers) == [True] * 30
        mine = {arm: len(one.of_arm(arm, HALVES, numbers)) for arm in Arm}
        assert min(mine.values()) >= 5
        assert one.counted("requests") == {arm: 2 * count for arm, count in mine.items()}
        assert one.counted("hits") == one.counted("entries") == mine

    def test_counters_only_grow_and_agree_with_each_other(self, one: LiveSubject) -> None:
        one.cache.apply(alike(HALVES), 1)
        before = one.cache.counters()
        for number in (*range(8), *range(12), *range(12)):
            one.ask(number)
            now = one.cache.counters()
            assert_grown(before, now)
            before = now
        for counters in before.arms.values():
            assert counters.requests > counters.hits > 0
            assert counters.errors == counters.warmups == 0
            assert counters.ttft_seconds.number == counters.latency_seconds.number == counters.requests
            assert counters.hit_age_seconds.number == counters.hits
            assert counters.ttft_seconds.total <= counters.latency_seconds.total
            missed = counters.miss_prompt_tokens + counters.miss_output_tokens
            assert counters.tokens == counters.hit_tokens + missed > missed > 0
            assert min(counters.hit_bytes, counters.miss_bytes) > 0

    def test_each_arm_has_its_share_of_the_capacity_that_its_settings_state(self, one: LiveSubject) -> None:
        split = Split("salt", 0.25)
        room = 12.0 * one.largest_bytes
        plan = Plan(split, replace(DEFAULT, cache_size=room), replace(DEFAULT, cache_size=2.0 * room))
        one.cache.apply(plan, 1)
        one.until(one.reached)
        one.ask_all(range(100))
        used, evictions = one.counted("used_bytes"), one.counted("evictions")
        for arm, bound in ((CONTROL, 0.75 * room), (TREATMENT, 0.25 * 2.0 * room)):
            assert bound - one.largest_bytes < used[arm] <= bound, arm
            assert evictions[arm] > 0

    def test_an_arm_does_not_see_entries_of_the_other(self, one: LiveSubject) -> None:
        """The treatment arm has no room for any answer, the control arm has it for all."""
        one.cache.apply(Plan(HALVES, DEFAULT, replace(DEFAULT, cache_size=SPACE.cache_size.low)), 1)
        one.until(one.reached)
        numbers = range(20)
        one.ask_all(numbers)
        hits = one.ask_all(numbers)
        assert hits == [one.arm_of(number, HALVES) is CONTROL for number in numbers]
        assert one.counted("hits")[TREATMENT] == one.counted("entries")[TREATMENT] == 0

    def test_each_arm_has_its_own_lifetime(self, one: LiveSubject) -> None:
        one.cache.apply(Plan(HALVES, replace(DEFAULT, ttl_seconds=0.5), DEFAULT), 1)
        numbers = range(12)
        one.ask_all(numbers)
        one.wait(0.6)
        assert one.ask_all(numbers) == [one.arm_of(number, HALVES) is TREATMENT for number in numbers]

    def test_a_smaller_capacity_is_reached_step_by_step(self, one: LiveSubject) -> None:
        one.cache.apply(alike(HALVES), 1)
        one.ask_all(range(60))
        room = 8.0 * one.largest_bytes
        held = one.counted("used_bytes")
        taken = one.cache.apply(alike(HALVES, cache_size=room), 1)
        for arm in Arm:
            assert taken.plan.settings(arm).cache_size == room
            assert taken.binding[arm].cache_size * 0.5 == held[arm] > room * 0.5
        one.until(one.reached)
        assert max(one.counted("used_bytes").values()) <= room * 0.5
        assert one.ask(59)  # the last one asked for is there still

    def test_a_share_that_grows_does_not_start_cold(self, one: LiveSubject) -> None:
        numbers, wide = range(30), Split("salt", 0.6)
        one.cache.apply(alike(Split("salt", 0.1)), 1)
        one.ask_all(numbers)
        one.cache.apply(alike(wide), 1)
        assert one.ask_all(numbers[:15]) == [True] * 15
        mine = {arm: len(one.of_arm(arm, wide, numbers)) for arm in Arm}
        one.until(lambda: one.counted("entries") == mine)
        assert one.ask_all(numbers[15:]) == [True] * 15

    def test_a_salt_is_balanced_on_what_was_asked_for(self, one: LiveSubject) -> None:
        """Seven keys, asked for as often as 14 times. By the requests' share of the treatment arm it is as far off as
        it says at most, and nearer to its share than most others would be."""
        shares = (0.2, 0.5)
        assert one.cache.balanced_salt(5, shares) is None
        asked = {number: 2 * (7 - number) for number in range(7)}
        one.ask_all(number for number, times in asked.items() for _ in range(times))
        before, entries = one.cache.standing(), one.counted("entries")
        found = one.cache.balanced_salt(5, shares)
        assert found is not None
        assert found.keys == 7
        again = one.cache.balanced_salt(5, shares)
        assert again is not None
        assert again.salt == found.salt
        assert one.cache.standing() == before
        assert one.counted("entries") == entries
        parts = np.array([[times / 56.0] for times in asked.values()])
        names = [one.name_of(number) for number in asked]
        off = [imbalance(points(names, salt), parts, shares) for salt in (found.salt, *(f"s{n}" for n in range(40)))]
        assert off[0] <= found.imbalance + 0.01  # popularity that has halved a little by now
        assert off[0] < np.median(off[1:])

    def test_an_arm_without_a_share_holds_nothing_and_still_counts(self, one: LiveSubject) -> None:
        one.cache.apply(alike(HALVES), 1)
        one.ask_all(range(12))
        counted = one.cache.counters().arms[TREATMENT]
        taken = one.cache.apply(alike(Split()), 2)
        assert set(taken.binding) == {CONTROL}
        one.until(lambda: one.counted("entries")[TREATMENT] == 0)
        assert one.ask_all(range(12)) == [True] * 12
        assert one.counted("entries") == {CONTROL: 12, TREATMENT: 0}
        assert one.cache.counters().arms[TREATMENT] == replace(counted, entries=0, used_bytes=0)
        assert one.counted("requests")[TREATMENT] > 0


def assert_grown(before: Counted, after: Counted) -> None:
    assert before.began_seconds == after.began_seconds
    assert before.at_seconds <= after.at_seconds
    assert set(before.arms) == set(after.arms) == set(Arm)
    for arm, counters in after.arms.items():
        for name in COUNTERS:
            old, new = getattr(before.arms[arm], name), getattr(counters, name)
            if isinstance(new, int):
                assert old <= new, name
            else:
                assert old.bounds == new.bounds
                assert old.total <= new.total
                assert all(a <= b for a, b in zip(old.counts, new.counts, strict=True)), name
