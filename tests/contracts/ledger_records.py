"""Records for tests of ledgers, each field other than its default somewhere."""

from __future__ import annotations

from dataclasses import replace

from caches.knobs import KnobSettings
from caches.target import Arm, ArmCounters, Counted, Histogram, Plan, Split, Standing
from tuner.ledger import Lease, Ledger
from tuner.records import (
    ControlState,
    Decision,
    ExperimentRecord,
    IntervalRecord,
    Judgement,
    Mode,
    Outcome,
    Phase,
    Tick,
    Verdict,
    Wish,
    WishKind,
)

CACHE = "gateway"
EXPERIMENT = "2026-11-30-a"
START = 1_790_000_000.0
STEP = 60.0  # seconds of an interval
OURS = KnobSettings(1.0 * 2**30, 3600.0, 0.1)
THEIRS = KnobSettings(2.0 * 2**30, 1800.5, 1 / 3, "s3-fifo")
PLAN = Plan(Split("a salt", 0.05), OURS, THEIRS)


HOUR = 3_600.0


def taken(ledger: Ledger, now_seconds: float = START, holder: str = "a", cache: str = CACHE) -> Lease:
    """A lease for an hour."""
    lease = ledger.take_lease(cache, holder, now_seconds, HOUR)
    assert lease is not None
    return lease


def at(index: int) -> float:
    """When interval `index` begins."""
    return START + index * STEP


def counted(index: int) -> Counted:
    seconds = Histogram((0.001, 0.1, 2.5), (index, 5, 0, 1), 3.75)
    arm = ArmCounters(*range(index, index + 18), seconds, seconds, Histogram((), (7,), 1e9 + 0.1))
    return Counted(START - 5.5, at(index), {Arm.CONTROL: arm, Arm.TREATMENT: replace(arm, requests=2**53 + 1)})


def standing(plan: Plan = PLAN) -> Standing:
    return Standing(plan, {Arm.CONTROL: plan.control}, 1, START - 5.5)


def state(index: int, cache: str = CACHE) -> ControlState:
    return ControlState(cache, index, at(index), None, PLAN, False)


def interval(index: int, arm: Arm = Arm.CONTROL, cache: str = CACHE) -> IntervalRecord:
    return IntervalRecord(
        cache=cache,
        index=index,
        arm=arm,
        began_seconds=at(index),
        ended_seconds=at(index + 1),
        settings=PLAN.settings(arm),
        share=PLAN.split.share(arm),
        window={"hit_ratio": 0.1 + 0.2, "p99_ttft_seconds": None, "requests": 12.0},
        reference_usd=0.012,
        reward=-0.5,
    )


def decision(
    index: int, arm: Arm = Arm.CONTROL, cache: str = CACHE, limited: KnobSettings = OURS, mode: Mode = Mode.LIVE
) -> Decision:
    return Decision(
        cache=cache,
        index=index,
        arm=arm,
        at_seconds=at(index),
        policy="ppo",
        version=3,
        mode=mode,
        verdict=Verdict.ALLOW,
        reasons=("it is cheaper by 3 % — said the ghosts", "second"),
        proposed=THEIRS,
        limited=limited,
        predicted_usd_per_1000=0.25,
    )


def tick(index: int, cache: str = CACHE) -> Tick:
    """The interval before it is over, both arms, and a decision for each."""
    return Tick(
        state(index, cache),
        intervals=tuple(interval(index - 1, arm, cache) for arm in Arm),
        decisions=tuple(decision(index, arm, cache) for arm in Arm),
    )


def experiment(id: str = EXPERIMENT, cache: str = CACHE, began_seconds: float = START) -> ExperimentRecord:
    return ExperimentRecord(id, cache, began_seconds, None, 4, {"ramp": [0.05, 0.2, 0.5], "salt": "ü", "lead": None})


def judgement(index: int, experiment: str = EXPERIMENT, cache: str = CACHE) -> Judgement:
    return Judgement(cache, experiment, index, Outcome.PENDING, ("too little traffic",), {"low": -0.1, "n": index})


def wish(kind: WishKind = WishKind.PAUSE, at_seconds: float = START, cache: str = CACHE) -> Wish:
    return Wish(cache, kind, "ada", at_seconds, "the launch is today", {"challenger": 7})


def full_tick(index: int, asked: Wish) -> Tick:
    """With all that a tick can hold: no field of any record has its default."""
    histogram = Histogram((0.1, 1.0), (3, 0, 1), 2.5)
    rest = {"reason": "in part", "ttft_seconds": histogram, "latency_seconds": replace(histogram, total=9.0)}
    ended = {"champion": 3, "ended_seconds": at(index), "outcome": Outcome.BETTER, "answer": "promoted"}
    return Tick(
        state=full_state(index),
        intervals=(replace(interval(index - 1), **rest), interval(index - 1, Arm.TREATMENT)),
        decisions=(
            replace(decision(index), applied=THEIRS),
            replace(decision(index, Arm.TREATMENT, limited=THEIRS), proposed=None),
        ),
        wishes=(replace(asked, done_index=index, answer="paused"),),
        experiments=(replace(experiment(), **ended), experiment("another")),
        judgement=judgement(index - 1),
    )


def full_state(index: int) -> ControlState:
    return replace(
        state(index),
        opened=counted(index),
        confirmed=True,
        phase=Phase.RAMP,
        step=2,
        phase_index=index - 1,
        experiment=EXPERIMENT,
        paused="by ada",
        latched="P99 was 2.1 s, the limit is 2 s",
        memory={"policy": {"seen": [1, 2.5, None, True, "ä"], "generator": 2**127 + 1}, "empty": {}},
    )
