"""The control loop, over a real ledger and a replayed cache, in virtual time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from caches.knobs import KnobSettings
from caches.target import Arm, Plan, Split, Standing
from envs.traffic import FEATURES, REQUESTS
from tests.tuner.loops import (
    LARGE,
    SECONDS,
    SMALL,
    STATIC,
    Bench,
    Blind,
    HandPolicies,
    near,
    policy,
    rules,
)
from tuner.control import ControlLoop, Did
from tuner.ledger import DecisionFilter
from tuner.loop.closing import Looked
from tuner.loop.next_tick import next_tick, wanted_in
from tuner.loop.sight import KeysSeen
from tuner.loop.standpoint import Seen
from tuner.records import ControlState, Mode, Outcome, Phase, Verdict, WishKind

NOBODY = Plan(Split(), STATIC, STATIC)


def test_first_tick_applies_the_operators_settings(folder: Path) -> None:
    bench = Bench(folder)
    assert bench.loop.tick(0.0).did is Did.DECIDED
    assert bench.cache.standing().plan == NOBODY
    assert bench.state.confirmed
    assert bench.state.phase is Phase.IDLE


def test_a_tick_again_in_the_interval_changes_nothing(folder: Path) -> None:
    bench = Bench(folder, policies=HandPolicies(policy(1, LARGE)))
    bench.run(2)
    before, decisions = bench.state, bench.ledger.decisions("shadow")
    for later in (0.0, 1.0, SECONDS - 1e-6):
        assert bench.loop.tick(bench.now + later).did is Did.NOTHING
    assert bench.state == before
    assert bench.ledger.decisions("shadow") == decisions


def test_a_look_that_finds_nothing_writes_nothing(folder: Path) -> None:
    """Readers look again whenever the ledger has been written to."""
    bench = Bench(folder)
    bench.run(2)
    before, lease = bench.ledger.revision(), bench.ledger.lease("shadow")
    assert lease is not None
    for later in range(0, 60, 10):
        assert bench.loop.tick(bench.now + later).did is Did.NOTHING
        assert bench.now + later < lease.until_seconds
    assert bench.ledger.revision() == before


def test_a_lease_is_renewed_before_it_runs_out(folder: Path) -> None:
    bench = Bench(folder)
    for step in range(60):
        bench.loop.tick(10.0 * step)
        lease = bench.ledger.lease("shadow")
        assert lease is not None
        assert lease.fence == 1
        assert 60.0 <= lease.until_seconds - 10.0 * step <= 120.0  # of two intervals, at least half


def test_intervals_are_counted_by_arm_and_none_is_lost(folder: Path) -> None:
    bench = Bench(folder)
    bench.run(3)
    records = bench.ledger.intervals("shadow", 0, 99)
    assert [(one.index, one.arm) for one in records] == [(0, Arm.CONTROL), (1, Arm.CONTROL), (2, Arm.CONTROL)]
    for record in records:
        assert record.window is not None
        assert record.window["requests"] == 300
        # 0.1 s of a GPU at 0.01 USD/s for each miss
        misses = 300 - (record.window["hits"] or 0)
        assert record.window["compute_usd"] == pytest.approx(misses * 0.001)
        assert record.settings == STATIC


def test_the_champion_moves_by_its_largest_step_and_what_is_taken_is_read_back(folder: Path) -> None:
    bench = Bench(folder, policies=HandPolicies(policy(1, LARGE)))
    bench.run(1)
    (decision,) = bench.ledger.decisions("shadow", DecisionFilter(limit=1))
    assert (decision.policy, decision.version, decision.mode, decision.verdict) == (
        "schedule",
        1,
        Mode.LIVE,
        Verdict.ALLOW,
    )
    assert near(decision.proposed, LARGE)
    # a quarter of a range of a factor 100: by a factor of 100 ** 0.25
    assert decision.limited.cache_size == pytest.approx(5_000 * 100**0.25, rel=1e-3)
    assert decision.applied == bench.cache.standing().plan.control == decision.limited
    bench.run(3)
    assert near(bench.cache.standing().plan.control, LARGE)


def test_in_shadow_nothing_is_applied(folder: Path) -> None:
    bench = Bench(folder, rules(Mode.SHADOW), HandPolicies(policy(1, LARGE), policy(2, SMALL)))
    bench.run(8)
    assert bench.cache.standing().fence == 0
    assert bench.cache.standing().plan == NOBODY
    assert bench.state.phase is Phase.SHADOW
    champion = bench.ledger.decisions("shadow", DecisionFilter(arm=Arm.CONTROL))
    challenger = bench.ledger.decisions("shadow", DecisionFilter(arm=Arm.TREATMENT))
    assert {one.mode for one in (*champion[:-1], *challenger)} == {Mode.SHADOW}
    assert {one.applied for one in (*champion[:-1], *challenger)} == {None}
    # each goes the way that it would have gone
    assert near(champion[0].limited, LARGE)
    assert near(challenger[0].limited, SMALL)
    assert {one.settings for one in bench.ledger.intervals("shadow", 0, 99)} == {STATIC}


def test_a_better_challenger_goes_all_the_way(folder: Path) -> None:
    bench = Bench(folder, policies=HandPolicies(None, policy(7, LARGE)))
    phases = []
    for _ in range(80):
        bench.run(1)
        phases.append((bench.state.phase, bench.state.step, bench.state.plan.split.treatment))
        if bench.state.phase is Phase.PROMOTED:
            break
    assert list(dict.fromkeys(phases)) == [
        (Phase.SHADOW, 0, 0.0),
        (Phase.CANARY, 0, 0.2),
        (Phase.RAMP, 1, 0.5),
        (Phase.RAMP, 2, 1.0),
        (Phase.PROMOTED, 0, 0.0),
    ]
    assert bench.policies.promoted[0] == (7, None)
    assert near(bench.state.plan.control, LARGE)
    (experiment,) = bench.ledger.experiments("shadow")
    assert (experiment.champion, experiment.challenger, experiment.outcome) == (None, 7, Outcome.BETTER)
    bench.run(2)
    assert bench.state.phase is Phase.PROMOTED
    (last,) = bench.ledger.decisions("shadow", DecisionFilter(limit=1))
    assert (last.version, last.mode) == (7, Mode.LIVE)
    judged = bench.ledger.judgements(experiment.id)
    assert [one.index for one in judged] == list(range(judged[0].index, judged[0].index + len(judged)))


def test_after_a_promotion_the_registry_has_the_last_word(folder: Path) -> None:
    first, second = policy(1, STATIC), policy(2, LARGE)
    bench = Bench(folder, policies=HandPolicies(first, second))
    bench.run(3)
    bench.wish(WishKind.PROMOTE)
    bench.run(3)
    assert bench.policies.champion() is second
    promotions = len(bench.policies.promoted)
    bench.policies.first, bench.policies.second = first, second  # somebody puts the old one back
    bench.run(3)
    assert bench.policies.champion() is first
    assert len(bench.policies.promoted) == promotions
    (last,) = bench.ledger.decisions("shadow", DecisionFilter(arm=Arm.CONTROL, limit=1))
    assert last.version == 1


def test_held_settings_are_those_of_the_plan_while_the_cache_is_on_its_way(folder: Path) -> None:
    bench = Bench(folder, policies=HandPolicies(policy(1, LARGE)))
    bench.run(2)
    state, counted = bench.state, bench.cache.counters()
    on_its_way = Standing(state.plan, {Arm.CONTROL: LARGE}, 1, counted.began_seconds)  # it has not shrunk yet
    looked = Looked(bench.now + SECONDS, counted, on_its_way)
    strict = rules(objectives=rules().objectives.model_copy(update={"least_requests": 10**6}))
    tick = next_tick(state, Seen(state.index + 1, looked, champion=bench.policies.champion()), strict)
    assert tick.decisions[0].verdict is Verdict.HOLD
    assert tick.state.plan == state.plan


def test_arms_are_alike_in_the_lead_in(folder: Path) -> None:
    bench = Bench(folder, policies=HandPolicies(None, policy(7, LARGE)))
    while bench.run(1).state.phase is not Phase.CANARY:  # type: ignore[union-attr]
        assert bench.now < 20 * SECONDS
    for _ in range(3):
        assert bench.state.plan.treatment == bench.state.plan.control == STATIC
        bench.run(1)
    assert bench.state.plan.control == STATIC
    assert bench.state.plan.treatment.cache_size == pytest.approx(5_000 * 100**0.25, rel=1e-3)


def test_a_worse_challenger_is_rolled_back_and_stays_out(folder: Path) -> None:
    bench = Bench(folder, policies=HandPolicies(None, policy(7, SMALL)), seed=1)
    for _ in range(80):
        if bench.run(1).state.phase is Phase.ROLLED_BACK:  # type: ignore[union-attr]
            break
    assert bench.state.phase is Phase.ROLLED_BACK
    assert bench.state.latched is not None
    assert bench.state.plan == NOBODY
    (experiment,) = bench.ledger.experiments("shadow")
    assert experiment.outcome is Outcome.WORSE
    bench.run(10)
    assert bench.state.phase is Phase.ROLLED_BACK  # not before somebody releases it
    bench.policies.second = policy(8, LARGE)
    bench.run(1)
    assert bench.state.phase is Phase.SHADOW  # or a new version comes
    assert bench.state.latched is None


def test_release_lets_the_same_version_in_again(folder: Path) -> None:
    bench = Bench(folder, policies=HandPolicies(None, policy(7, LARGE)))
    bench.run(4)
    bench.wish(WishKind.ROLL_BACK)
    bench.run(1)
    assert bench.state.phase is Phase.ROLLED_BACK
    bench.run(5)
    wish = bench.wish(WishKind.RELEASE)
    bench.run(1)
    assert bench.state.phase is Phase.IDLE
    (done, *_) = bench.ledger.wishes("shadow")
    assert (done.id, done.answer) == (wish.id, "Released by a person.")
    bench.run(1)
    assert bench.state.phase is Phase.SHADOW


def test_a_stop_of_another_experiment_comes_too_late(folder: Path) -> None:
    bench = Bench(folder, policies=HandPolicies(None, policy(7, LARGE)))
    bench.run(4)
    bench.wish(WishKind.STOP, experiment="shadow-1-v6")
    bench.run(1)
    assert bench.state.phase in (Phase.SHADOW, Phase.CANARY)
    (done, *_) = bench.ledger.wishes("shadow")
    assert done.answer == "It changes nothing: experiment shadow-1-v6 does not run."
    bench.wish(WishKind.STOP, experiment=bench.state.experiment)
    bench.run(1)
    assert bench.state.phase is Phase.IDLE
    bench.run(1)
    assert bench.state.phase is Phase.IDLE  # the same version does not begin again by itself
    bench.wish(WishKind.START, challenger=8)
    wish = bench.wish(WishKind.START, challenger=7)
    bench.run(1)
    assert bench.state.phase is Phase.SHADOW
    answers = {one.id: one.answer for one in bench.ledger.wishes("shadow")}
    assert answers[(wish.id or 0) - 1] == "The challenger is version 7, not 8; give version 8 the alias first."
    assert answers[wish.id] == "A challenger is there: it decides in shadow."


@dataclass
class Predicting(Blind):
    """Ghosts say what the control settings cost on an interval's requests, and what the challenger's would have."""

    control_usd: float
    challenger_usd: float

    def keys(self, state: ControlState, now_seconds: float) -> Looked:
        traffic = np.full(len(FEATURES), np.nan)
        traffic[REQUESTS] = 300.0
        keys = replace(KeysSeen.nothing(), traffic=traffic)
        drafts = dict.fromkeys(wanted_in(state), self.challenger_usd)
        return Looked(now_seconds, keys=keys, reference_usd={Arm.CONTROL: self.control_usd}, drafts=drafts)


def watched(folder: Path, challenger_usd: float) -> Bench:
    """A challenger that decides in shadow for long, beside ghosts."""
    slow = rules().rollout.model_copy(update={"shadow_intervals": 50})
    bench = Bench(folder, rules(rollout=slow), HandPolicies(None, policy(7, LARGE)))
    watch = Predicting(0.03, challenger_usd)
    bench.loop = ControlLoop(bench.cache, bench.ledger, bench.policies, watch, bench.rules, "one", 2.0 * SECONDS)
    return bench


def test_what_a_challenger_would_have_saved_is_written_down(folder: Path) -> None:
    bench = watched(folder, challenger_usd=0.027)
    bench.run(14)
    (last,) = bench.ledger.decisions("shadow", DecisionFilter(arm=Arm.TREATMENT, limit=1))
    assert last.predicted_usd_per_1000 == pytest.approx(0.01)  # 0.003 USD on 300 requests
    assert bench.state.phase is Phase.SHADOW  # a prediction is no proof, and hurries nothing


def test_a_challenger_that_ghosts_foresee_to_cost_more_gets_no_keys(folder: Path) -> None:
    bench = watched(folder, challenger_usd=0.033)
    bench.run(14)
    assert bench.state.phase is Phase.ROLLED_BACK
    assert {one.share for one in bench.ledger.intervals("shadow", 0, 99)} == {1.0}


def test_kill_restores_the_operators_settings_inside_the_interval(folder: Path) -> None:
    bench = Bench(folder, policies=HandPolicies(policy(1, LARGE), policy(2, SMALL)))
    bench.run(8)
    assert bench.state.plan.split.treatment == 0.2
    bench.wish(WishKind.KILL)
    assert bench.loop.tick(bench.now + 1.0).did is Did.APPLIED
    assert bench.cache.standing().plan == NOBODY
    bench.run(5)
    assert bench.cache.standing().plan == NOBODY
    assert bench.state.phase is Phase.ROLLED_BACK
    assert bench.state.paused == "The operator's settings were restored by ann"
    bench.wish(WishKind.RESUME)
    bench.run(1)
    assert bench.state.paused is None
    assert bench.state.plan.control.cache_size > STATIC.cache_size  # the champion acts again


def test_paused_settings_stay(folder: Path) -> None:
    bench = Bench(folder, policies=HandPolicies(policy(1, LARGE)))
    bench.run(1)
    bench.wish(WishKind.PAUSE)
    bench.run(1)
    held = bench.cache.standing().plan
    bench.run(3)
    assert bench.cache.standing().plan == held
    (last,) = bench.ledger.decisions("shadow", DecisionFilter(limit=1))
    assert last.mode is Mode.HOLD
    assert last.reasons[0] == "Paused by ann."


def test_a_broken_objective_takes_the_champion_out(folder: Path) -> None:
    bench = Bench(folder, policies=HandPolicies(policy(1, LARGE)))
    bench.run(3)
    assert bench.cache.standing().plan != NOBODY
    strict = rules().objectives.model_copy(update={"p99_ttft_seconds": 0.05, "rollback_after": 2})
    bench.rules = rules(objectives=strict)  # every miss takes a tenth of a second
    bench.loop = bench.started()
    bench.run(1)
    assert bench.state.phase is Phase.IDLE  # once may be chance
    bench.run(1)
    assert bench.state.phase is Phase.ROLLED_BACK
    assert bench.cache.standing().plan == NOBODY
    bench.run(3)
    assert bench.cache.standing().plan == NOBODY
    (last,) = bench.ledger.decisions("shadow", DecisionFilter(limit=1))
    assert last.version is None
    assert bench.state.latched is not None


def test_settings_never_leave_the_range(folder: Path) -> None:
    wild = policy(1, KnobSettings(100_000.0, 100_000.0, 1.0))
    bench = Bench(folder, policies=HandPolicies(wild))
    narrow = replace(rules().knobs, cache_size=replace(rules().knobs.cache_size, high=20_000.0))
    bench.rules = rules(knobs=narrow)
    bench.loop = bench.started()
    bench.run(12)
    assert bench.cache.standing().plan.control.cache_size == 20_000.0
