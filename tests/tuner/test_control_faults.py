"""What fails around a control loop, and that its way stays what it would have been."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from caches.target import CacheUnavailable, Plan, Split
from tests.tuner.loops import (
    KNOBS,
    LARGE,
    STATIC,
    Bench,
    Crash,
    HandPolicies,
    policy,
)
from tuner.control import Did
from tuner.ledger import DecisionFilter
from tuner.live.shadow_cache import ShadowCache, without_queueing
from tuner.records import Verdict

NOBODY = Plan(Split(), STATIC, STATIC)


def test_a_cache_that_is_down_is_a_gap_and_nothing_else(folder: Path) -> None:
    bench = Bench(folder, policies=HandPolicies(policy(1, LARGE)))
    bench.run(3)
    bench.cache.down = True
    bench.traffic()
    assert bench.loop.tick(bench.now).did is Did.UNREACHED
    assert bench.loop.tick(bench.now + 1.0).did is Did.UNREACHED
    bench.cache.down = False
    assert bench.loop.tick(bench.now + 2.0).did is Did.APPLIED
    bench.run(2)
    windows = [one.window is None for one in bench.ledger.intervals("shadow", 0, 99)]
    assert windows == [False, False, False, True, False, False]
    gap = bench.ledger.intervals("shadow", 3, 3)[0]
    assert gap.reason == "The cache's counters could not be read when the interval ended."
    (held,) = [one for one in bench.ledger.decisions("shadow") if one.index == 4]
    assert held.verdict is Verdict.HOLD


def test_a_cache_that_was_started_anew_is_told_again(folder: Path) -> None:
    bench = Bench(folder, policies=HandPolicies(policy(1, LARGE)))
    bench.run(4)
    plan = bench.cache.standing().plan
    again = Bench(folder, seed=1)
    bench.cache.cache = again.cache.cache
    bench.cache.cache.wait(bench.now)
    assert bench.cache.standing().plan == NOBODY
    assert bench.loop.tick(bench.now + 1.0).did is Did.APPLIED
    assert bench.cache.standing().plan == plan


def test_what_the_cache_takes_is_what_counts(folder: Path) -> None:
    bench = Bench(folder, policies=HandPolicies(policy(1, LARGE)))
    narrow = replace(KNOBS, cache_size=replace(KNOBS.cache_size, high=20_000.0))
    bench.cache.cache = ShadowCache(narrow, without_queueing(0.001, 0.001, 0.0))  # the operator has made it smaller
    bench.run(4)
    assert bench.cache.standing().plan.control.cache_size == 20_000.0
    assert bench.state.plan.control.cache_size == 20_000.0
    assert bench.loop.tick(bench.now + 1.0).did is Did.NOTHING  # and it is not told again and again
    (last,) = bench.ledger.decisions("shadow", DecisionFilter(limit=1))
    assert last.applied is not None
    assert last.applied.cache_size == 20_000.0 < last.limited.cache_size


def test_intervals_without_a_daemon_are_recorded_as_such(folder: Path) -> None:
    bench = Bench(folder)
    bench.run(1)
    for _ in range(3):
        bench.traffic()
    bench.loop.tick(bench.now)
    records = bench.ledger.intervals("shadow", 0, 99)
    assert [one.index for one in records] == [0, 1, 2, 3]
    assert [one.reason for one in records[2:]] == ["No daemon was at work in this interval."] * 2


def test_a_standby_takes_over_and_the_first_one_is_fenced_off(folder: Path) -> None:
    bench = Bench(folder, policies=HandPolicies(policy(1, LARGE)))
    bench.run(2)
    other = bench.started("two")
    assert other.tick(bench.now).did is Did.STANDBY
    for _ in range(4):  # the first one hangs
        bench.traffic()
    assert other.tick(bench.now).did is Did.DECIDED
    assert bench.loop.tick(bench.now).did is Did.STANDBY
    lease = bench.ledger.lease("shadow")
    assert lease is not None
    assert bench.cache.standing().fence == lease.fence == 2


@pytest.mark.parametrize("place", ["before commit", "before apply", "after apply", "before confirm"])
@pytest.mark.parametrize("index", [3, 9, 15])
def test_a_crash_anywhere_changes_nothing_of_the_way(folder: Path, place: str, index: int) -> None:
    """The same experiment with and without a crash: the same intervals, decisions and judgements."""
    ways = []
    for crashes in (False, True):
        home = folder / str(crashes)
        home.mkdir()
        bench = Bench(home, policies=HandPolicies(None, policy(7, LARGE)))
        bench.run(index)
        bench.traffic()
        if crashes:
            crash(bench, place)
            bench.loop = bench.started()
        bench.run(18 - index)
        experiments = bench.ledger.experiments("shadow")
        ways.append(
            (
                bench.ledger.intervals("shadow", 0, 99),
                bench.ledger.decisions("shadow", DecisionFilter(limit=200)),
                [bench.ledger.judgements(one.id) for one in experiments],
                bench.state.plan,
                bench.cache.standing().plan,
            )
        )
    assert ways[0] == ways[1]
    assert len(ways[0][0]) > 18


def crash(bench: Bench, place: str) -> None:
    if place == "before commit":
        bench.cache.after["counters"] = Crash()
    elif place == "before apply":
        bench.cache.before["apply"] = Crash()
    elif place == "after apply":
        bench.cache.after["apply"] = Crash()
    else:
        bench.cache.before["counters"] = CacheUnavailable("gone for a moment")
    if place == "before confirm":
        bench.cache.before.clear()
        bench.ledger.confirm, confirm = None, bench.ledger.confirm  # type: ignore[assignment, method-assign]
        with pytest.raises(TypeError):
            bench.loop.tick(bench.now)
        bench.ledger.confirm = confirm  # type: ignore[method-assign]
        return
    with pytest.raises(Crash):
        bench.loop.tick(bench.now)
