"""PPO against everything else on held-out traffic: fixed settings, rules, rival tuners, and the clairvoyant bound.

Every piece of work is a task of its own (a workload, a seed), done by processes here or, where SETPOINT_RUN__RAY names
one, on a Ray cluster; the results are the same.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from agents.baselines.best_static import StaticFit, fit_best_static
from agents.judge import judge
from agents.on_ray import run_on_ray
from agents.ppo import ActorPolicy, Trained
from agents.results import Evaluation
from agents.study import Study, open_study
from agents.tracks import Contender, Depth
from agents.training import TrainingPlan, train_seed
from agents.workers import run_here
from benchmarks.harness import Benchmark, Report, Table, main, say
from benchmarks.kept import kept
from benchmarks.live_budget import LiveResult, by_replay, joined, live
from benchmarks.offline_search import OfflineResult, search
from benchmarks.tuner_tables import Outcome, goals_of, judged_table, live_table, offline_table, summary_table
from benchmarks.workloads import (
    COMPOSED,
    DEFAULT_MEMORY_PRICE,
    SEEDS,
    UNSEEN,
    WORKERS,
    WORKLOADS,
    Workload,
    config_of,
    problem_for,
)
from caches.knobs import KnobSettings
from envs.ghosts import GhostGrid, ghost_grid
from envs.world import World
from tuner.problem import split_of

Result = TypeVar("Result")
BUDGETS, QUICK_BUDGETS = (300, 3_000), (60, 120)
SMALL_BUDGET_STEPS = 40_000
LIVE_SEEDS = 3  # the first, of rival tuners on live intervals, which take the most time
MEMORY_FACTORS = (0.1, 10.0)


@dataclass(frozen=True)
class Case:
    """A workload under the prices that count. memory_factor: of the price of memory."""

    workload: Workload
    quick: bool
    memory_factor: float = 1.0

    def world(self) -> World:
        return World(problem_for(self.workload, self.memory_factor, self.quick))

    def study(self, settings: KnobSettings, grid: GhostGrid | None = None) -> Study:
        config = config_of(self.workload, self.memory_factor, self.quick)
        return open_study(self.world(), split_of(config), settings, config.ppo.horizon, config.ppo.starts, grid=grid)


@dataclass(frozen=True)
class Fitted:
    case: Case
    fit: StaticFit
    grid: GhostGrid


def everywhere(function: Callable[..., Result], tasks: Sequence[tuple[Any, ...]]) -> list[Result]:
    """Here, what is done is kept: an interrupted run goes on where it was."""
    address = os.environ.get("SETPOINT_RUN__RAY")
    return run_here(kept(function), tasks, WORKERS) if address is None else run_on_ray(address, function, tasks)


# Tasks


def fit_case(case: Case) -> Fitted:
    """The best static setting, by training traffic, and the ghosts beside it."""
    world, split = case.world(), split_of(config_of(case.workload, case.memory_factor, case.quick))
    grid = ghost_grid(world)
    training, _, _ = world.timeline.split(split.train, split.validation)
    return Fitted(case, fit_best_static(world, training, grid=grid), grid)


def train_case(case: Case, settings: KnobSettings, seed: int) -> tuple[Trained, float]:
    """With the CPU seconds that it took."""
    config = config_of(case.workload, case.memory_factor, case.quick)
    make = partial(problem_for, case.workload, case.memory_factor, case.quick)
    began = time.process_time()
    trained = train_seed(TrainingPlan(make, split_of(config), settings, config.ppo), seed)
    return trained, time.process_time() - began


def judge_case(fitted: Fitted, trained: Sequence[Trained], seeds: Sequence[int], depth: Depth) -> Evaluation:
    actors = [ActorPolicy(f"PPO seed {seed}", one.actor) for seed, one in zip(seeds, trained, strict=True)]
    contenders = [Contender(actor, seed) for actor, seed in zip(actors, seeds, strict=True)]
    study = fitted.case.study(fitted.fit.settings, fitted.grid)
    return judge(study, contenders, depth=depth).evaluation


def live_case(case: Case, settings: KnobSettings, seed: int) -> list[LiveResult]:
    """Every rival on every budget of live intervals, and PPO by replay of the smaller one."""
    study, budgets = case.study(settings), QUICK_BUDGETS if case.quick else BUDGETS
    config = config_of(case.workload, case.memory_factor, case.quick).ppo
    small = config.model_copy(update={"total_steps": min(config.total_steps, SMALL_BUDGET_STEPS)})
    found = [one for budget in budgets for one in live(study, budget, [seed])]
    return [*found, by_replay(study, budgets[0], [seed], small)]


def search_case(case: Case, settings: KnobSettings, cpu_seconds: float) -> list[OfflineResult]:
    return search(case.study(settings), cpu_seconds, seed=0)


# All of them


def outcomes_of(cases: Sequence[Case], seeds: Sequence[int], peers: Sequence[str]) -> tuple[list[Outcome], list[Table]]:
    """peers: names of the workloads on which rival tuners are run as well. The tables show other memory prices."""
    say("best static settings")
    fits = everywhere(fit_case, [(case,) for case in cases])
    say("training")
    every = [(one.case, one.fit.settings, seed) for one in fits for seed in seeds]
    trained = everywhere(train_case, every)
    mine = {one.case.workload.name: trained[i * len(seeds) : (i + 1) * len(seeds)] for i, one in enumerate(fits)}
    actors = {name: [one for one, _ in each] for name, each in mine.items()}
    cpu_seconds = {name: float(np.mean([seconds for _, seconds in each])) for name, each in mine.items()}
    say("judging")
    judged = everywhere(judge_case, [(one, actors[one.case.workload.name], seeds, Depth.FULL) for one in fits])
    for one, evaluation in zip(fits, judged, strict=True):
        say(f"  {one.case.workload.name}: {judged_table('', one.fit, evaluation).note}")
    rivalled = [one for one in fits if one.case.workload.name in peers]
    say("rival tuners on live intervals")
    few = seeds[:LIVE_SEEDS]
    lived = everywhere(live_case, [(one.case, one.fit.settings, seed) for one in rivalled for seed in few])
    say("fixed settings by search")
    searched = everywhere(
        search_case, [(one.case, one.fit.settings, _search_seconds(one.case, cpu_seconds)) for one in rivalled]
    )
    names = [one.case.workload.name for one in rivalled]
    live_of = {name: joined(lived[i * len(few) : (i + 1) * len(few)]) for i, name in enumerate(names)}
    offline_of = dict(zip(names, searched, strict=True))
    outcomes = [
        Outcome(
            one.case.workload,
            one.fit,
            evaluation,
            cpu_seconds[one.case.workload.name],
            tuple(live_of.get(one.case.workload.name, ())),
            tuple(offline_of.get(one.case.workload.name, ())),
        )
        for one, evaluation in zip(fits, judged, strict=True)
    ]
    return outcomes, _repriced([one for one in fits if one.case.workload.name == COMPOSED.name], actors, seeds)


def _search_seconds(case: Case, cpu_seconds: dict[str, float]) -> float:
    return 2.0 if case.quick else cpu_seconds[case.workload.name]


def _repriced(fits: Sequence[Fitted], actors: dict[str, list[Trained]], seeds: Sequence[int]) -> list[Table]:
    """The same policies around the best static setting of other memory prices."""
    if not fits:
        return []
    say("other prices of memory")
    cases = [replace(one.case, memory_factor=factor) for one in fits for factor in MEMORY_FACTORS]
    again = everywhere(fit_case, [(case,) for case in cases])
    judged = everywhere(judge_case, [(one, actors[one.case.workload.name], seeds, Depth.QUICK) for one in again])
    return [
        judged_table(
            f"{one.case.workload.name}, memory at {one.case.memory_factor * DEFAULT_MEMORY_PRICE:g} USD/(GiB h)",
            one.fit,
            evaluation,
        )
        for one, evaluation in zip(again, judged, strict=True)
    ]


def measure(quick: bool) -> Report:
    there = [workload for workload in (WORKLOADS[-1:] if quick else WORKLOADS) if not workload.missing]
    absent = [f"{w.name}: not run, {', '.join(w.missing)} not beside the repository." for w in WORKLOADS if w.missing]
    if not there:
        return Report(absent, [], [])
    more = [] if quick or UNSEEN.missing else [UNSEEN]
    cases = [Case(workload, quick) for workload in (*there, *more)]
    every, repriced = outcomes_of(cases, SEEDS[:2] if quick else SEEDS, [workload.name for workload in there])
    outcomes = every[: len(there)]
    facts = [fact for workload in (*there, *more) for fact in workload.facts]
    facts += [
        *absent,
        "Split by time: 60 % training, 20 % validation (early stopping, choice of rules), 20 % test. Seeds 0 to 4. All "
        "start from the cache and settings that best static left. Prices and constraints: the defaults of "
        "docs/configuration.md, except what benchmarks/workloads.py sets per workload.",
        f"Rival tuners on live intervals: seeds 0 to {LIVE_SEEDS - 1}.",
        "Peers are told the saving against the reference on the same requests, as PPO is, averaged over the second "
        f"half of trials of 6 intervals; they may ask for any setting. Budgets: the latest {BUDGETS[0]} intervals of "
        f"the training traffic; {BUDGETS[1]:,} intervals, the whole of it as often as needed.",
    ]
    judged = [judged_table(one.workload.name, one.fit, one.evaluation) for one in every]
    tables = [summary_table(every), *judged, live_table(outcomes), offline_table(outcomes), *repriced]
    return Report(facts, tables, goals_of(outcomes))


if __name__ == "__main__":
    main(
        Benchmark(
            "tuners",
            "Tuners: what each saves on traffic it never saw",
            ("setpoint", "stable-baselines3", "torch", "numba", "optuna", "smac", "vowpalwabbit"),
            measure,
        )
    )
