"""Trains several seeds, each in a process of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agents.continual import Recent, continue_training, open_recent
from agents.imitation import imitate_best
from agents.learning import Start
from agents.on_ray import run_on_ray
from agents.ppo import Trained, train
from agents.ppo_checkpoint import holds_checkpoint
from agents.ppo_config import PPOConfig
from agents.study import Split, Study, open_study
from agents.workers import SPAWN, worker_pool
from caches.knobs import KnobSettings
from envs.ghosts import GhostGrid, ghost_grid
from envs.world import Problem, World

POLL_SECONDS = 0.2


@dataclass(frozen=True)
class TrainingPlan:
    """What a worker needs to train one seed. make_problem is called in the worker: traces are opened, not sent.

    checkpoints: a folder for the learners' state, one folder inside it per seed; training goes on from what is there.
    grid: for the teacher where training starts with imitation; without it each worker replays its own. recent: trains
    a policy that is there on, instead of a new one; `reference` is then the one that it deviates from.
    """

    make_problem: Callable[[], Problem]
    split: Split
    reference: KnobSettings
    config: PPOConfig
    checkpoints: Path | None = None
    grid: GhostGrid | None = None
    recent: Recent | None = None


def train_seed(plan: TrainingPlan, seed: int, progress: Callable[[int, int], None] | None = None) -> Trained:
    """One seed, in this process."""
    world = World(plan.make_problem())
    checkpoint = None if plan.checkpoints is None else plan.checkpoints / f"seed-{seed}"
    if plan.recent is not None:
        recent = open_recent(world, plan.split, plan.recent, plan.config)
        return continue_training(recent, plan.recent.policy, plan.config, seed, progress, checkpoint)
    study = open_study(world, plan.split, plan.reference, plan.config.horizon, plan.config.starts)
    environment = study.environment(plan.config.lanes, seed)
    return train(
        *(study.reference, study.scale, environment, study.validation, plan.config, seed),
        progress,
        checkpoint,
        _start(plan, study, seed, checkpoint),
    )


def _start(plan: TrainingPlan, study: Study, seed: int, checkpoint: Path | None) -> Start | None:
    begun = checkpoint is not None and holds_checkpoint(checkpoint)
    if begun or not plan.config.imitation:
        return None
    grid = ghost_grid(study.world) if plan.grid is None else plan.grid
    return imitate_best(study, grid, plan.config, seed)


def train_seeds(
    plan: TrainingPlan,
    seeds: Sequence[int],
    workers: int,
    progress: Callable[[int, int, int], None] | None = None,
) -> list[Trained]:
    """All seeds, in their order; equal seeds give equal policies however many workers there are.

    progress: called with (seed, steps done, steps in all), last with all of them done. An error in a worker is raised
    here. Whatever is raised, no worker outlives the call, nor this process.
    """
    report = progress or _ignore
    if workers == 1:
        return [_train_here(plan, seed, report) for seed in seeds]
    steps = SPAWN.Queue()
    with worker_pool(min(workers, len(seeds)), _report_to, steps) as pool:
        futures = {pool.submit(_train_there, plan, seed): seed for seed in seeds}
        _follow(futures, steps, plan.config.total_steps, report)
        return [future.result() for future in futures]


def _train_here(plan: TrainingPlan, seed: int, report: Callable[[int, int, int], None]) -> Trained:
    trained = train_seed(plan, seed, lambda done, total: report(seed, done, total))
    report(seed, plan.config.total_steps, plan.config.total_steps)
    return trained


class _Worker:
    """What a worker process holds: where it reports its steps."""

    steps: Any = None


def _train_there(plan: TrainingPlan, seed: int) -> Trained:
    return train_seed(plan, seed, lambda done, total: _Worker.steps.put((seed, done, total)))


def _report_to(steps: Any) -> None:
    _Worker.steps = steps


def _follow(
    futures: dict[Future[Trained], int], steps: Any, total: int, report: Callable[[int, int, int], None]
) -> None:
    left = set(futures)
    while left:
        done, left = wait(left, timeout=POLL_SECONDS, return_when=FIRST_COMPLETED)
        while not steps.empty():
            report(*steps.get())
        for future in done:
            future.result()
            report(futures[future], total, total)


def _ignore(seed: int, done: int, total: int) -> None:
    """No progress is shown."""


def train_seeds_on_ray(
    address: str,
    plan: TrainingPlan,
    seeds: Sequence[int],
    progress: Callable[[int, int, int], None] | None = None,
) -> list[Trained]:
    """As `train_seeds`, on a Ray cluster, a task per seed; equal to the digit. There are no checkpoints: nodes come and
    go, and a seed whose worker is lost starts anew."""
    report, steps = progress or _ignore, plan.config.total_steps
    tasks = [(replace(plan, checkpoints=None), seed) for seed in seeds]
    return run_on_ray(address, train_seed, tasks, lambda index: report(seeds[index], steps, steps))
