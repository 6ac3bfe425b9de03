from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from agents.study import Split
from agents.training import TrainingPlan, train_seed, train_seeds
from caches.errors import InputError
from envs.world import Problem
from tests.agents.test_ppo import SMALL, assert_same_actor
from tests.envs.worlds import SETTINGS, problem, random_trace


def make_problem(seed: int) -> Problem:
    return problem(random_trace(seed, 30))


def no_problem() -> Problem:
    raise InputError("trace: got none")


def plan(checkpoints: Path | None = None) -> TrainingPlan:
    return TrainingPlan(partial(make_problem, 0), Split(0.5, 0.2), SETTINGS, SMALL, checkpoints)


def test_two_workers_train_what_one_does_to_the_digit(tmp_path: Path) -> None:
    calls: list[tuple[int, int, int]] = []
    alone = train_seeds(plan(), (3, 5), 1)
    together = train_seeds(plan(tmp_path), (3, 5), 2, lambda *call: calls.append(call))
    for one, other in zip(alone, together, strict=True):
        assert one.looks == other.looks
        assert_same_actor(one, other)
    assert alone[0].looks != alone[1].looks
    assert {seed for seed, _, _ in calls} == {3, 5}
    assert {total for _, _, total in calls} == {SMALL.total_steps}
    assert sorted(folder.name for folder in tmp_path.iterdir()) == ["seed-3", "seed-5"]


def test_a_seed_alone_is_the_same_as_among_others() -> None:
    among = train_seeds(plan(), (1, 2), 1)[1]
    assert train_seed(plan(), 2).looks == among.looks


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_of_a_worker_is_raised_here(workers: int) -> None:
    broken = TrainingPlan(no_problem, Split(0.5, 0.2), SETTINGS, SMALL)
    with pytest.raises(InputError, match="trace: got none"):
        train_seeds(broken, (0, 1), workers)


def test_progress_of_one_worker_names_the_seed() -> None:
    calls: list[tuple[int, int, int]] = []
    train_seeds(plan(), (4,), 1, lambda *call: calls.append(call))
    assert np.array(calls)[:, 0].tolist() == [4] * len(calls)
    assert calls[0] == (4, 0, SMALL.total_steps)
