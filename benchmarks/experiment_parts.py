"""The four questions of benchmarks/experiments.py, each asked of one salt at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.experiment_rivals import quantile_log_evidence, t_test, threshold_rule
from benchmarks.experiment_runs import Deployment, Noise, Records, Run, run_of, slowdowns
from caches.knobs import KnobSettings
from caches.target import Arm
from envs.interval import column, total_usd
from tuner.analysis import AnalysisPlan, compare
from tuner.experiment import ExperimentDesign
from tuner.judging.pairs import cost_differences, pairs_of
from tuner.judging.shadow_arms import ShadowArm, key_points
from tuner.records import Outcome

Array = NDArray[Any]
LEAD_IN, TREATED = 24, 96
SETTLED = (Outcome.BETTER, Outcome.WORSE)
PLAIN = ExperimentDesign(lead_in_intervals=LEAD_IN, washout_intervals=0, max_intervals=TREATED, share=0.5)
WASHED = PLAIN.model_copy(update={"washout_intervals": 6})
SWAPPING = PLAIN.model_copy(update={"swap_every_intervals": 6})


@dataclass(frozen=True)
class Called:
    """What a method said first, and after how many intervals of treatment; PENDING where it said nothing."""

    outcome: Outcome
    intervals: int | None = None


def stretches(deployment: Deployment, length: int) -> Iterator[range]:
    """Of time after the past, one after the other."""
    for start in range(deployment.past.stop, deployment.stop - length + 1, length):
        yield range(start, start + length)


def alike(deployment: Deployment, salt: str, seed: int, tail: float = 1.0) -> Run:
    """Both arms under the control's settings. tail: what their latencies are multiplied by."""
    settings, slower = [deployment.control] * deployment.stop, slowdowns(deployment.stop, seed)
    control, treatment = deployment.arms(salt, 0.5)
    return run_of((control.replay(settings, slower * tail), treatment.replay(settings, slower * tail)))


def with_ghosts(deployment: Deployment, run: Run, salt: str, rate: float, seed: int = 0) -> Run:
    """Ghosts that see all keys say what the arms under the control's settings cost, to the last bit."""
    if rate >= 1.0:
        return replace(run, reference_usd=run.costs)
    arms = deployment.ghosts(salt, 0.5, rate, seed)
    costs = [arm.costs(deployment.control, deployment.stop, 1.0 / rate) for arm in arms]
    return replace(run, reference_usd=np.stack(costs, axis=1))


# (a) how far two arms that are treated alike seem to differ

DAEMON = "as in the daemon"
GHOSTS: dict[str, float | None] = {"none": None, "1 % of the keys": 0.01, "10 % of the keys": 0.1, DAEMON: None}
SHAPES = ("plain", "lead-in", "swap half-way", "swap every 5")


@dataclass(frozen=True)
class Spreads:
    """values: estimated cost differences after 30 intervals, as a share of the cost, by (balanced salt, ghosts, shape
    of the experiment); the lead-in is of 30 as well. off: how far the daemon's ghosts were from what the arms cost, as
    a share of it, at most. followed: the least share of the keys that they followed."""

    values: dict[tuple[bool, str, str], list[float]]
    off: float
    followed: float


def spreads(deployment: Deployment, seed: int) -> Spreads:
    found: dict[tuple[bool, str, str], list[float]] = {}
    off, followed = 0.0, 1.0
    for balanced in (False, True):
        salt = deployment.salt(seed, balanced)
        run = alike(deployment, salt, seed)
        for ghosts, rate in GHOSTS.items():
            if ghosts == DAEMON:
                usd, share = deployment.told(salt, 0.5)
                told, followed = replace(run, reference_usd=usd), min(followed, share)
                off = max(off, float(np.nanmax(np.abs(usd / run.costs - 1.0))))
            else:
                told = run if rate is None else with_ghosts(deployment, run, salt, rate, seed)
            for at, stretch in enumerate(stretches(deployment, 60)):
                for shape, value in _estimates(told, stretch, 1000 * seed + at).items():
                    found.setdefault((balanced, ghosts, shape), []).append(value)
    return Spreads(found, off, followed)


def _estimates(run: Run, stretch: range, seed: int) -> dict[str, float]:
    design = PLAIN.model_copy(update={"lead_in_intervals": 30})
    pairs = pairs_of(*run.records(stretch, seed), design.stretches(stretch.start))
    difference, _ = cost_differences(pairs)
    unit = float(pairs.usd.sum() / pairs.requests.sum())
    late = ~pairs.lead_in

    def mean(chosen: Array) -> float:
        return float(np.average(difference[chosen], weights=pairs.weight[chosen])) / unit

    place = np.cumsum(late) - 1
    half, fives = late & (place < 15), late & (place // 5 % 2 == 0)
    return {
        "plain": mean(late),
        "lead-in": mean(late) - mean(pairs.lead_in),
        "swap half-way": (mean(half) - mean(late & ~half)) / 2.0,
        "swap every 5": (mean(fives) - mean(late & ~fives)) / 2.0,
    }


# (b) and (c): when something is called, of arms that differ or not


@dataclass(frozen=True)
class Truth:
    """saving: of the treatment's cost. tail: what its latencies are multiplied by."""

    name: str
    saving: float = 0.0
    tail: float = 1.0


NOTHING, CHEAPER, SLOWER = Truth("nothing"), Truth("3 % cheaper", saving=0.03), Truth("P99 10 % longer", tail=1.1)


def challenged(deployment: Deployment, design: ExperimentDesign, began: int) -> NDArray[np.bool_]:
    """Which arm has the challenger's settings, (intervals, 2)."""
    arms = [design.challenged(began, index) for index in range(deployment.stop)]
    return np.array([[arm is Arm.CONTROL, arm is Arm.TREATMENT] for arm in arms])


def first_called(records: Records, design: ExperimentDesign, began: int, every: int) -> Called:
    """With a look every so many intervals of treatment."""
    for since in range(every, TREATED + 1, every):
        stop = design.lead_in_intervals + since
        found = compare(records[0][:stop], records[1][:stop], AnalysisPlan(design, began))
        if found.outcome in SETTLED or found.outcome is Outcome.ERROR:
            return Called(found.outcome, since)
    return Called(Outcome.PENDING)


def calls(deployment: Deployment, seed: int, truth: Truth, every: int, whole: bool) -> dict[str, list[Called]]:
    """By method, one balanced salt, one experiment after the other. every: intervals between looks, of the analysis as
    designed; others look every 6. whole: other designs and rivals as well."""
    salt = deployment.salt(seed, True)
    usual = alike(deployment, salt, seed)
    changed = usual if truth.tail == 1.0 else alike(deployment, salt, seed, truth.tail)
    exact = with_ghosts(deployment, usual, salt, 1.0)
    designs: dict[str, tuple[Run, ExperimentDesign, int]] = {
        "as designed": (exact, PLAIN.model_copy(update=_taken(deployment)), every)
    }
    if whole:
        sampled = with_ghosts(deployment, usual, salt, 0.1, seed)
        designs |= {
            "ghosts see 10 % of the keys": (sampled, PLAIN, 6),
            "no ghosts": (usual, PLAIN, 6),
            "no ghosts, swap every 6": (usual, SWAPPING, 6),
        }
    found: dict[str, list[Called]] = {}
    for at, stretch in enumerate(stretches(deployment, LEAD_IN + TREATED)):
        began, noise = stretch.start, 1000 * seed + at
        for name, (run, design, looks) in designs.items():
            ours = challenged(deployment, design, began)
            records = _changed(run, changed, ours).records(stretch, noise, saving=truth.saving * ours)
            found.setdefault(name, []).append(first_called(records, design, began, looks))
        if whole:
            run = _changed(usual, changed, challenged(deployment, PLAIN, began))
            for name, one in _rivals(run, stretch, noise, truth).items():
                found.setdefault(name, []).append(one)
    return found


def _taken(deployment: Deployment) -> dict[str, float | None]:
    """What the daemon takes from the past."""
    known = deployment.known
    return {"concentration": known.concentration(), "luck_ratio": known.luck_ratio(0.5)}


def _changed(run: Run, changed: Run, ours: Array) -> Run:
    """Histograms of the other run where the challenger's settings are in force."""
    arms = []
    for arm, (one, other) in enumerate(zip(run.arms, changed.arms, strict=True)):
        where = ours[:, arm, None]
        ttft, latency = np.where(where, other.ttft, one.ttft), np.where(where, other.latency, one.latency)
        arms.append(replace(one, ttft=ttft, latency=latency))
    return replace(run, arms=(arms[0], arms[1]))


def _rivals(run: Run, stretch: range, seed: int, truth: Truth) -> dict[str, Called]:
    treated = slice(stretch.start + LEAD_IN, stretch.stop)
    noise = np.random.default_rng(seed).normal(0.0, Noise().cost, (len(stretch), 2))[LEAD_IN:]
    requests = np.stack([arm.rows[treated, 0] for arm in run.arms], axis=1)
    used = requests.min(axis=1) > 0
    unit = run.costs[treated][used] / requests[used] * np.exp(noise[used]) * (1.0, 1.0 - truth.saving)
    cost = unit[:, 1] - unit[:, 0]
    p99 = np.stack([column(arm.rows[treated], "p99_latency_seconds")[used] for arm in run.arms], axis=1) * (
        1.0,
        truth.tail,
    )
    tail = p99[:, 1] - p99[:, 0]
    found = {
        "cost, t-test at the end": _at_the_end(t_test, cost),
        "cost, t-test at every look": _first(lambda upto: t_test(cost[:upto]), len(cost)),
        "cost, threshold rule": _first(lambda upto: threshold_rule(cost[:upto]), len(cost)),
        "P99, t-test at the end": _at_the_end(t_test, tail),
        "P99, t-test at every look": _first(lambda upto: t_test(tail[:upto]), len(tail)),
        "P99, threshold rule, 5 % tolerated": _first(
            lambda upto: threshold_rule(tail[:upto] / p99[:upto, 0], 0.05), len(tail)
        ),
    }
    counts = [np.cumsum(arm.latency[treated][used], axis=0) for arm in run.arms]
    tuned = float(requests.sum() / 2.0)

    def independent(upto: int) -> Outcome:
        evidence = quantile_log_evidence(counts[0][upto - 1], counts[1][upto - 1], 0.99, tuned, 0.05)
        return Outcome.WORSE if evidence > np.log(20.0) else Outcome.PENDING

    found["P99, sequential, requests taken as independent"] = _first(independent, len(cost), 6)
    return found


def _at_the_end(test: Callable[[Array], Outcome], differences: Array) -> Called:
    return Called(test(differences), len(differences))


def _first(said: Callable[[int], Outcome], intervals: int, every: int = 1) -> Called:
    for upto in range(every, intervals + 1, every):
        outcome = said(upto)
        if outcome in SETTLED:
            return Called(outcome, upto)
    return Called(Outcome.PENDING)


# (d) what was foretold and what came


@dataclass(frozen=True)
class Foretold:
    """Savings in per cent of the control's cost. predicted: of the whole traffic. own: of the treatment arm's keys."""

    predicted: float
    own: float
    realised: float | None
    low: float | None
    high: float | None


def foretold(deployment: Deployment, seed: int, start: int, treatment: KnobSettings) -> Foretold:
    """One experiment that begins at `start`, and a replay of the whole traffic that changes settings when it does."""
    salt, stop = deployment.salt(seed, True), start + LEAD_IN + TREATED
    control = [deployment.control] * stop
    changed = [*control[: start + LEAD_IN], *[treatment] * TREATED]
    slower = slowdowns(stop, seed)
    one, other = deployment.arms(salt, 0.5)
    usual = other.replay(control)
    run = run_of((one.replay(control, slower), other.replay(changed, slower)))
    told = replace(run, reference_usd=np.stack((run.costs[:, 0], total_usd(usual.rows)), axis=1))
    records = told.records(range(start, stop), seed)
    found = compare(*records, AnalysisPlan(WASHED, start)).numbers["saving_percent"]
    bounds: dict[str, Any] = found if isinstance(found, dict) else {}
    whole = ShadowArm(deployment.world, key_points(deployment.world.problem.trace.num_keys, salt) >= 0.0, 1.0)
    before, after = total_usd(whole.replay(control).rows), total_usd(whole.replay(changed).rows)
    treated = slice(start + LEAD_IN + WASHED.washout_intervals, stop)

    def percent(without: Array, with_: Array) -> float:
        return 100.0 * (1.0 - float(with_[treated].sum() / without[treated].sum()))

    return Foretold(
        percent(before, after),
        percent(total_usd(usual.rows), run.costs[:, 1]),
        bounds.get("mean"),
        bounds.get("low"),
        bounds.get("high"),
    )
