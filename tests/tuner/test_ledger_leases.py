"""Leases under clocks that jump: sequences of what two or three daemons may do, against a ledger in SQLite."""

from __future__ import annotations

import itertools
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from caches.knobs import KnobSettings
from tests.contracts.ledger_records import START, decision, standing, tick
from tests.tuner.test_ledger import FOLDER
from tuner.ledger import Lease, LeaseLost, Ledger
from tuner.ledgers.lease import granted
from tuner.ledgers.sql import open_ledger
from tuner.records import Tick

SKEW = 2.0
LASTS = 30.0
HOLDERS = st.sampled_from(["a", "b", "c"])
NUMBERS = itertools.count(1)


@dataclass
class Rig:
    """The ledger that all examples share, each under another name of a cache."""

    ledger: Ledger | None = None


RIG = Rig()


class Daemons(RuleBasedStateMachine):
    """Each has a clock of its own that jumps at will, and acts under the last lease that it was given, however old."""

    def __init__(self) -> None:
        super().__init__()
        assert RIG.ledger is not None
        self.ledger, self.cache = RIG.ledger, f"cache {next(NUMBERS)}"
        self.time = START
        self.offsets = {"a": 0.0, "b": 0.0, "c": 0.0}
        self.leases: dict[str, Lease] = {}
        self.last: Lease | None = None  # the newest that was given to anybody
        self.given_back = False
        self.committed: list[Tick] = []

    def now(self, holder: str) -> float:
        return self.time + self.offsets[holder]

    @initialize(offsets=st.lists(st.floats(-1e4, 1e4), min_size=3, max_size=3))
    def clocks_differ(self, offsets: list[float]) -> None:
        self.offsets = dict(zip(self.offsets, offsets, strict=True))

    @rule(seconds=st.floats(0.0, 40.0))
    def time_passes(self, seconds: float) -> None:
        self.time += seconds

    @rule(holder=HOLDERS, seconds=st.floats(-100.0, 100.0))
    def a_clock_jumps(self, holder: str, seconds: float) -> None:
        self.offsets[holder] += seconds

    @rule(holder=HOLDERS, force=st.sampled_from([False, False, False, True]))
    def take(self, holder: str, force: bool) -> None:
        now, last = self.now(holder), self.last
        lease = self.ledger.take_lease(self.cache, holder, now, LASTS, force=force)
        runs = last is not None and not self.given_back and now < last.until_seconds
        if lease is None:
            assert last is not None
            assert last.holder != holder
            assert not force
            assert not self.given_back
            assert now < last.until_seconds + SKEW
            return
        if runs and last is not None and last.holder == holder and not force:
            assert lease == replace(last, until_seconds=max(last.until_seconds, now + LASTS))
        else:
            assert lease.fence > (last.fence if last else 0)
            assert lease.until_seconds == now + LASTS
            assert last is None or last.holder == holder or force or self.given_back or not runs
        self.leases[holder], self.last, self.given_back = lease, lease, False

    @rule(holder=HOLDERS)
    def give_back(self, holder: str) -> None:
        lease = self.leases.get(holder)
        if lease is not None:
            self.ledger.drop_lease(lease)
            self.given_back |= self.is_last(lease)

    @rule(holder=HOLDERS, ahead=st.integers(-1, 2))
    def commit(self, holder: str, ahead: int) -> None:
        """Of the next interval, or by a reading of the state that is old."""
        lease = self.leases.get(holder)
        if lease is None:
            return
        index = (self.committed[-1].state.index if self.committed else 0) + ahead
        other = KnobSettings(float(next(NUMBERS)), 1.0, 0.0)  # no two decide alike
        mine = replace(tick(index, self.cache), decisions=(decision(index, cache=self.cache, limited=other),))
        mine = replace(mine, intervals=())
        if self.may_act(holder, lease) and (ahead > 0 or not self.committed):
            self.ledger.commit(lease, mine, self.now(holder))
            self.committed.append(mine)
        else:
            with pytest.raises(LeaseLost):
                self.ledger.commit(lease, mine, self.now(holder))

    @rule(holder=HOLDERS)
    def confirm_and_commit_again(self, holder: str) -> None:
        lease = self.leases.get(holder)
        if lease is None or not self.committed:
            return
        last, now = self.committed[-1], self.now(holder)
        if self.may_act(holder, lease):
            self.ledger.confirm(lease, last.state.index, standing(), None, now)
            self.ledger.commit(lease, last, now)
        else:
            with pytest.raises(LeaseLost):
                self.ledger.confirm(lease, last.state.index, standing(), None, now)
            with pytest.raises(LeaseLost):
                self.ledger.commit(lease, last, now)

    def is_last(self, lease: Lease) -> bool:
        return self.last is not None and (lease.holder, lease.fence) == (self.last.holder, self.last.fence)

    def may_act(self, holder: str, lease: Lease) -> bool:
        """At most one lease can be true of here: the newest."""
        is_last = self.is_last(lease) and not self.given_back
        return is_last and self.last is not None and self.now(holder) < self.last.until_seconds

    @invariant()
    def the_ledger_holds_each_interval_once(self) -> None:
        state = self.ledger.state(self.cache)
        assert (state and state.index) == (self.committed[-1].state.index if self.committed else None)
        found = [(one.index, one.limited) for one in self.ledger.decisions(self.cache)]
        assert found[::-1] == [(one.state.index, one.decisions[0].limited) for one in self.committed][-50:]

    @invariant()
    def the_newest_lease_is_the_one_there_is(self) -> None:
        there = self.ledger.lease(self.cache)
        assert (there and (there.holder, there.fence)) == (self.last and (self.last.holder, self.last.fence))


@pytest.mark.parametrize("examples", [20, pytest.param(400, marks=[pytest.mark.slow, pytest.mark.timeout(900)])])
def test_whatever_clocks_do_one_daemon_at_most_commits_each_interval(examples: int) -> None:
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        RIG.ledger = open_ledger("sqlite:///setpoint.db", Path(folder), skew_seconds=SKEW)
        try:
            run_steps(Daemons, examples, steps=25)
        finally:
            RIG.ledger.close()
            RIG.ledger = None


class Believers(RuleBasedStateMachine):
    """Daemons whose clocks differ by no more than the skew that is allowed for, and that use no force."""

    def __init__(self) -> None:
        super().__init__()
        self.time = START
        self.current: Lease | None = None
        self.told: dict[str, float] = {}  # until when each thinks that the lease is its own

    @rule(seconds=st.floats(0.0, 40.0))
    def time_passes(self, seconds: float) -> None:
        self.time += seconds

    @rule(holder=HOLDERS, offset=st.floats(-SKEW / 2, SKEW / 2))
    def take(self, holder: str, offset: float) -> None:
        now = self.time + offset
        lease = granted(self.current, Lease("c", holder, 0, now + LASTS), now, SKEW, force=False)
        if lease is None:
            return
        others = [until for other, until in self.told.items() if other != holder]
        # the clock of another may be as late as this, so it knows that its lease is over
        assert all(self.time - SKEW / 2 >= until - 1e-6 for until in others)
        self.current, self.told[holder] = lease, lease.until_seconds


def test_while_clocks_differ_by_no_more_than_the_allowance_no_two_believe_that_they_hold_it() -> None:
    run_steps(Believers, examples=60, steps=25)


def run_steps(machine: type[RuleBasedStateMachine], examples: int, steps: int) -> None:
    quiet: dict[str, Any] = {"deadline": None, "suppress_health_check": list(HealthCheck)}
    case = machine.TestCase
    case.settings = settings(max_examples=examples, stateful_step_count=steps, **quiet)
    case("runTest").runTest()
