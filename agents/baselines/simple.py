"""Policies without learning."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from agents.policy import Sight
from caches.knobs import KnobSettings, KnobSpace
from envs.observation import names

FloatArray = NDArray[np.float64]
SAVING = names().index("saving")
KNOWN_SAVING = names().index("known_saving")


class Static:
    """One setting for ever, reached from the reference as fast as the limits allow."""

    def __init__(self, name: str, settings: KnobSettings, reference: KnobSettings, knobs: KnobSpace) -> None:
        self.name, self.settings = name, settings
        self._action = knobs.positions(settings) - knobs.positions(reference)

    def reset(self, seed: int) -> None:
        """Nothing to forget."""

    def act(self, sight: Sight) -> FloatArray:
        return self._action


class Random:
    """Wishes for a new setting each interval, uniformly over all."""

    name = "random"

    def __init__(self) -> None:
        self.reset(0)

    def reset(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)

    def act(self, sight: Sight) -> FloatArray:
        return self._random.uniform(-1.0, 1.0, 3)


class HillClimber:
    """Tries one knob at a time: moves it, waits, keeps going while the saving grew and turns back when it fell.

    The saving is averaged over `patience` intervals per trial; `step` is in share of the range.
    """

    name = "hill climber"

    def __init__(self, step: float = 0.06, patience: int = 6) -> None:
        self.step, self.patience = step, patience
        self.reset(0)

    def reset(self, seed: int) -> None:
        self._action = np.zeros(3)
        self._direction = np.ones(3)
        self._knob, self._before = 0, 0.0
        self._seen: list[float] = []

    def act(self, sight: Sight) -> FloatArray:
        if sight.observation[KNOWN_SAVING]:
            self._seen.append(float(sight.observation[SAVING]))
        if len(self._seen) >= self.patience:
            self._judge(float(np.mean(self._seen)))
            self._seen = []
        return self._action.copy()

    def _judge(self, now: float) -> None:
        if now < self._before:
            self._direction[self._knob] *= -1.0
            self._move(2.0)  # take the bad step back and go one step the other way
            self._knob = (self._knob + 1) % 3
        self._before = now
        self._move(1.0)

    def _move(self, steps: float) -> None:
        moved = self._action[self._knob] + steps * self.step * self._direction[self._knob]
        self._action[self._knob] = np.clip(moved, -1.0, 1.0)
