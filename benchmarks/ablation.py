"""What each part of the learner is worth: what-if features, imitation and the difference reward, off one at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agents.baselines.best_static import fit_best_static
from agents.evaluation import count_changes, positions_of
from agents.imitation import best_teacher
from agents.learning_curve import steps_until_within
from agents.policy import ControlPolicy
from agents.ppo import ActorPolicy, Trained
from agents.ppo_config import PPOConfig
from agents.rollout import roll_out
from agents.study import Study, open_study
from agents.training import TrainingPlan, train_seeds
from agents.uncertainty import spread
from benchmarks.harness import Benchmark, Cell, Goal, Report, Table, main, say
from benchmarks.workloads import COMPOSED, SEEDS, WORKERS, config_of, problem_for
from envs.ghosts import GhostGrid, ghost_grid
from envs.interval import unsafe
from envs.observation import DAY_SECONDS
from envs.world import World
from tuner.problem import split_of

Array = NDArray[Any]

STEPS, QUICK_STEPS = 200_000, 2_048  # 25 trainings, two at a time, in about ten minutes
ON = {"whatif_features": True, "imitation": True, "difference_reward": True}
VARIANTS: dict[str, dict[str, bool]] = {
    "all on": ON,
    "without what-if features": ON | {"whatif_features": False},
    "without imitation": ON | {"imitation": False},
    "without difference reward": ON | {"difference_reward": False},
    "all off": dict.fromkeys(ON, False),
}


@dataclass(frozen=True)
class Variant:
    """One row: its trained seeds, and what each did on test traffic. saving: (seeds,), per cent of best static's cost.
    changes: (seeds,), a day. broken: (seeds,), unsafe intervals per 1,000. settled: (seeds,), training intervals."""

    name: str
    saving: Array
    changes: Array
    broken: Array
    settled: Array


def measured(name: str, trained: Sequence[Trained], study: Study) -> Variant:
    """On test traffic."""
    policies = [ActorPolicy(f"{name} {index}", one.actor) for index, one in enumerate(trained)]
    rolled = roll_out(study.reference, study.scale, policies, study.test)
    problem = study.world.problem
    days = len(study.test) * problem.interval_seconds / DAY_SECONDS
    home = problem.knobs.positions(study.reference.settings)
    changes = [count_changes(positions_of(settings, problem.knobs), home) / days for settings in rolled.settings]
    return Variant(
        name,
        100.0 * (1.0 - rolled.usd.sum(axis=1) / rolled.reference_usd.sum()),
        np.array(changes),
        1000.0 * unsafe(rolled.rows, problem.constraints).mean(axis=1),
        np.array([steps_until_within(one.looks) for one in trained]),
    )


def row_of(variant: Variant) -> list[Cell]:
    saving = spread(variant.saving.tolist())
    assert saving is not None
    interval = "" if saving.low is None else f" [{saving.low:+.2f}, {saving.high:+.2f}]"
    return [
        variant.name,
        f"{saving.mean:+.2f}{interval}",
        f"{saving.smallest:+.2f} to {saving.largest:+.2f}",
        float(variant.changes.mean()),
        f"{variant.broken.mean():.1f}",
        int(np.median(variant.settled)),
    ]


def run(study: Study, grid: GhostGrid, quick: bool) -> list[Variant]:
    config = config_of(COMPOSED, 1.0, quick)
    steps = {"total_steps": QUICK_STEPS if quick else STEPS}
    seeds = SEEDS[:2] if quick else SEEDS
    variants = []
    for name, flags in VARIANTS.items():
        say(f"{name}: {len(seeds)} seeds, {steps['total_steps']:,} steps")
        learner = PPOConfig.model_validate({**config.ppo.model_dump(), **steps, **flags})
        plan = TrainingPlan(
            partial(problem_for, COMPOSED, 1.0, quick), split_of(config), study.reference.settings, learner, grid=grid
        )
        variants.append(measured(name, train_seeds(plan, seeds, 1 if quick else WORKERS), study))
    return variants


def teacher_of(study: Study, grid: GhostGrid) -> str:
    """Whom the actor imitates, and what that one saves on validation traffic."""
    teacher: ControlPolicy = best_teacher(study, grid)
    rolled = roll_out(study.reference, study.scale, [teacher], study.validation, grid=grid)
    saving = 100.0 * (1.0 - rolled.usd.sum() / rolled.reference_usd.sum())
    return f"Imitated is the {teacher.name}, which saves {saving:+.2f} % on validation traffic."


def goals_of(variants: Sequence[Variant]) -> list[Goal]:
    """Differences between rows are of means over seeds; a seed's traffic is the same in all rows."""
    full, *without, _ = variants
    goals = []
    for variant in without:
        worth = spread((full.saving - variant.saving).tolist())
        assert worth is not None
        low = worth.mean if worth.low is None else worth.low
        goals.append(
            Goal(
                f"{variant.name}: it saves less, 95 % interval over seeds above zero",
                f"less by {worth.mean:+.2f} points, from {low:+.2f}",
                low > 0,
            )
        )
    return goals


def measure(quick: bool) -> Report:
    if COMPOSED.missing:
        return Report([f"Not run: {', '.join(COMPOSED.missing)} not beside the repository."], [], [])
    config = config_of(COMPOSED, 1.0, quick)
    world = World(problem_for(COMPOSED, 1.0, quick), threads=2)
    split = split_of(config)
    training, _, _ = world.timeline.split(split.train, split.validation)
    say("static settings")
    grid = ghost_grid(world)
    fit = fit_best_static(world, training, grid=grid)
    study = open_study(world, split, fit.settings, config.ppo.horizon, config.ppo.starts)
    variants = run(study, grid, quick)
    steps = QUICK_STEPS if quick else STEPS
    facts = [
        *COMPOSED.facts,
        f"{steps:,} steps of training for each seed, else PPO's defaults; savings are over the best static setting on "
        "test traffic, mean over seeds with 95 % interval. Actors are chosen by validation traffic.",
        "Without what-if features those entries of the observation are zero. Without the difference reward the learner "
        "is paid minus the interval's cost in mean costs of a reference interval.",
        teacher_of(study, grid),
        "Settled: training intervals until the first look at validation traffic that saves all but 1 % of what the "
        "best look saves; median over seeds.",
    ]
    header = ("learner", "saving % [95 %, seeds]", "over seeds", "changes a day", "unsafe per 1,000", "settled after")
    table = Table("Off one at a time", header, [row_of(variant) for variant in variants])
    return Report(facts, [table], goals_of(variants))


if __name__ == "__main__":
    main(
        Benchmark(
            "ablation",
            "Ablation: what each part of the learner is worth",
            ("setpoint", "stable-baselines3", "torch", "numba"),
            measure,
        )
    )
