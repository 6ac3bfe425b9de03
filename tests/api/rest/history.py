"""A ledger with a history in it, written tick by tick through the seam, as a daemon writes it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from caches.knobs import Knob, KnobSettings, KnobSpace
from caches.target import Arm, ArmCounters, Counted, Histogram, Plan, Split, Standing
from envs.interval import NAMES
from tuner.ledger import Lease, Ledger
from tuner.loop.limits import limits_memory
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
)

CACHE, EXPERIMENT, DAEMON = "gateway", "2026-11-30-a", "host-1:4711"
INTERVAL, FIRST = 60.0, 29_900_000
SPACE = KnobSpace(
    Knob("cache_size", "bytes", 2.0**24, 2.0**32, 2.0**28, 0.1, "log"),
    Knob("ttl_seconds", "seconds", 60.0, 86_400.0, 3_600.0, 0.1, "log"),
    Knob("warmup_ratio", "share", 0.0, 1.0, 0.0, 0.25, "linear"),
)
STATIC = SPACE.default()
BOUNDS = (0.1, 0.5, 1.0, 2.0, 5.0)


@dataclass(frozen=True)
class Told:
    """What a history is made of. lead_in: intervals before treatment. judged: whether an analysis ran."""

    intervals: int = 60
    lead_in: int = 12
    treatment: float = 0.2
    judged: bool = True
    cache: str = CACHE
    experiment: str = EXPERIMENT


def settings(number: int) -> KnobSettings:
    """That move, and come back after 20 intervals."""
    step = 1.0 + 0.05 * min(number % 20, 20 - number % 20)
    return KnobSettings(2.0**28 * step, 3_600.0 * step, 0.0)


def record(told: Told, number: int, arm: Arm) -> IntervalRecord:
    """1,000 requests per interval, by share; the treatment costs 10 % less per request, and hits more. The interval 30
    is one of which nothing is known."""
    share = told.treatment if arm is Arm.TREATMENT else 1.0 - told.treatment
    treated = arm is Arm.TREATMENT and number >= told.lead_in
    requests = 1_000.0 * share
    hits = requests * (0.66 if treated else 0.6)
    cost = requests * (0.000036 if treated else 0.00004) * (1.0 + 0.1 * (number % 5 - 2))
    window: dict[str, float | None] = dict.fromkeys(NAMES)
    window |= {
        "requests": requests,
        "hits": hits,
        "hit_ratio": hits / requests,
        "stale_answers": 0.01 * hits,
        "p99_ttft_seconds": 0.9 if treated else 1.0 + 0.02 * (number % 7),
        "p99_latency_seconds": 2.5 + 0.1 * (number % 3),
        "compute_usd": 0.8 * cost,
        "warmup_usd": 0.0,
        "memory_usd": 0.2 * cost,
        "staleness_usd": 0.0,
        "slow_usd": 0.0,
    }
    unknown, began = number == 30, (FIRST + number) * INTERVAL
    whole = round(requests)
    ttft = Histogram(BOUNDS, (whole - 20, 5, 10, 5, 0, 0), 0.1 * whole)
    return IntervalRecord(
        cache=told.cache,
        index=FIRST + number,
        arm=arm,
        began_seconds=began,
        ended_seconds=began + INTERVAL,
        settings=settings(number) if treated else STATIC,
        share=share,
        window=None if unknown else window,
        reason="The cache was started anew." if unknown else None,
        reference_usd=cost,
        reward=0.1 if treated else 0.0,
        ttft_seconds=None if unknown else ttft,
        latency_seconds=None if unknown else ttft,
    )


def decision(told: Told, number: int, arm: Arm) -> Decision:
    """The treatment arm's policy is held back in every tenth interval."""
    treated = arm is Arm.TREATMENT
    held = treated and number % 10 == 9
    here = settings(number) if treated else STATIC
    reason = "Moves size and lifetime to where they were cheapest lately." if treated else "Keeps the static settings."
    held_reason = "P99 of the time to the first token was 2.4 s, above the objective of 2 s: settings are held."
    return Decision(
        cache=told.cache,
        index=FIRST + number,
        arm=arm,
        at_seconds=(FIRST + number) * INTERVAL,
        policy="ppo" if treated else "operator's static settings",
        version=4 if treated else None,
        mode=Mode.CANARY if treated else Mode.LIVE,
        verdict=Verdict.HOLD if held else Verdict.ALLOW,
        reasons=(held_reason,) if held else (reason,),
        proposed=here if treated else None,
        limited=here,
        predicted_usd_per_1000=0.0035 if treated else None,
    )


def judgement(told: Told, number: int) -> Judgement:
    """A saving of 4 USD per 1,000,000 requests, 10 %, whose interval narrows until it is BETTER at interval 50."""
    reach = 0.05 / (number - told.lead_in + 1) ** 0.7
    better = number >= 50
    bands = {
        "cost_usd_per_1000": {"mean": -0.004, "low": -0.004 - reach, "high": -0.004 + reach},
        "saving_percent": {"mean": 10.0, "low": 10.0 - 2_500 * reach, "high": 10.0 + 2_500 * reach},
    }
    worse_by = {"mean": -0.001, "low": -0.004, "high": 0.002}
    guard = {
        "what": "requests longer than 1 s to the first token",
        "control": 0.01,
        "treatment": 0.009,
        "margin": 0.001,
    }
    numbers = {
        **bands,
        "control_usd_per_1000": 0.04,
        "batch_intervals": 2,
        "intervals": {
            "lead_in": told.lead_in,
            "treated": number - told.lead_in,
            "swapped": 0,
            "dropped": {"washout": 1},
        },
        "requests": {"control": 800.0 * number, "treatment": 200.0 * number},
        "guards": {"slow_ttft_ratio": guard | {"worse_by": worse_by}},
    }
    treated = number - told.lead_in
    said = f"The treatment costs 0.004 USD less per 1,000 requests: it saves 10.00 % by {treated} intervals."
    outcome = Outcome.BETTER if better else Outcome.PENDING
    return Judgement(told.cache, told.experiment, FIRST + number, outcome, (said,), numbers)


def state(told: Told, number: int) -> ControlState:
    """Interval `number` is open. The canary begins with the first, for the lead-in."""
    plan = Plan(Split("salt", told.treatment), STATIC, settings(number) if number >= told.lead_in else STATIC)
    return ControlState(
        cache=told.cache,
        index=FIRST + number,
        opened_seconds=(FIRST + number) * INTERVAL,
        opened=None,
        plan=plan,
        confirmed=False,
        phase=Phase.CANARY,
        phase_index=FIRST,
        experiment=told.experiment,
        memory=limits_memory(SPACE),
    )


def end_of(told: Told) -> float:
    """When the open interval began."""
    return (FIRST + told.intervals) * INTERVAL


def write(ledger: Ledger, told: Told = Told()) -> Lease:
    """As many ticks as there are intervals, each confirmed. The lease lasts for a minute after the last."""
    lease = None
    for number, tick in enumerate(ticks(told)):
        now = (FIRST + number) * INTERVAL
        lease = ledger.take_lease(told.cache, DAEMON, now, 2 * INTERVAL)
        assert lease is not None
        ledger.commit(lease, tick, now)
        plan = tick.state.plan
        standing = Standing(plan, {arm: plan.settings(arm) for arm in Arm}, lease.fence, FIRST * INTERVAL)
        ledger.confirm(lease, tick.state.index, standing, counted(now), now)
    assert lease is not None
    return lease


def ticks(told: Told) -> Iterator[Tick]:
    experiment = ExperimentRecord(told.experiment, told.cache, FIRST * INTERVAL, 3, 4, {"share": told.treatment})
    yield Tick(state(told, 0), decisions=decisions(told, 0), experiments=(experiment,))
    for number in range(1, told.intervals + 1):
        over = number - 1
        yield Tick(
            state(told, number),
            intervals=tuple(record(told, over, arm) for arm in Arm),
            decisions=decisions(told, number),
            judgement=judgement(told, over) if told.judged and over > told.lead_in else None,
        )


def decisions(told: Told, number: int) -> tuple[Decision, ...]:
    return tuple(decision(told, number, arm) for arm in Arm)


def ended(ledger: Ledger, told: Told, lease: Lease, outcome: Outcome) -> None:
    """One more tick, which ends the experiment."""
    number = told.intervals + 1
    now = (FIRST + number) * INTERVAL
    after = replace(state(told, number), phase=Phase.PROMOTED, experiment=None, plan=Plan(Split(), STATIC, STATIC))
    over = ExperimentRecord(
        told.experiment, told.cache, FIRST * INTERVAL, 3, 4, {"share": told.treatment}, now, outcome, "Promoted."
    )
    ledger.commit(lease, Tick(after, experiments=(over,)), now)


def counted(now: float) -> Counted:
    nothing = Histogram(BOUNDS, (0,) * (len(BOUNDS) + 1), 0.0)
    none = ArmCounters(*(0,) * 18, nothing, nothing, nothing)
    return Counted(FIRST * INTERVAL, now, dict.fromkeys(Arm, none))
