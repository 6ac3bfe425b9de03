from __future__ import annotations

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.utils.env_checker import data_equivalence as equal
from stable_baselines3.common.env_checker import check_env as check_env_for_sb3

from caches.errors import InputError
from envs.interval import Window
from envs.replay_env import ReplayCacheEnv
from tests.envs.worlds import KNOBS, SETTINGS, study

HORIZON = 8


@pytest.fixture
def env() -> ReplayCacheEnv:
    return ReplayCacheEnv(*study(horizon=HORIZON))


def test_gymnasium_accepts_it(env: ReplayCacheEnv) -> None:
    check_env(env, skip_render_check=True)


def test_stable_baselines_accepts_it(env: ReplayCacheEnv) -> None:
    check_env_for_sb3(env)


def test_equal_seeds_and_actions_give_equal_episodes(env: ReplayCacheEnv) -> None:
    other = ReplayCacheEnv(*study(horizon=HORIZON))
    env.action_space.seed(3)
    actions = [env.action_space.sample() for _ in range(HORIZON)]
    for seed in (0, 1, 2, 1):
        assert equal(env.reset(seed=seed), other.reset(seed=seed))
        for action in actions:
            assert equal(env.step(action), other.step(action))


def test_seeds_decide_where_an_episode_starts(env: ReplayCacheEnv) -> None:
    starts = {env.reset(seed=seed)[1]["interval"] for seed in range(40)}
    assert starts == {0, 4, 8, 12}  # four of equal distance such that eight intervals stay below 20


def test_an_episode_is_truncated_at_its_horizon_and_never_terminates(env: ReplayCacheEnv) -> None:
    for _ in range(3):
        _, info = env.reset()
        for step in range(HORIZON):
            _, _, terminated, truncated, told = env.step(env.action_space.sample())
            assert told["interval"] == info["interval"] + step
            assert not terminated
            assert truncated == (step == HORIZON - 1)


def test_a_step_tells_the_window_and_the_settings(env: ReplayCacheEnv) -> None:
    reference, _, _ = study(horizon=HORIZON)
    env.reset(options={"start": 4})
    _, gained, _, _, info = env.step(np.zeros(3, np.float32))
    assert gained == 0.0
    assert info["window"] == Window.of_row(reference.rows[4])
    assert info["settings"] == SETTINGS
    _, _, _, _, info = env.step(np.array([1.0, 0.0, -1.0], np.float32))
    expected = KNOBS.decide(np.array([1.0, 0.0, -1.0]), SETTINGS, SETTINGS)
    np.testing.assert_allclose(info["settings"].as_array(), expected.as_array())


def test_a_start_must_be_marked(env: ReplayCacheEnv) -> None:
    env.reset(options={"start": 20})  # marked, though no episode of training starts there
    with pytest.raises(InputError, match="checkpoint: got interval 5"):
        env.reset(options={"start": 5})


def test_going_on_after_the_end_is_an_error(env: ReplayCacheEnv) -> None:
    env.reset()
    for _ in range(HORIZON):
        env.step(np.zeros(3, np.float32))
    with pytest.raises(InputError, match="reset it first"):
        env.step(np.zeros(3, np.float32))
