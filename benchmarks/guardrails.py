"""False alarms of what watches the traffic: observations outside the training, and changes of regime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agents.baselines.best_static import fit_best_static
from agents.ppo import ActorPolicy, train
from agents.study import Study, open_study
from agents.training_range import TrainingRange, observed, range_of
from benchmarks.harness import ROOT, Benchmark, Cell, Report, Table, at_most, main, say
from envs import traffic
from envs.interval import column
from envs.observation import LIMIT, names
from envs.world import World
from tuner.config import TunerConfig, load_tuner_config
from tuner.guards.objectives import Objectives
from tuner.problem import make_problem, split_of
from tuner.regime import FEATURES, RegimeWatch, TrafficFeatures
from tuner.regime_section import RegimeConfig

Array = NDArray[Any]

FALSE_HOLDS, FALSE_SHIFTS = 1.0, 1.0  # goals: % of intervals, and in 1,000 intervals
DAY_SECONDS = 86_400.0
CALM_DAYS = 8  # before a change that is put in
# What is done to a signal of the observation, in its own scale, and in words.
FARTHER = {
    "qps": (1.5, "rate × 8"),
    "hit_ratio": (-1.0, "hit ratio lower by a half"),
    "p99_ttft": (1.0, "P99 to the first token × 10"),
    "prompt_tokens": (1.0, "prompts × 2"),
    "entropy": (1.0, "entropy + 2 bits"),
}
# What is done to a feature of the traffic, and in words; rate and tokens are multiplied.
CHANGED = {
    "requests_per_second": (2.0, "rate × 2"),
    "hit_ratio": (-0.15, "hit ratio − 0.15"),
    "entropy_bits": (1.0, "entropy + 1 bit"),
    "prompt_tokens": (1.5, "prompts × 1.5"),
}


def settings() -> TunerConfig:
    return load_tuner_config(ROOT / "examples" / "first_run.toml", ROOT, {}, {"tracking.output": str(Path("out"))})


def study_of(config: TunerConfig) -> Study:
    world, split = World(make_problem(config)), split_of(config)
    training, _, _ = world.timeline.split(split.train, split.validation)
    best = fit_best_static(world, training).settings
    return open_study(world, split, best, config.ppo.horizon, config.ppo.starts)


def learned(study: Study, config: TunerConfig, steps: int) -> ActorPolicy:
    options = config.ppo.model_copy(update={"total_steps": steps})
    environment = study.environment(options.lanes, 0)
    return ActorPolicy("seed 0", train(study.reference, study.scale, environment, study.validation, options, 0).actor)


def distances(seen: Array, known: TrainingRange) -> Array:
    return np.array([known.distance(one).deviations for one in seen])


def outside_rows(seen: Array, known: TrainingRange, most: float) -> list[list[Cell]]:
    """How much of the traffic is held when a signal is moved."""
    rows: list[list[Cell]] = [["as it is", 100.0 * float((distances(seen, known) > most).mean())]]
    for name, (more, words) in FARTHER.items():
        moved, entry = seen.copy(), names().index(name)
        moved[:, entry] = np.clip(moved[:, entry] + more, -LIMIT, LIMIT)
        rows.append([words, 100.0 * float((distances(moved, known) > most).mean())])
    return rows


def features_of(study: Study) -> Array:
    """One row per interval, (intervals, len(FEATURES)), NaN for what is not known."""
    table, seconds = study.world.traffic, study.world.problem.interval_seconds
    told = (traffic.ENTROPY, traffic.DRIFT, traffic.PROMPT, traffic.OUTPUT)
    hit_ratio = column(study.reference.rows, "hit_ratio")
    return np.column_stack((table[:, traffic.REQUESTS] / seconds, hit_ratio, *(table[:, one] for one in told)))


def shifts(rows: Array, interval_seconds: float) -> list[int]:
    """Intervals in which a change of regime was told."""
    watch, memory, told = RegimeWatch(RegimeConfig(), interval_seconds), None, []
    for index, row in enumerate(rows):
        features = TrafficFeatures(*(float(value) if np.isfinite(value) else None for value in row))
        memory, shift = watch.update(features, memory)
        if shift is not None:
            told.append(index)
    return told


def shuffled(rows: Array, per_day: int, days: int, seed: int) -> Array:
    """Whole days drawn with replacement: traffic that stays the same as long as one likes."""
    whole = rows[: len(rows) // per_day * per_day].reshape(-1, per_day, rows.shape[1])
    return whole[np.random.default_rng(seed).integers(0, len(whole), days)].reshape(-1, rows.shape[1])


def found_after(rows: Array, per_day: int, name: str, change: float, seeds: range) -> list[float]:
    """Hours from a change that stays until it is told; infinite where it is not within four days."""
    hours, feature = [], FEATURES.index(name)
    for seed in seeds:
        made = shuffled(rows, per_day, CALM_DAYS + 4, 1_000 + seed)
        begin = CALM_DAYS * per_day
        if name in ("requests_per_second", "prompt_tokens"):
            made[begin:, feature] *= change
        else:
            made[begin:, feature] += change
        after = [index for index in shifts(made, DAY_SECONDS / per_day) if index >= begin]
        hours.append((after[0] + 1 - begin) * 24.0 / per_day if after else np.inf)
    return hours


def regime_tables(study: Study, quick: bool) -> tuple[list[Table], float]:
    """Tables, and false alarms in 1,000 intervals of traffic that stays the same."""
    seconds = study.world.problem.interval_seconds
    rows, per_day = features_of(study), round(DAY_SECONDS / seconds)
    streams, days = (1, 10) if quick else (6, 60)
    told = [len(shifts(shuffled(rows, per_day, days, seed), seconds)) for seed in range(streams)]
    rate = 1000.0 * sum(told) / (streams * days * per_day)
    recorded = shifts(rows, seconds)
    alarms: list[list[Cell]] = [
        ["the trace itself", len(rows), len(recorded)],
        [f"{streams} times {days} of its days, drawn", streams * days * per_day, sum(told)],
    ]
    delays: list[list[Cell]] = []
    for name, (change, words) in CHANGED.items():
        hours = found_after(rows, per_day, name, change, range(1 if quick else 8))
        within = sum(one <= 24.0 for one in hours)
        median = float(np.median(hours))
        delays.append([words, within, len(hours), None if np.isinf(median) else median])
    return [
        Table("Changes of regime told where there are none", ("traffic", "intervals", "told"), alarms),
        Table("And where there is one", ("change", "told within a day", "of", "hours, median"), delays),
    ], rate


def measure(quick: bool) -> Report:
    config = settings()
    say("best static setting and one policy")
    study = study_of(config)
    steps = 2_048 if quick else config.ppo.total_steps
    policy = learned(study, config, steps)
    known = range_of(observed(study, policy, study.training))
    held_out = [observed(study, policy, part) for part in (study.validation, study.test)]
    most = Objectives().outside_deviations
    seen = np.concatenate(held_out)
    false = 100.0 * float((distances(seen, known) > most).mean())
    say("changes of regime")
    tables, rate = regime_tables(study, quick)
    facts = [
        f"{study.world.problem.trace.info.name} with the settings of examples/first_run.toml: {len(study.world):,} "
        f"intervals of {config.trace.interval_seconds:g} s; one policy of {steps:,} steps, seed 0.",
        f"Its range from {len(study.training):,} intervals of training traffic; held out are the {len(seen):,} of "
        f"validation and test traffic; more than {most:g} deviations outside are held.",
        "Traffic that stays the same is made of whole days of the trace, drawn with replacement: weekends come in any "
        f"order. Changes are put in after {CALM_DAYS} such days and stay for four.",
    ]
    outside = Table(
        "Observations outside the training, % of held-out intervals that are held",
        ("held-out traffic", "%"),
        outside_rows(seen, known, most),
    )
    goals = [
        at_most("held-out intervals held as outside the training", FALSE_HOLDS, false, "%"),
        at_most("changes of regime told where there are none", FALSE_SHIFTS, rate, "in 1,000 intervals"),
    ]
    return Report(facts, [outside, *tables], goals)


BENCHMARK = Benchmark(
    "guardrails",
    "Guardrails: false alarms, and what is found",
    ("numpy", "numba", "river", "stable-baselines3"),
    measure,
)

if __name__ == "__main__":
    main(BENCHMARK)
