from __future__ import annotations

import numpy as np
import pytest

from agents.baselines.simple import Random, Static
from agents.policy import Sight
from agents.rollout import roll_out
from agents.study import Split, open_study
from caches.errors import InputError
from caches.knobs import KnobSettings
from envs.control import observation_scale
from envs.interval import column, total_usd
from envs.observation import ObservationScale
from envs.replay_env import ReplayCacheEnv
from envs.world import Reference, World
from tests.envs.worlds import KNOBS, SETTINGS, problem, random_trace, study

PART = range(20, 30)


class Scripted:
    """Acts as told, and remembers what it saw and was reset with."""

    name = "scripted"

    def __init__(self, actions: np.ndarray) -> None:
        self.actions, self.seen, self.seeds = actions, [], []

    def reset(self, seed: int) -> None:
        self.seeds.append(seed)
        self.seen = []

    def act(self, sight: Sight) -> np.ndarray:
        self.seen.append(sight.observation)
        return self.actions[len(self.seen) - 1]


@pytest.fixture(scope="module")
def made() -> tuple[Reference, ObservationScale]:
    return study()[:2]


def test_the_reference_beside_itself_saves_nothing(made: tuple[Reference, ObservationScale]) -> None:
    told = roll_out(*made, [Static("best", SETTINGS, SETTINGS, KNOBS)], PART)
    assert told.names == ("best",)
    np.testing.assert_array_equal(told.rows[0], told.reference_rows)
    np.testing.assert_array_equal(told.reference_rows, made[0].rows[20:30])
    np.testing.assert_array_equal(told.usd[0], told.reference_usd)
    assert (told.settings == SETTINGS.as_array()).all()


def test_policies_side_by_side_do_not_touch_each_other(made: tuple[Reference, ObservationScale]) -> None:
    actions = np.random.default_rng(0).uniform(-1, 1, (3, 10, 3))
    together = roll_out(*made, [Scripted(one) for one in actions], PART)
    for index, one in enumerate(actions):
        alone = roll_out(*made, [Scripted(one)], PART)
        np.testing.assert_array_equal(alone.rows[0], together.rows[index])
        np.testing.assert_array_equal(alone.settings[0], together.settings[index])
    requests = column(together.rows, "requests")
    assert (requests == column(together.reference_rows, "requests")).all()


def test_a_policy_sees_and_gets_what_the_environment_gives(made: tuple[Reference, ObservationScale]) -> None:
    reference, scale, episodes = study(horizon=10)
    policy = Scripted(np.random.default_rng(1).uniform(-1, 1, (10, 3)).astype(np.float32))
    told = roll_out(*made, [policy], PART)
    env = ReplayCacheEnv(reference, scale, episodes)
    seen, _ = env.reset(options={"start": 20})
    for step in range(10):
        np.testing.assert_array_equal(policy.seen[step], seen)
        seen, _, _, _, info = env.step(policy.actions[step])
        assert info["settings"] == KnobSettings.from_array(told.settings[0, step])
        assert info["window"].compute_usd == column(told.rows, "compute_usd")[0, step]


def test_each_policy_has_a_seed_of_its_own_and_equal_seeds_repeat(made: tuple[Reference, ObservationScale]) -> None:
    first, second = Scripted(np.zeros((10, 3))), Scripted(np.zeros((10, 3)))
    roll_out(*made, [first, second], PART, seed=7)
    assert (first.seeds, second.seeds) == ([7], [8])
    one, other = (roll_out(*made, [Random(), Random()], PART, seed=3) for _ in range(2))
    np.testing.assert_array_equal(one.rows, other.rows)
    assert not np.array_equal(one.settings[0], one.settings[1])


def test_wishes_beyond_the_action_space_are_cut(made: tuple[Reference, ObservationScale]) -> None:
    wild, tame = Scripted(np.full((10, 3), 9.0)), Scripted(np.ones((10, 3)))
    told = roll_out(*made, [wild, tame], PART)
    np.testing.assert_array_equal(told.settings[0], told.settings[1])


def test_a_part_must_begin_at_a_mark(made: tuple[Reference, ObservationScale]) -> None:
    with pytest.raises(InputError, match="checkpoint: got interval 21"):
        roll_out(*made, [Random()], range(21, 30))


def test_a_study_keeps_its_parts_apart() -> None:
    world = World(problem(random_trace(0, 30)))
    made = open_study(world, Split(0.5, 0.2), SETTINGS, horizon=5, starts=4)
    assert (made.training, made.validation, made.test) == (range(15), range(15, 21), range(21, 30))
    assert made.episodes.starts[-1] + made.episodes.horizon <= made.training.stop
    assert {checkpoint.index for checkpoint in made.reference.checkpoints} == {*made.episodes.starts, 15, 21}
    assert made.scale == observation_scale(world, made.reference, made.training)
    assert made.world is world
    assert made.environment(3, seed=1).num_envs == 3
    assert made.control(2, 5).count == 2


def test_a_study_can_be_judged_on_the_scale_of_another(made: tuple[Reference, ObservationScale]) -> None:
    world = World(problem(random_trace(5, 30)))
    assert open_study(world, Split(0.5, 0.2), SETTINGS, 5, 4, made[1]).scale is made[1]


def test_costs_are_sums_over_causes(made: tuple[Reference, ObservationScale]) -> None:
    told = roll_out(*made, [Random()], PART)
    np.testing.assert_array_equal(told.usd, total_usd(told.rows))
    assert told.usd.shape == (1, 10)
