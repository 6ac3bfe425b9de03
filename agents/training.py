"""Trains several seeds, each in a process of its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from agents.ppo import Trained, train
from agents.ppo_config import PPOConfig
from agents.study import Split, open_study
from caches.knobs import KnobSettings
from envs.world import Problem, World

POLL_SECONDS = 0.2


@dataclass(frozen=True)
class TrainingPlan:
    """What a worker needs to train one seed. make_problem is called in the worker: traces are opened, not sent.

    checkpoints: a folder for the learners' state, one folder inside it per seed; training goes on from what is there.
    """

    make_problem: Callable[[], Problem]
    split: Split
    reference: KnobSettings
    config: PPOConfig
    checkpoints: Path | None = None


def train_seed(plan: TrainingPlan, seed: int, progress: Callable[[int, int], None] | None = None) -> Trained:
    """One seed, in this process."""
    world = World(plan.make_problem())
    study = open_study(world, plan.split, plan.reference, plan.config.horizon, plan.config.starts)
    checkpoint = None if plan.checkpoints is None else plan.checkpoints / f"seed-{seed}"
    environment = study.environment(plan.config.lanes, seed)
    return train(study.reference, study.scale, environment, study.validation, plan.config, seed, progress, checkpoint)


def train_seeds(
    plan: TrainingPlan,
    seeds: Sequence[int],
    workers: int,
    progress: Callable[[int, int, int], None] | None = None,
) -> list[Trained]:
    """All seeds, in their order; equal seeds give equal policies however many workers there are.

    progress: called with (seed, steps done, steps in all). An error in a worker is raised here.
    """
    if workers == 1:
        return [
            train_seed(plan, seed, None if progress is None else lambda d, n, s=seed: progress(s, d, n))  # type: ignore[misc]
            for seed in seeds
        ]
    context = get_context("spawn")  # threads of numba and torch do not survive a fork
    with context.Manager() as manager:
        steps = manager.Queue()
        with ProcessPoolExecutor(min(workers, len(seeds)), context, _limit_threads) as pool:
            futures = [pool.submit(_work, plan, seed, steps) for seed in seeds]
            _follow(futures, steps, progress)
            return [future.result() for future in futures]


def _work(plan: TrainingPlan, seed: int, steps: Any) -> Trained:
    return train_seed(plan, seed, lambda done, total: steps.put((seed, done, total)))


def _limit_threads() -> None:
    for name in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS"):
        os.environ[name] = "1"


def _follow(futures: list[Future[Trained]], steps: Any, progress: Callable[[int, int, int], None] | None) -> None:
    left = set(futures)
    while left:
        done, left = wait(left, timeout=POLL_SECONDS, return_when=FIRST_COMPLETED)
        for future in done:
            future.result()
        while progress is not None and not steps.empty():
            progress(*steps.get())
