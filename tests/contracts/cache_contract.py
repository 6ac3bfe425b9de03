"""One contract for every cache that claims the semantics of caches.in_process: whatever the sequence of requests and
changes, the same hits, counters and resident keys as a model that keeps a plain list and scans it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from caches.stats import CacheStats, Expiry
from traces.trace import Operation

HIT, MISS, OTHER = "hit", "miss", "other"


@dataclass(frozen=True)
class Request:
    time: float
    key: int
    size: int
    ttl: float | None = None
    operation: Operation = Operation.READ


@dataclass(frozen=True)
class Change:
    """Before the next request, at `time`: new settings."""

    time: float
    capacity: int
    ttl: float


@dataclass(frozen=True)
class WarmUp:
    """Before the next request, at `time`: fetch the latest earlier requests of these keys ahead."""

    time: float
    keys: tuple[int, ...]
    until: float


Step = Request | Change | WarmUp


@dataclass(frozen=True)
class Script:
    capacity: int
    ttl: float
    expiry: Expiry
    steps: tuple[Step, ...]

    @property
    def requests(self) -> list[Request]:
        return [step for step in self.steps if isinstance(step, Request)]


@dataclass
class Told:
    """What an implementation reports: one outcome per request, stats and resident keys after every step."""

    outcomes: list[str] = field(default_factory=list)
    ages: list[float] = field(default_factory=list)
    after: list[tuple[CacheStats, frozenset[int]]] = field(default_factory=list)


class Runner(Protocol):
    def __call__(self, script: Script) -> Told: ...


def latest(script: Script, index: int, keys: tuple[int, ...]) -> list[tuple[int, Request]]:
    """(position, request) of the latest request of each key before step `index`, skipping keys not seen."""
    seen: dict[int, tuple[int, Request]] = {}
    earlier = [step for step in script.steps[:index] if isinstance(step, Request)]
    for position, request in enumerate(earlier):
        seen[request.key] = (position, request)
    return [seen[key] for key in keys if key in seen]


class Model:
    """The oracle: a list of [key, size, written, touched, own ttl], least recently touched first, scanned each time."""

    def __init__(self, script: Script) -> None:
        self.held: list[list[float]] = []
        self.capacity, self.ttl = script.capacity, script.ttl
        self.born = 2 if script.expiry is Expiry.SINCE_WRITE else 3
        self.stats = CacheStats()

    def count(self, **by: int) -> None:
        self.stats = replace(self.stats, **{name: getattr(self.stats, name) + n for name, n in by.items()})

    def entry(self, key: int) -> list[float] | None:
        return next((entry for entry in self.held if entry[0] == key), None)

    def settle(self, now: float) -> None:
        fresh = [entry for entry in self.held if now - entry[self.born] < self.ttl]
        self.count(expirations=len(self.held) - len(fresh))
        self.held = fresh
        while sum(entry[1] for entry in self.held) > self.capacity:
            self.held.pop(0)
            self.count(evictions=1)

    def drop(self, key: int) -> None:
        self.held = [entry for entry in self.held if entry[0] != key]

    def store(self, request: Request, now: float, own: float) -> bool:
        self.drop(request.key)
        if request.size > self.capacity:
            self.count(refusals=1)
            return False
        self.held.append([request.key, request.size, now, now, own])
        self.settle(now)
        return True

    def warm(self, request: Request, step: WarmUp) -> None:
        entry = self.entry(request.key)
        if entry is None or step.until - entry[self.born] >= min(self.ttl, entry[4]):
            self.count(warmups=self.store(request, step.time, np.inf))

    def read(self, request: Request, own: float) -> tuple[str, float]:
        entry = self.entry(request.key)
        if entry is not None and request.time - entry[self.born] >= entry[4]:
            self.drop(request.key)
            self.count(expirations=1)
            entry = None
        if entry is None:
            self.count(misses=1, miss_bytes=request.size)
            self.store(request, request.time, own)
            return MISS, np.nan
        self.count(hits=1, hit_bytes=int(entry[1]))
        self.held.remove(entry)
        self.held.append(entry)
        entry[3] = request.time
        return HIT, request.time - entry[2]

    def request(self, request: Request) -> tuple[str, float]:
        own = np.inf if request.ttl is None else request.ttl
        if request.operation is Operation.READ:
            return self.read(request, own)
        if request.operation is Operation.WRITE:
            self.count(writes=1)
            self.store(request, request.time, own)
        else:
            self.count(deletes=1)
            self.drop(request.key)
        return OTHER, np.nan

    def tell(self) -> tuple[CacheStats, frozenset[int]]:
        used = int(sum(entry[1] for entry in self.held))
        return replace(self.stats, entries=len(self.held), used_bytes=used), frozenset(
            int(entry[0]) for entry in self.held
        )


def model(script: Script) -> Told:
    return followed(Model(script), script)


def followed(oracle: Any, script: Script) -> Told:
    """What a model comes to, step by step."""
    told = Told()
    for index, step in enumerate(script.steps):
        if isinstance(step, Change):
            oracle.capacity, oracle.ttl = step.capacity, step.ttl
        oracle.settle(step.time)
        if isinstance(step, WarmUp):
            for _, request in latest(script, index, step.keys):
                oracle.warm(request, step)
        elif isinstance(step, Request):
            outcome, age = oracle.request(step)
            told.outcomes.append(outcome)
            told.ages.append(age)
        told.after.append(oracle.tell())
    return told


gaps = st.sampled_from([0.0, 0.0, 0.1, 0.5, 1.0, 1.0, 3.0, 7.3])
lifetimes = st.sampled_from([0.3, 1.0, 1.1, 2.0, 4.0, 10.0, np.inf])
capacities = st.integers(0, 14)
keys = st.integers(0, 6)
operations = st.sampled_from([Operation.READ] * 6 + [Operation.WRITE, Operation.DELETE])


@st.composite
def scripts(draw: Callable[..., object]) -> Script:
    now, steps = 0.0, []
    for _ in range(draw(st.integers(1, 40))):
        now += draw(gaps)
        kind = draw(st.integers(0, 9))
        if kind == 0:
            steps.append(Change(now, draw(capacities), draw(lifetimes)))
        elif kind == 1:
            wanted = tuple(draw(st.lists(keys, max_size=4, unique=True)))
            steps.append(WarmUp(now, wanted, now + draw(gaps)))
        else:
            own = draw(st.sampled_from([None, None, None, 0.5, 2.0]))
            steps.append(Request(now, draw(keys), draw(st.integers(0, 6)), own, draw(operations)))
    expiry = draw(st.sampled_from(list(Expiry)))
    return Script(draw(capacities), draw(lifetimes), expiry, tuple(steps))


class CacheContract:
    """Subclass and give `run`."""

    run: Runner

    # every implementation runs the same property: an example that one fails is a good example for all
    @settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.differing_executors])
    @given(scripts())
    def test_equals_the_model_after_every_step(self, script: Script) -> None:
        told, expected = type(self).run(script), model(script)
        assert told.outcomes == expected.outcomes
        assert told.after == expected.after
        np.testing.assert_allclose(told.ages, expected.ages, rtol=1e-6)

    def test_since_write_expires_at_its_lifetime_although_hit(self) -> None:
        # written at 0 with lifetime 2: hits at 1, gone at exactly 2, written again and hit at 3
        steps = tuple(Request(t, 0, 1) for t in (0.0, 1.0, 2.0, 3.0))
        told = type(self).run(Script(10, 2.0, Expiry.SINCE_WRITE, steps))
        assert told.outcomes == [MISS, HIT, MISS, HIT]
        assert told.after[-1][0].expirations == 1

    def test_since_touch_lives_on_while_hit(self) -> None:
        steps = tuple(Request(t, 0, 1) for t in (0.0, 1.5, 3.0, 5.0))
        told = type(self).run(Script(10, 2.0, Expiry.SINCE_TOUCH, steps))
        assert told.outcomes == [MISS, HIT, HIT, MISS]

    def test_a_shorter_lifetime_binds_entries_already_written(self) -> None:
        steps = (Request(0.0, 0, 1), Change(5.0, 10, 4.0), Request(5.0, 0, 1))
        told = type(self).run(Script(10, 100.0, Expiry.SINCE_WRITE, steps))
        assert told.outcomes == [MISS, MISS]
        assert told.after[1] == (CacheStats(misses=1, miss_bytes=1, expirations=1), frozenset())

    def test_a_longer_lifetime_extends_what_is_still_here_and_revives_nothing(self) -> None:
        steps = (
            Request(0.0, 0, 1),
            Request(3.0, 1, 1),
            Change(4.0, 10, 9.0),  # key 0, aged 4, is gone at 4 under lifetime 4; key 1 stays until 12
            Request(11.0, 1, 1),
            Request(11.0, 0, 1),
        )
        script = Script(10, 4.0, Expiry.SINCE_WRITE, (*steps[:2], Request(4.0, 1, 1), *steps[2:]))
        assert type(self).run(script).outcomes == [MISS, MISS, HIT, HIT, MISS]

    def test_shrinking_evicts_the_least_recently_touched(self) -> None:
        steps = (
            *(Request(float(k), k, 2) for k in range(3)),
            Request(3.0, 0, 2),
            Change(4.0, 3, np.inf),
        )
        told = type(self).run(Script(6, np.inf, Expiry.SINCE_WRITE, steps))
        assert told.after[-1][1] == {0}
        assert told.after[-1][0].evictions == 2

    def test_a_response_larger_than_the_cache_evicts_nothing(self) -> None:
        steps = (Request(0.0, 0, 3), Request(1.0, 1, 5), Request(2.0, 0, 3), Request(3.0, 1, 5))
        told = type(self).run(Script(4, np.inf, Expiry.SINCE_WRITE, steps))
        assert told.outcomes == [MISS, MISS, HIT, MISS]
        assert told.after[-1][0].refusals == 2

    def test_an_entry_keeps_the_size_it_was_written_with(self) -> None:
        steps = (Request(0.0, 0, 2), Request(1.0, 0, 4))
        told = type(self).run(Script(5, np.inf, Expiry.SINCE_WRITE, steps))
        assert told.after[-1][0].used_bytes == 2

    def test_warming_renews_only_what_would_be_too_old(self) -> None:
        # lifetime 10; at 8 with horizon 5: key 0 (born 0) would be 13 old, key 1 (born 6) only 7, key 2 was never seen
        steps = (Request(0.0, 0, 1), Request(6.0, 1, 1), WarmUp(8.0, (0, 1, 2), 13.0), Request(12.0, 0, 1))
        told = type(self).run(Script(10, 10.0, Expiry.SINCE_WRITE, steps))
        assert told.outcomes == [MISS, MISS, HIT]
        assert told.after[-1][0].warmups == 1
        assert told.ages[-1] == 4.0
