"""The contract of caches under any eviction and admission policy: the steps of the cache contract, and a model that
asks the policy's oracle which entry goes first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from caches.policies.settings import (
    Admission,
    AdmitAll,
    CostAware,
    Eviction,
    Gdsf,
    Lfu,
    LfuLru,
    Lru,
    LruK,
    S3Fifo,
    SecondHit,
    Sieve,
    TinyLfu,
    WTinyLfu,
)
from caches.stats import CacheStats, Expiry
from tests.caches.policies.oracles import Held, oracle_of
from tests.contracts.cache_contract import (
    HIT,
    MISS,
    OTHER,
    Request,
    Script,
    Told,
    WarmUp,
    followed,
    scripts,
)
from traces.trace import Operation

COSTS = (1.0, 4.0, 2.0, 8.0, 1.0, 3.0, 0.5)  # GPU seconds of a miss, by key
BITS = 2**64 - 1


def cells(label: int) -> list[int]:
    """Where a whole number's counters are in the smallest sketch of four blocks; see caches.policies.sketch."""
    state = (label + 1) * 0x9E3779B97F4A7C15 & BITS
    state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & BITS
    state = (state ^ state >> 27) * 0x94D049BB133111EB & BITS
    state ^= state >> 31
    return [(state & 3) * 16 + 4 * row + (state >> 32 + 2 * row & 3) for row in range(4)]


def apart(labels: Sequence[int]) -> bool:
    """Whether each has a counter of its own, which is what makes a sketch exact."""
    taken = Counter(cell for label in labels for cell in set(cells(label)))
    return all(any(taken[cell] == 1 for cell in cells(label)) for label in labels)


def labels_of(number: int) -> tuple[int, ...]:
    labels: list[int] = []
    for label in range(64):
        if len(labels) < number and apart([*labels, label]):
            labels.append(label)
    assert len(labels) == number
    return tuple(labels)


LABELS = labels_of(len(COSTS))  # what the caches know the keys of a script as
EVICTIONS: Sequence[Eviction] = (
    Lru(),
    LruK(2),
    LruK(3, kept=0.5),
    LruK(2, kept=0.0),
    Lfu(),
    Lfu(decay=1.0),
    Lfu(decay=0.9, decay_seconds=0.7),
    LfuLru(),
    LfuLru(0.5, 0.5, most_uses=3),
    Gdsf(),
    S3Fifo(),
    S3Fifo(small=0.3, ghost=0.5, uses=1),
    Sieve(),
    WTinyLfu(),
    WTinyLfu(window=0.3, protected=0.5, sample=1.0),
)
ADMISSIONS: Sequence[Admission] = (AdmitAll(), SecondHit(2, 3.0, 4), TinyLfu(1.0), TinyLfu(), CostAware(1.0))


class Runner(Protocol):
    def __call__(self, script: Script, eviction: Eviction, admission: Admission) -> Told: ...


class ExactCounts:
    """What a sketch without collisions says."""

    def __init__(self, sample: float) -> None:
        self.sample, self.added = sample, 0
        self.counts: dict[int, int] = {}

    def asked(self, key: int, held: int) -> None:
        self.counts[key] = min(self.counts.get(key, 0) + 1, 15)
        self.added += 1
        if self.added >= self.sample * max(held, 8):
            self.counts = {other: count // 2 for other, count in self.counts.items()}
            self.added //= 2

    def __call__(self, key: int) -> int:
        return self.counts.get(key, 0)


@dataclass
class Times:
    """Seconds, and numbers of events for what happened at one time."""

    own: float
    written: float
    touched: float
    written_number: int
    touched_number: int


class PolicyModel:
    """Age, space and admission by scanning all that is held; which entry goes first, by the oracle."""

    def __init__(self, script: Script, eviction: Eviction, admission: Admission) -> None:
        self.capacity, self.ttl, self.since_touch = script.capacity, script.ttl, script.expiry is Expiry.SINCE_TOUCH
        self.admission = admission
        sample = next(
            (one.sample for one in (admission, eviction) if isinstance(one, TinyLfu | CostAware | WTinyLfu)), 1
        )
        self.counts = ExactCounts(sample)
        self.oracle = oracle_of(eviction, self.counts)
        self.times: dict[int, Times] = {}
        self.events = 0
        self.asked: list[tuple[int, float]] = []
        self.stats = CacheStats()

    @property
    def held(self) -> list[Held]:
        return self.oracle.held

    def count(self, **by: int) -> None:
        self.stats = replace(self.stats, **{name: getattr(self.stats, name) + n for name, n in by.items()})

    def age(self, key: int, now: float) -> float:
        times = self.times[key]
        return now - (times.touched if self.since_touch else times.written)

    def number(self, key: int) -> int:
        times = self.times[key]
        return times.touched_number if self.since_touch else times.written_number

    def next_event(self) -> int:
        self.events += 1
        return self.events

    def holds(self, key: int) -> bool:
        return any(one.key == key for one in self.held)

    def settle(self, now: float) -> None:
        """In the order of age, which the names that a policy remembers go by."""
        old = [one.key for one in self.held if self.age(one.key, now) >= self.ttl]
        for key in sorted(old, key=self.number):
            self.oracle.take(key, False, False, self.capacity)
            self.count(expirations=1)
        while sum(one.size for one in self.held) > self.capacity:
            self.oracle.take(self.oracle.victim(self.capacity, 0, now), True, False, self.capacity)
            self.count(evictions=1)

    def lets_in(self, key: int, now: float) -> bool:
        """The second hit, by the list of all requests."""
        rule = self.admission
        if not isinstance(rule, SecondHit):
            return True
        times, others = list[float](), set[int]()
        for other, time in reversed(self.asked):
            if other == key:
                times.append(time)
                others = set()
            else:
                others.add(other)
                if len(others) == rule.remembered:
                    break
        return len(times) >= rule.requests and now - times[rule.requests - 1] <= rule.window_seconds

    def beats(self, comes: Request, goes: Held) -> bool:
        if isinstance(self.admission, TinyLfu):
            return self.counts(comes.key) > self.counts(goes.key)
        if isinstance(self.admission, CostAware):
            worth = self.counts(comes.key) * COSTS[comes.key] / max(comes.size, 1)
            return worth > self.counts(goes.key) * goes.cost / max(goes.size, 1)
        return True

    def store(self, request: Request, now: float, own: float, welcome: bool) -> bool:
        old, too_large = None, request.size > self.capacity
        if self.holds(request.key):
            old = self.oracle.take(request.key, False, not too_large, self.capacity)
        if too_large or not (welcome or old or self.lets_in(request.key, now)):
            self.count(refusals=1)
            return False
        returning = self.oracle.returns(request.key)
        one = Held(request.key, request.size, COSTS[request.key])
        welcome = welcome or old is not None
        judged = welcome
        while sum(one.size for one in self.held) + request.size > self.capacity:
            victim = self.oracle.victim(self.capacity, request.size, now)
            goes = self.oracle.entry(victim)
            if (not welcome and self.oracle.keeps_out(one, goes)) or not (judged or self.beats(request, goes)):
                self.count(refusals=1)
                return False
            judged = True
            self.oracle.take(victim, True, False, self.capacity)
            self.count(evictions=1)
        event = self.next_event()
        self.times[request.key] = Times(own, now, now, event, event)
        self.oracle.put(one, old, returning, self.capacity, now)
        return True

    def warm(self, request: Request, step: WarmUp) -> None:
        key = request.key
        if not self.holds(key) or self.age(key, step.until) >= min(self.ttl, self.times[key].own):
            self.count(warmups=self.store(request, step.time, np.inf, True))

    def read(self, request: Request, own: float) -> tuple[str, float]:
        key, now = request.key, request.time
        self.asked.append((key, now))
        self.counts.asked(key, len(self.held))
        if self.holds(key) and self.age(key, now) >= self.times[key].own:
            self.oracle.take(key, False, False, self.capacity)
            self.count(expirations=1)
        if not self.holds(key):
            self.count(misses=1, miss_bytes=request.size)
            self.store(request, now, own, False)
            return MISS, np.nan
        self.count(hits=1, hit_bytes=self.oracle.entry(key).size)
        self.times[key].touched, self.times[key].touched_number = now, self.next_event()
        self.oracle.used(key, self.capacity, now)
        return HIT, now - self.times[key].written

    def request(self, request: Request) -> tuple[str, float]:
        own = np.inf if request.ttl is None else request.ttl
        if request.operation is Operation.READ:
            return self.read(request, own)
        if request.operation is Operation.WRITE:
            self.count(writes=1)
            self.store(request, request.time, own, False)
        else:
            self.count(deletes=1)
            if self.holds(request.key):
                self.oracle.take(request.key, False, False, self.capacity)
        return OTHER, np.nan

    def tell(self) -> tuple[CacheStats, frozenset[int]]:
        used = sum(one.size for one in self.held)
        stats = replace(self.stats, entries=len(self.held), used_bytes=used)
        return stats, frozenset(one.key for one in self.held)


def model(script: Script, eviction: Eviction, admission: Admission) -> Told:
    return followed(PolicyModel(script, eviction, admission), script)


def policy_id(policy: Eviction | Admission) -> str:
    return repr(policy)


class PolicyContract:
    """Subclass and give `run`."""

    run: Runner

    @pytest.mark.parametrize("eviction", EVICTIONS, ids=policy_id)
    # every implementation runs the same property: an example that one fails is a good example for all
    @settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.differing_executors])
    @given(script=scripts(), admission=st.sampled_from(ADMISSIONS))
    def test_equals_the_model_after_every_step(self, eviction: Eviction, script: Script, admission: Admission) -> None:
        self.compare(eviction, script, admission)

    @pytest.mark.slow
    @pytest.mark.parametrize("eviction", EVICTIONS, ids=policy_id)
    @settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.differing_executors])
    @given(script=scripts(), admission=st.sampled_from(ADMISSIONS))
    def test_equals_the_model_on_many_more(self, eviction: Eviction, script: Script, admission: Admission) -> None:
        self.compare(eviction, script, admission)

    def test_the_age_of_gdsf_never_falls(self) -> None:
        # room for 2, all of size 1, a key's cost in brackets; value = age + uses x cost
        # 0 [1] worth 1, 3 [8] worth 8; 1 [4], worth 4, takes the place of 0: age 1
        # 0 is fetched ahead, worth 1 + 1 = 2, and 1, worth 4, goes for it unjudged: age 4
        # 6 [0.5], worth 4.5, takes the place of 0, worth 2: the age stays 4, and a use makes 6 worth 4 + 2 x 0.5 = 5
        # 2 [2], worth 6, takes the place of 6: age 5; 1, worth 9, that of 2: age 6; 5 [3], worth 9, that of 3, worth 8.
        # If the age fell to 2, 6 would come to 2 + 1 = 3, 2 to 4, 1 to 3 + 4 = 7 and 5 to 4 + 3 = 7, in place of 1.
        reads = [Request(float(t), key, 1) for t, key in enumerate((0, 3, 1, 6, 6, 2, 1, 5))]
        script = Script(2, np.inf, Expiry.SINCE_WRITE, (*reads[:3], WarmUp(2.5, (0,), 2.5), *reads[3:]))
        for told in (type(self).run(script, Gdsf(), AdmitAll()), model(script, Gdsf(), AdmitAll())):
            assert told.outcomes == [MISS, MISS, MISS, MISS, HIT, MISS, MISS, MISS]
            assert told.after[-1][1] == {1, 5}
            assert told.after[-1][0].evictions == 6

    def compare(self, eviction: Eviction, script: Script, admission: Admission) -> None:
        told, expected = type(self).run(script, eviction, admission), model(script, eviction, admission)
        assert told.outcomes == expected.outcomes
        assert told.after == expected.after
        np.testing.assert_allclose(told.ages, expected.ages, rtol=1e-6)
