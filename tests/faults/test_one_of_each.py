"""A daemon that is killed, a Redis that goes away, and how soon a decision has its effect: once each, under traffic."""

from __future__ import annotations

import statistics

from benchmarks.fault_accounts import account
from benchmarks.fault_daemons import Child
from benchmarks.fault_kills import Slaughter
from benchmarks.fault_traffic import wait_until
from benchmarks.fault_troubles import TROUBLES, suffer
from benchmarks.fault_world import CACHE, World
from tuner.ledger import Ledger


def test_redis_goes_and_comes_back_and_all_requests_are_answered(world: World, daemon: Child, ledger: Ledger) -> None:
    told = suffer(world, ledger, daemon, TROUBLES["redis killed"])
    assert told.failed == ()
    assert told.asked > 0
    assert world.looked.outside == []


def test_a_decision_has_its_effect_inside_its_interval(world: World, daemon: Child, ledger: Ledger) -> None:
    state = ledger.state(CACHE)
    first = 0 if state is None else state.index
    wait_until(lambda: (now := ledger.state(CACHE)) is not None and now.index > first + 4, "four intervals")
    effects = account(world).effects
    assert statistics.median(effects) < world.interval_seconds
    assert all(decision.applied is not None for decision in ledger.decisions(CACHE) if decision.index == first + 2)


def test_killed_once_no_interval_is_lost_and_ledger_and_cache_agree(world: World) -> None:
    slaughter = Slaughter(world, seed=0)
    slaughter.go_on(1)
    slaughter.rest()
    found = account(world)
    assert (found.missing, found.doubled, found.disagreements) == (0, 0, ())
    assert found.counted > 0
    assert slaughter.kills.number == 1
    assert world.traffic.failed() == []
