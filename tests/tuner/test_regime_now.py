"""After a change of regime: hold, then the what-if controller, then a training is asked for."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from agents.policy import Ghosts
from caches.knobs import KnobSettings
from envs.ghosts import grid_settings
from tests.tuner.loops import KNOBS, LARGE, SECONDS, STATIC, Bench, Blind, HandPolicies, near, policy, rules
from tuner.control import ControlLoop
from tuner.ledger import DecisionFilter
from tuner.loop.closing import Looked
from tuner.loop.regime_now import HELD, REGIME, RETRAIN, STAND_IN
from tuner.loop.sight import KeysSeen
from tuner.records import ControlState, Phase, Verdict, WishKind
from tuner.regime import RegimeMemory, RegimeWatch
from tuner.regime_section import RegimeConfig
from tuner.retraining import Retraining

CONFIG = RegimeConfig(hold_intervals=2, retrain_intervals=4)
BEST = KnobSettings(20_000.0, 10_000.0, 0.0)


class Ghostly(Blind):
    """Ghosts beside the traffic, of which one costs half of what all others do."""

    def keys(self, state: ControlState, now_seconds: float) -> Looked:
        grid = [*grid_settings(KNOBS, (3, 3, 2)), BEST, STATIC]
        positions = np.array([KNOBS.positions(one) for one in grid])
        usd = np.ones((len(grid), 6))
        usd[grid.index(BEST)] = 0.5
        ghosts = Ghosts(positions, usd, np.zeros(usd.shape, bool))
        return Looked(now_seconds, keys=replace(KeysSeen.nothing(), ghosts=ghosts))


def shifted(bench: Bench, watch: Blind) -> None:
    """A daemon that watches, where traffic has just changed."""
    bench.rules = rules(regime=RegimeWatch(CONFIG, SECONDS))
    bench.loop = ControlLoop(bench.cache, bench.ledger, bench.policies, watch, bench.rules, "one", 2.0 * SECONDS)
    memory = bench.state.memory | {REGIME: RegimeMemory(intervals_since=0).model_dump(mode="json")}
    lease = bench.ledger.take_lease("shadow", "one", bench.now, 2.0 * SECONDS)
    assert lease is not None
    bench.ledger.amend(lease, replace(bench.state, memory=memory), bench.now)


def test_settings_are_held_then_the_controller_decides_then_a_training_is_asked_for(folder: Path) -> None:
    bench = Bench(folder, policies=HandPolicies(policy(1, LARGE)))
    bench.run(1)
    shifted(bench, Ghostly())
    before = bench.state.plan
    bench.run(1)
    (held,) = bench.ledger.decisions("shadow", DecisionFilter(limit=1))
    assert bench.state.plan == before
    assert (held.verdict, held.reasons[0]) == (Verdict.HOLD, HELD)
    bench.run(2)
    (steered,) = bench.ledger.decisions("shadow", DecisionFilter(limit=1))
    assert steered.policy == STAND_IN
    assert near(steered.proposed, BEST)
    assert RETRAIN not in bench.state.memory
    bench.run(2)
    asked = bench.state.memory[RETRAIN]
    bench.run(1)
    assert bench.state.memory[RETRAIN] == asked  # once
    assert near(bench.state.plan.control, BEST)


def test_without_ghosts_it_goes_on_holding(folder: Path) -> None:
    bench = Bench(folder, policies=HandPolicies(policy(1, LARGE)))
    bench.run(1)
    shifted(bench, Blind())
    before = bench.state.plan
    bench.run(3)
    assert bench.state.plan == before


def test_a_promotion_settles_it(folder: Path) -> None:
    bench = Bench(folder, policies=HandPolicies(policy(1, STATIC), policy(2, LARGE)))
    while bench.run(1).state.phase is not Phase.RAMP:  # type: ignore[union-attr]
        assert bench.now < 60 * SECONDS
    shifted(bench, Ghostly())
    bench.run(6)
    assert RETRAIN in bench.state.memory
    bench.wish(WishKind.PROMOTE)
    bench.run(1)
    assert bench.state.phase is Phase.PROMOTED
    assert RETRAIN not in bench.state.memory
    assert RegimeMemory.read(bench.state.memory[REGIME]).intervals_since is None  # type: ignore[arg-type]


def test_a_training_runs_once_and_in_the_background(folder: Path) -> None:
    bench = Bench(folder)
    bench.run(1)
    asked = replace(bench.state, memory={RETRAIN: 7})
    output = folder / "out" / "retraining.log"
    training = Retraining([sys.executable, "-c", "print('trained')"], output)
    training.see_to(bench.state)
    assert not output.exists()
    deadline = time.monotonic() + 60.0
    while "trained" not in (output.read_text() if output.exists() else ""):
        training.see_to(asked)
        assert time.monotonic() < deadline
        time.sleep(0.05)
    for _ in range(3):
        training.see_to(asked)
    training.stop()
    assert output.read_text() == "trained\n"
