"""Many replay lanes as one vectorised environment, stepped in one call."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from envs.control import Episodes, LaneControl
from envs.interval import total_usd
from envs.observation import ObservationScale
from envs.replay_env import action_space, observation_space
from envs.world import Reference

Array = NDArray[Any]


class ReplayVectorEnv(VectorEnv[NDArray[np.float32], NDArray[np.float32], Any]):
    """Lanes over shared read-only trace arrays. A lane that ends starts anew in the same step; what it saw last is in
    info["final_obs"]. info["usd"]: what each lane's interval cost. First episodes are cut at random lengths so that
    lanes do not all end together."""

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012, Gymnasium's own declaration

    def __init__(
        self, reference: Reference, scale: ObservationScale, episodes: Episodes, num_envs: int, seed: int
    ) -> None:
        self.num_envs = num_envs
        self.single_observation_space, self.single_action_space = observation_space(), action_space()
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.episodes = episodes
        self.control = LaneControl(reference, scale, num_envs, episodes.horizon)
        self._checkpoints = [reference.checkpoint(start) for start in episodes.starts]
        self._random = np.random.default_rng(seed)
        self._left = np.zeros(num_envs, np.int64)

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        if isinstance(seed, int):
            self._random = np.random.default_rng(seed)
        for lane in range(self.num_envs):
            self._restart(lane)
            self._left[lane] = self._random.integers(1, self.episodes.horizon + 1)
        return self.control.observe(), {}

    def step(
        self, actions: NDArray[np.float32]
    ) -> tuple[NDArray[np.float32], Array, NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        rewards = self.control.step(actions)
        self._left -= 1
        truncated = self._left == 0
        observations = self.control.observe()
        info: dict[str, Any] = {"usd": total_usd(self.control.rows)}
        if truncated.any():
            info |= {"final_obs": observations.copy(), "_final_obs": truncated}
            for lane in np.flatnonzero(truncated):
                self._restart(int(lane))
            observations = self.control.observe()
        return observations, rewards, np.zeros(self.num_envs, np.bool_), truncated, info

    def _restart(self, lane: int) -> None:
        start = int(self._random.integers(len(self._checkpoints)))
        self.control.reset(lane, self._checkpoints[start])
        self._left[lane] = self.episodes.horizon
