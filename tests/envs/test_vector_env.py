from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

from envs.replay_env import ReplayCacheEnv
from envs.vector_env import ReplayVectorEnv
from tests.envs.worlds import study

HORIZON, LANES = 6, 5


def lanes(seed: int = 0, threads: int = 1) -> ReplayVectorEnv:
    return ReplayVectorEnv(*study(threads=threads, horizon=HORIZON), LANES, seed)


def actions(steps: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, (steps, LANES, 3)).astype(np.float32)


def test_spaces_are_batches_of_the_single_environment() -> None:
    vector, single = lanes(), ReplayCacheEnv(*study(horizon=HORIZON))
    assert vector.single_observation_space == single.observation_space
    assert vector.single_action_space == single.action_space
    assert vector.observation_space == batch_space(single.observation_space, LANES)
    assert vector.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP


def test_what_it_returns_fits_the_spaces() -> None:
    vector = lanes()
    seen, _ = vector.reset(seed=1)
    assert seen in vector.observation_space
    for action in actions(20):
        seen, rewards, terminated, truncated, _ = vector.step(action)
        assert seen in vector.observation_space
        assert rewards.shape == terminated.shape == truncated.shape == (LANES,)
        assert np.isfinite(rewards).all()
        assert (terminated.dtype, truncated.dtype) == (np.bool_, np.bool_)
        assert not terminated.any()


@pytest.mark.parametrize("threads", [1, 2])
def test_lanes_equal_the_single_environment_for_the_same_starts_and_actions(threads: int) -> None:
    vector, twins = lanes(threads=threads), [ReplayCacheEnv(*study(horizon=HORIZON)) for _ in range(LANES)]
    seen, _ = vector.reset(seed=2)
    for lane, twin in enumerate(twins):
        expected, _ = twin.reset(options={"start": int(vector.control.index[lane])})
        np.testing.assert_array_equal(seen[lane], expected)
    for action in actions(4 * HORIZON):
        seen, rewards, _, truncated, info = vector.step(action)
        for lane, twin in enumerate(twins):
            expected, reward, _, _, _ = twin.step(action[lane])
            assert rewards[lane] == reward
            last = info["final_obs"][lane] if truncated[lane] else seen[lane]
            np.testing.assert_array_equal(last, expected)
            if truncated[lane]:
                expected, _ = twin.reset(options={"start": int(vector.control.index[lane])})
                np.testing.assert_array_equal(seen[lane], expected)


def test_episodes_last_the_horizon_but_the_first_is_cut_somewhere() -> None:
    vector = lanes()
    vector.reset(seed=3)
    ends: list[list[int]] = [[] for _ in range(LANES)]
    for step, action in enumerate(actions(40)):
        _, _, _, truncated, info = vector.step(action)
        assert ("final_obs" in info) == bool(truncated.any())
        if truncated.any():
            np.testing.assert_array_equal(info["_final_obs"], truncated)
        for lane in np.flatnonzero(truncated):
            ends[lane].append(step)
    assert all(0 <= lane[0] < HORIZON for lane in ends)
    assert len({lane[0] for lane in ends}) > 1
    assert {b - a for lane in ends for a, b in pairwise(lane)} == {HORIZON}


def test_equal_seeds_give_equal_lanes_and_others_do_not() -> None:
    one, other, third = lanes(), lanes(seed=9), lanes()
    first = one.reset(seed=4)[0]
    np.testing.assert_array_equal(first, other.reset(seed=4)[0])
    for action in actions(15):
        told, expected = one.step(action), other.step(action)
        for a, b in zip(told[:4], expected[:4], strict=True):
            np.testing.assert_array_equal(a, b)
    third.reset(seed=5)
    assert one.control.index.tolist() != third.control.index.tolist()


def test_the_first_seed_is_that_of_the_constructor() -> None:
    one, other = lanes(seed=6), lanes(seed=0)
    one.reset()
    other.reset(seed=6)
    assert one.control.index.tolist() == other.control.index.tolist()
