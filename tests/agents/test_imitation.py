from __future__ import annotations

import numpy as np
import pytest

from agents.actor import Actor
from agents.baselines.best_static import fit_best_static
from agents.imitation import Regression, best_teacher, demonstrate, discounted, imitate, imitate_best, regress, value_of
from agents.learning import Start, hidden_entries
from agents.policy import ControlPolicy, Sight
from agents.ppo import ActorPolicy, Trained, train
from agents.ppo_config import PPOConfig
from agents.rollout import roll_out
from agents.study import Split, Study, open_study
from envs.ghosts import ghost_grid
from envs.interval import total_usd
from envs.observation import SIZE, names
from envs.world import World
from tests.agents.alternating import INTERVALS_A_DAY, KNOBS, every_setting, optimum_usd, problem_of
from tests.agents.test_learning import CONFIG
from tests.envs.worlds import SETTINGS, problem, random_trace

LEARNER = PPOConfig(hidden=(32, 32), horizon=40, starts=8, exploration=0.05, discount=0.5)
DIRECTIONS = np.random.default_rng(0).uniform(-0.01, 0.01, (SIZE, 3))


class Wishing:
    """A linear controller; without directions it never moves."""

    name = "wishing"

    def __init__(self, directions: np.ndarray | None = None) -> None:
        self.directions = np.zeros((SIZE, 3)) if directions is None else directions

    def reset(self, seed: int) -> None:
        """Nothing to forget."""

    def act(self, sight: Sight) -> np.ndarray:
        return np.asarray(sight.observation @ self.directions)


class ByTheClock(Wishing):
    """The cheapest setting of each interval of the day, which alternating traffic makes known."""

    def __init__(self, study: Study) -> None:
        settings, knobs = every_setting(), KNOBS
        cheapest = total_usd(study.world.replay_static(settings, INTERVALS_A_DAY)).argmin(axis=0)
        home = knobs.positions(study.reference.settings)
        self.wishes = np.array([knobs.positions(settings[best]) for best in cheapest]) - home

    def act(self, sight: Sight) -> np.ndarray:
        return np.asarray(self.wishes[sight.interval % INTERVALS_A_DAY])


@pytest.fixture(scope="module")
def study() -> Study:
    world = World(problem(random_trace(0, 300)))
    return open_study(world, Split(0.5, 0.2), SETTINGS, LEARNER.horizon, LEARNER.starts)


def saving(study: Study, policy: ControlPolicy, part: range) -> float:
    rolled = roll_out(study.reference, study.scale, [policy], part)
    return float(1.0 - rolled.usd.sum() / rolled.reference_usd.sum())


def test_it_reproduces_a_linear_controller(study: Study) -> None:
    """On traffic that nobody demonstrated, it wishes for what the controller would, up to a tenth of its spread."""
    teacher = Wishing(DIRECTIONS)
    start = imitate(study, lambda: teacher, LEARNER, seed=0)
    unseen = np.random.default_rng(1).permutation(demonstrate(study, lambda: teacher, LEARNER, 7).observations)[:200]
    expected = np.clip(unseen @ DIRECTIONS, -1.0, 1.0)
    error = start.actor.act_batch(unseen) - expected
    assert (error**2).mean() < 0.1**2 * expected.var()


def test_a_teacher_that_never_moves_leaves_the_reference_exactly(study: Study) -> None:
    start = imitate(study, Wishing, LEARNER, seed=0)
    wild = np.random.default_rng(0).uniform(-5, 5, (50, SIZE)).astype(np.float32)
    assert (start.actor.act_batch(wild) == 0.0).all()


def test_hidden_entries_have_no_influence(study: Study) -> None:
    blind = LEARNER.model_copy(update={"whatif_features": False})
    start = imitate(study, lambda: Wishing(DIRECTIONS), blind, seed=0)
    seen = np.random.default_rng(0).uniform(-1, 1, (50, SIZE)).astype(np.float32)
    other = seen.copy()
    other[:, hidden_entries(blind)] = np.random.default_rng(1).uniform(-5, 5, (50, 24))
    np.testing.assert_array_equal(start.actor.act_batch(seen), start.actor.act_batch(other))
    assert hidden_entries(blind).sum() == 24  # two averages of 12 ghosts
    assert all(names()[i].startswith("whatif_") for i in np.flatnonzero(hidden_entries(blind)))
    assert not hidden_entries(LEARNER).any()


def test_equal_seeds_give_equal_networks(study: Study) -> None:
    one, again, other = (imitate(study, lambda: Wishing(DIRECTIONS), LEARNER, seed) for seed in (0, 0, 1))
    assert one.critic is not None
    assert again.critic is not None
    for (weight, _), (same, _) in zip(
        (*one.actor.weights, *one.critic), (*again.actor.weights, *again.critic), strict=True
    ):
        np.testing.assert_array_equal(weight, same)
    assert (one.actor.weights[0][0] != other.actor.weights[0][0]).any()


def test_returns_are_discounted_sums_as_far_as_they_are_known() -> None:
    """At one half, what lies 5 steps ahead weighs 1/32 < 0.05, 4 steps ahead 1/16: the last five are not known."""
    rewards = np.ones((8, 1))
    told = discounted(rewards, 0.5)[:, 0]
    np.testing.assert_allclose(told[:3], [2 - 2**-7, 2 - 2**-6, 2 - 2**-5])
    assert np.isnan(told[3:]).all()
    assert np.isnan(discounted(rewards, 1.0)).all()


def test_a_regression_keeps_what_was_best_on_samples_held_out() -> None:
    """Targets are noise: nothing learnt can be better for others than nearly nothing."""
    rng = np.random.default_rng(0)
    inputs, targets = rng.normal(size=(400, 5)), rng.normal(size=(400, 1))
    held = np.arange(400) >= 200
    layers, error = regress(inputs, targets, held, (16,), 0, Regression())
    assert error <= float((targets[held] ** 2).mean())  # it begins at zero
    assert layers[-1][0].shape == (1, 16)


def test_a_policy_that_saves_nothing_is_worth_nothing(study: Study) -> None:
    """The reference itself, acting almost without noise."""
    still = Actor(((np.zeros((32, SIZE)), np.zeros(32)), (np.zeros((3, 32)), np.zeros(3))))
    layers = value_of(study, still, LEARNER.model_copy(update={"exploration": 1e-12}), seed=0)
    assert layers is not None
    assert all(np.abs(array).max() < 1e-5 for array in layers[-1])


def test_training_begins_where_the_teacher_is_and_reaches_the_optimum_in_fewer_steps() -> None:
    """Nine tenths of what the optimum saves on validation traffic, with the optimum by the clock as the teacher: at the
    first look. From the reference ten updates are not enough."""
    world = World(problem_of())
    split = Split(2 / 3, 1 / 6)
    training, validation, _ = world.timeline.split(split.train, split.validation)
    grid = ghost_grid(world)
    fit = fit_best_static(world, training, grid=grid)
    study = open_study(world, split, fit.settings, CONFIG.horizon, CONFIG.starts)
    part = slice(validation.start, validation.stop)
    goal = 0.9 * (1.0 - optimum_usd(world)[part].sum() / study.reference.usd[part].sum())
    teacher = ByTheClock(study)
    start = imitate(study, lambda: teacher, CONFIG, 0)
    told = [_trained(study, 10_240, None), _trained(study, 1_024, start)]
    assert max(look.saving for look in told[0].looks) < goal
    assert told[1].looks[0].saving >= goal
    own = saving(study, best_teacher(study, grid), study.validation)
    copied = saving(study, ActorPolicy("copy", imitate_best(study, grid, CONFIG, 0).actor), study.validation)
    assert own > 0.0
    assert copied > 0.5 * own


def _trained(study: Study, steps: int, start: Start | None) -> Trained:
    config = CONFIG.model_copy(update={"total_steps": steps})
    environment = study.environment(config.lanes, 0)
    return train(study.reference, study.scale, environment, study.validation, config, 0, start=start)
