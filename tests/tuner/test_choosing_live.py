"""A what-if controller that chooses the eviction policy, beside a live cache."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agents.bundle import PolicyBundle
from agents.bundle_policy import BundlePolicy
from agents.policy import Ghosts
from agents.rules import arrays_of
from agents.whatif import WhatIf, WhatIfController
from caches.knobs import KnobSettings
from caches.policies.pair import policies_called
from caches.target import Arm
from tests.agents.bundles import PROVENANCE, SCALE
from tests.tuner.loops import KNOBS, LARGE, SECONDS, STATIC, Bench, HandPolicies, policy
from tuner.control import ControlLoop
from tuner.loop.closing import Looked
from tuner.loop.policies import LivePolicy
from tuner.loop.sight import KeysSeen
from tuner.records import ControlState, WishKind
from tuner.signals import Signal

TWO = policies_called(("lru", "sieve"))
HOME = KNOBS.positions(STATIC)
OPTIONS = WhatIf(memory=0.0, margin=0.0, charge=0.0, unsafe_memory=0.0)


def choosing(version: int = 1) -> LivePolicy:
    """One that runs after whatever ghost was cheapest."""
    rule = WhatIfController(HOME, KNOBS.max_steps, 0.0, OPTIONS, TWO)
    scale = replace(SCALE, interval_seconds=SECONDS)
    bundle = PolicyBundle(
        "whatif", KNOBS, STATIC, PROVENANCE, scale=scale, weights=arrays_of(rule), choices=rule.choices
    )
    return LivePolicy("what-if controller", version, bundle, BundlePolicy("what-if controller", bundle))


@dataclass
class Told:
    """A watch whose ghosts say that one policy is cheaper, at the reference's own settings."""

    cheaper: int = 0

    def signals(self, now_seconds: float) -> Mapping[str, Signal]:
        return {}

    def keys(self, state: ControlState, now_seconds: float) -> Looked:
        usd = np.where(np.arange(2) == self.cheaper, 0.5, 1.0)[:, None]
        ghosts = Ghosts(np.array([HOME, HOME]), usd, np.zeros((2, 1), np.bool_), np.arange(2))
        return Looked(now_seconds, keys=replace(KeysSeen.nothing(), ghosts=ghosts))


@dataclass
class ToldBench(Bench):
    """With such a watch, which outlives the daemon."""

    def __post_init__(self) -> None:
        self.told = Told()
        super().__post_init__()

    def started(self, holder: str = "one") -> ControlLoop:
        return ControlLoop(self.cache, self.ledger, self.policies, self.told, self.rules, holder, 2.0 * SECONDS)


@pytest.fixture
def bench(tmp_path: Path) -> Any:
    return ToldBench(tmp_path, policies=HandPolicies(choosing()))


def in_force(bench: Bench) -> KnobSettings:
    return bench.cache.standing().binding[Arm.CONTROL]


def test_the_cache_comes_under_what_it_chooses_and_back(bench: ToldBench) -> None:
    bench.run(2)
    assert in_force(bench).eviction_policy == "lru"
    bench.told.cheaper = 1
    bench.run(2)
    assert in_force(bench) == replace(STATIC, eviction_policy="sieve")
    assert bench.state.plan.control.eviction_policy == "sieve"
    bench.told.cheaper = 0
    bench.run(1)
    assert in_force(bench).eviction_policy == "lru"
    decided = bench.ledger.decisions(bench.cache.name)
    assert {one.applied.eviction_policy for one in decided if one.applied is not None} == {"lru", "sieve"}
    told = [reason for one in decided for reason in one.reasons]
    assert "No guardrail has anything against it." in told


def test_a_daemon_that_starts_anew_goes_on_with_its_choice(bench: ToldBench) -> None:
    bench.told.cheaper = 1
    bench.run(2)
    bench.loop = bench.started("two")
    bench.now += 3.0 * SECONDS  # the lease of the first runs out
    bench.cache.cache.wait(bench.now)
    bench.told.cheaper = 1
    bench.run(1)
    assert in_force(bench).eviction_policy == "sieve"


def test_who_does_not_choose_gives_the_cache_its_own_back(bench: ToldBench) -> None:
    bench.told.cheaper = 1
    bench.run(2)
    bench.policies.first = policy(2, LARGE)
    bench.run(2)
    assert in_force(bench).eviction_policy is None


def test_a_pause_keeps_it_and_a_kill_restores_what_the_operator_has(bench: ToldBench) -> None:
    bench.run(3)
    bench.told.cheaper = 1
    bench.run(1)
    bench.wish(WishKind.PAUSE)
    bench.told.cheaper = 0
    bench.run(2)
    assert in_force(bench).eviction_policy == "sieve"
    bench.wish(WishKind.KILL)
    bench.run(2)
    assert in_force(bench).eviction_policy is None  # the operator's static settings
