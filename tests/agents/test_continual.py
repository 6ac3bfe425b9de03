from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from agents.continual import LastGood, Recent, continue_training, judge_continued, latest, open_recent
from agents.learning import Start
from agents.ppo import Trained, train
from agents.study import Split, Study, open_study
from agents.training import TrainingPlan, train_seed
from caches.errors import InputError
from envs.world import Problem, World
from tests.agents.test_ppo import SMALL, assert_same_actor
from tests.envs.worlds import SETTINGS, problem, random_trace

SPLIT = Split(0.5, 0.2)


def make_problem() -> Problem:
    return problem(random_trace(0, 60))


@pytest.fixture(scope="module")
def world() -> World:
    return World(make_problem())


@pytest.fixture(scope="module")
def trained(world: World) -> tuple[Trained, LastGood]:
    study = open_study(world, SPLIT, SETTINGS, SMALL.horizon, SMALL.starts)
    told = train(study.reference, study.scale, study.environment(SMALL.lanes, 0), study.validation, SMALL, 0)
    return told, LastGood(told.actor, SETTINGS, study.scale)


@pytest.fixture(scope="module")
def recent(world: World, trained: tuple[Trained, LastGood]) -> Study:
    return open_recent(world, SPLIT, Recent(trained[1], 12), SMALL)


def test_the_latest_intervals_are_the_last_of_training() -> None:
    assert latest(range(10, 30), 5) == range(25, 30)
    assert latest(range(10, 30), 20) == range(10, 30)
    for bad in (0, 21):
        with pytest.raises(InputError, match=f"window: got {bad} intervals, expected 1 to the 20"):
            latest(range(10, 30), bad)


def test_it_learns_from_the_latest_traffic_in_the_policys_own_terms(
    recent: Study, trained: tuple[Trained, LastGood]
) -> None:
    assert recent.training == range(18, 30)
    assert all(start >= 18 and start + recent.episodes.horizon <= 30 for start in recent.episodes.starts)
    assert recent.scale == trained[1].scale
    assert recent.reference.settings == SETTINGS


def test_the_first_look_is_the_last_good_policy_so_the_best_is_never_worse(
    recent: Study, trained: tuple[Trained, LastGood]
) -> None:
    told = continue_training(recent, trained[1], SMALL, seed=3)
    assert told.looks[0].saving == pytest.approx(trained[0].best.saving, abs=1e-9)
    assert told.best.saving >= told.looks[0].saving
    assert told.looks[-1].steps == SMALL.total_steps


def test_equal_seeds_give_equal_policies_alone_and_by_plan(recent: Study, trained: tuple[Trained, LastGood]) -> None:
    one = continue_training(recent, trained[1], SMALL, seed=3)
    plan = TrainingPlan(make_problem, SPLIT, SETTINGS, SMALL, recent=Recent(trained[1], 12))
    again = train_seed(plan, 3)
    assert one.looks == again.looks
    assert_same_actor(one, again)


def test_what_is_no_better_leaves_the_last_good_policy_in_place(
    recent: Study, trained: tuple[Trained, LastGood]
) -> None:
    """A step size of next to nothing learns nothing: the saving over the last good policy is zero, which is not above
    zero with confidence."""
    still = SMALL.model_copy(update={"learning_rate": 1e-30, "total_steps": 32})
    told = judge_continued(recent, trained[1].actor, continue_training(recent, trained[1], still, seed=0))
    assert told.saving.mean == pytest.approx(0.0, abs=1e-6)
    assert not told.adopted
    assert told.actor is trained[1].actor


def test_what_is_better_is_adopted(recent: Study, trained: tuple[Trained, LastGood]) -> None:
    """The last good policy stands for a bad one here: it always shrinks the cache as far as it can."""
    layers = trained[1].actor.weights
    last = (np.zeros_like(layers[-1][0]), np.array([-1.0, -1.0, 0.0], np.float32))
    bad = type(trained[1].actor)((*layers[:-1], last))
    told = judge_continued(recent, bad, trained[0])
    assert told.saving.low > 0.0
    assert told.adopted
    assert told.actor is trained[0].actor


def test_networks_of_another_shape_are_refused(recent: Study, trained: tuple[Trained, LastGood]) -> None:
    wider = SMALL.model_copy(update={"hidden": (8, 16)})
    with pytest.raises(InputError, match=r"ppo.hidden: got \(8, 16\), expected \(8, 8\)"):
        continue_training(recent, trained[1], wider, seed=0)


def test_an_interrupted_one_goes_on_from_its_checkpoint(
    recent: Study, trained: tuple[Trained, LastGood], tmp_path: Path
) -> None:
    first = continue_training(recent, trained[1], SMALL, 0, checkpoint=tmp_path)
    again = continue_training(recent, trained[1], SMALL, 0, checkpoint=tmp_path)
    assert again.looks[: len(first.looks)] == first.looks
    assert again.best == first.best


def test_a_start_is_the_first_look_and_has_to_fit(world: World, trained: tuple[Trained, LastGood]) -> None:
    study = open_study(world, SPLIT, SETTINGS, SMALL.horizon, SMALL.starts)
    environment = study.environment(SMALL.lanes, 0)
    told = train(
        *(study.reference, study.scale, environment, study.validation, SMALL, 0), start=Start(trained[0].actor)
    )
    assert told.looks[0].saving == pytest.approx(trained[0].best.saving, abs=1e-9)
