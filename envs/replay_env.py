"""`setpoint/ReplayCache-v0`: one shadow cache as a Gymnasium environment."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Space
from numpy.typing import NDArray

from envs.control import ACTION_SHAPE, OBSERVATION_SHAPE, Episodes, LaneControl
from envs.interval import Window
from envs.observation import LIMIT, ObservationScale
from envs.world import Reference

Array = NDArray[Any]


def action_space() -> Space[NDArray[np.float32]]:
    """Offsets of the three knobs' positions from the reference, each in [-1, 1]; zero is the reference."""
    return Box(-1.0, 1.0, ACTION_SHAPE, np.float32)


def observation_space() -> Space[NDArray[np.float32]]:
    """See envs.observation."""
    return Box(-LIMIT, LIMIT, OBSERVATION_SHAPE, np.float32)


class ReplayCacheEnv(gymnasium.Env[NDArray[np.float32], NDArray[np.float32]]):
    """One control interval a step, over a trace, exactly.

    Observation, action and reward are those of envs.observation, caches.knobs and envs.reward. An episode starts at one
    of the marked intervals, with the cache and queue that the reference setting left there, and ends by truncation
    after `episodes.horizon` steps; it never terminates. `info` holds the interval's Window and the settings in force.
    """

    metadata = {"render_modes": []}  # noqa: RUF012, Gymnasium's own declaration

    def __init__(self, reference: Reference, scale: ObservationScale, episodes: Episodes) -> None:
        self.observation_space: Space[NDArray[np.float32]] = observation_space()
        self.action_space: Space[NDArray[np.float32]] = action_space()
        self._control = LaneControl(reference, scale, 1, episodes.horizon)
        self._reference, self._episodes, self._steps = reference, episodes, 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """options: {"start": interval} picks the start, which must be marked; otherwise it is drawn."""
        super().reset(seed=seed)
        start = (options or {}).get("start", None)
        if start is None:
            start = self._episodes.starts[int(self.np_random.integers(len(self._episodes.starts)))]
        self._control.reset(0, self._reference.checkpoint(start))
        self._steps = 0
        return self._control.observe()[0], {"interval": start}

    def step(self, action: NDArray[np.float32]) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        interval = int(self._control.index[0])
        gained = float(self._control.step(np.asarray(action, np.float64)[None])[0])
        self._steps += 1
        info = {
            "interval": interval,
            "window": Window.of_row(self._control.rows[0]),
            "settings": self._control.settings_of(0),
        }
        return self._control.observe()[0], gained, False, self._steps >= self._episodes.horizon, info
