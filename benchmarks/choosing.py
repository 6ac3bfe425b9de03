"""The eviction policy as a choice: once, with the best static setting, and at any time, of the what-if controller."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agents.baselines.best_policy import PolicyFit, fit_best_policy
from agents.baselines.fitting import choose
from agents.baselines.whatif_fit import controller_for, fit_whatif, tried
from agents.evaluation import savings
from agents.rollout import roll_out
from agents.study import Split, Study, open_study
from agents.uncertainty import Resampling
from benchmarks.harness import Benchmark, Cell, Goal, Report, Table, main, say
from benchmarks.workloads import COMPOSED, EVENTS, Workload, config_of, problem_for
from caches.policies.pair import CachePolicy, policies_called
from envs.ghosts import choice_grid
from envs.interval import column, total_usd, unsafe
from envs.reward import Constraints
from envs.world import World
from tuner.problem import split_of

Array = NDArray[Any]

POLICIES = policies_called(("lru", "gdsf", "s3-fifo", "sieve"))
MEMORY_FACTORS = (1.0, 10.0)
RESAMPLING = Resampling()


@dataclass(frozen=True)
class Way:
    """What one did on test traffic. rows: (intervals, STATS). under: how many intervals under each policy, in words."""

    name: str
    rows: Array
    under: str
    changes: int = 0


def static_ways(found: PolicyFit, test: range) -> list[Way]:
    ways = []
    for policy, fit in found.each:
        rows = found.world.under(policy).replay_static([fit.settings], test.stop)[0]
        ways.append(Way("best static", rows[test.start :], str(policy)))
    return ways


def controlled_ways(study: Study) -> list[Way]:
    """The what-if controller under the fitted policy, and the best of its candidates that choose between all, each by
    validation traffic. Which of the two a training would take is said with it."""
    assert study.grid is not None
    assert study.every is not None
    fixed = fit_whatif(study, study.grid)
    choosing = [controller_for(study, options, study.every.choices) for options in tried()]
    best = choosing[choose(study, study.grid, choosing).index]
    taken = choose(study, study.grid, [fixed, best]).index
    rolled = roll_out(study.reference, study.scale, [fixed, best], study.test, 0, study.grid, study.every)
    counts = np.bincount(rolled.choice[1], minlength=len(best.choices))
    told = ", ".join(f"{one} {count}" for one, count in zip(best.choices, counts, strict=True) if count)
    changes = int((np.diff(rolled.choice[1], prepend=0) != 0).sum())
    names = [
        f"what-if controller{which}{', taken' if taken == i else ''}" for i, which in enumerate(("", " that chooses"))
    ]
    own = str(study.world.problem.policy)
    return [Way(names[0], rolled.rows[0], own), Way(names[1], rolled.rows[1], told, changes)]


def ways_of(workload: Workload, factor: float, quick: bool) -> tuple[list[Way], Constraints]:
    config = config_of(workload, factor, quick)
    problem = problem_for(workload, factor, quick)
    world, split = World(problem, threads=2), split_of(config)
    training, _, test = world.timeline.split(split.train, split.validation)
    found = fit_best_policy(world, POLICIES, training)
    study = studied(found, split)
    return [*static_ways(found, test), *controlled_ways(study)], problem.constraints


def studied(found: PolicyFit, split: Split) -> Study:
    study = open_study(found.world, split, found.fit.settings, 1, 1, grid=found.grid)
    every = choice_grid(found.world, POLICIES, found.fit.settings, found.costs)
    return replace(study, every=every)


def rows_of(place: Sequence[Cell], ways: Sequence[Way], constraints: Constraints) -> list[list[Cell]]:
    """place: what stands before each row. Savings are over the best static setting under least recently used."""
    base = next(way for way in ways if way.under == str(CachePolicy()))
    requests, base_usd = column(base.rows, "requests"), total_usd(base.rows)
    rows: list[list[Cell]] = []
    for way in ways:
        usd = total_usd(way.rows)
        percent = None if way is base else savings(base_usd - usd, base_usd, requests, RESAMPLING).percent
        told = "" if percent is None else f"{percent.mean:+.2f} [{percent.low:+.2f}, {percent.high:+.2f}]"
        broken = 1000.0 * float(unsafe(way.rows, constraints).mean())
        cost = 1000.0 * float(usd.sum() / requests.sum())
        rows.append([*place, way.name, way.under, f"{cost:.4f}", told, f"{broken:.1f}", way.changes])
    return rows


def goal_of(name: str, ways: Sequence[Way]) -> Goal:
    """Of the two controllers, which come last."""
    taken, other = sorted(ways[-2:], key=lambda way: not way.name.endswith(", taken"))
    more = float(total_usd(taken.rows).sum() / total_usd(other.rows).sum()) - 1.0
    return Goal(f"{name}: of the two controllers the cheaper was taken", f"{100.0 * more:+.2f} %", more <= 0.0)


def measure(quick: bool) -> Report:
    workloads = [one for one in (COMPOSED, EVENTS) if not one.missing]
    if quick:
        workloads = [EVENTS]
    rows: list[list[Cell]] = []
    goals = []
    for workload in workloads:
        for factor in MEMORY_FACTORS[:1] if quick else MEMORY_FACTORS:
            say(f"{workload.name}, memory at {factor:g} times its price")
            ways, constraints = ways_of(workload, factor, quick)
            rows += rows_of([workload.name, f"{factor:g}"], ways, constraints)
            goals.append(goal_of(f"{workload.name}, memory x {factor:g}", ways))
    facts = [
        *(fact for workload in workloads for fact in workload.facts),
        f"Policies: {', '.join(map(str, POLICIES))}. Each best static setting is fitted on training traffic, the "
        "policy of the what-if controller is that of the cheapest of them there. The options of both controllers are "
        "fitted on validation traffic, and so is which of them a training takes. Everything shown is test traffic.",
        "A change of the policy keeps what is held, in the order of its last touch, and forgets uses and names.",
        "Saving: over the best static setting under lru, 95 % by block bootstrap over time.",
    ]
    header = ("workload", "memory x", "who", "under", "USD per 1,000", "saving % [95 %]", "unsafe per 1,000", "changes")
    return Report(facts, [Table("The eviction policy as a choice", header, rows)], goals)


if __name__ == "__main__":
    main(Benchmark("choosing", "Choosing the eviction policy", ("setpoint", "numba"), measure))
