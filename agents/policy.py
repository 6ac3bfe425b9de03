"""The seam of a control policy."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class ControlPolicy(Protocol):
    """Decides, once per control interval, from what it observes.

    Implementations are driven over one stretch of time at a time. They hold no state that `reset` does not clear.
    """

    @property
    def name(self) -> str:
        """As it appears in tables."""

    def reset(self, seed: int) -> None:
        """Forgets everything; called before the first interval of a stretch."""

    def act(self, observation: NDArray[np.float32]) -> NDArray[np.float64]:
        """Observation, shape (envs.observation.SIZE,), to action, shape (3,) in [-1, 1]: the wished offset of each
        knob's position from the reference, before limits."""
