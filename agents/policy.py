"""The seam of a control policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True)
class Ghosts:
    """What fixed settings cost on the same traffic, as far as it is known when an interval begins.

    positions: (ghosts, 3) in [0, 1]. usd, unsafe: (ghosts, intervals before), oldest first, from the trace's start;
    views that nobody may write to.
    """

    positions: Array
    usd: Array
    unsafe: NDArray[np.bool_]


@dataclass(frozen=True)
class Sight:
    """All that is known when an interval begins.

    observation: float32 (envs.observation.SIZE,). interval: its number in the trace. now_seconds: when it begins, on a
    clock whose zero is a midnight. row: statistics of the interval before (order of envs.interval.NAMES, NaN for what
    is not known). positions: (3,), of the settings in force. ghosts: None where nothing follows the traffic's keys.
    """

    observation: NDArray[np.float32]
    interval: int
    now_seconds: float
    row: Array
    positions: Array
    ghosts: Ghosts | None = None


class ControlPolicy(Protocol):
    """Decides, once per control interval, from what it sees.

    Implementations are driven over one stretch of time at a time. They hold no state that `reset` does not clear.
    """

    @property
    def name(self) -> str:
        """As it appears in tables."""

    def reset(self, seed: int) -> None:
        """Forgets everything; called before the first interval of a stretch."""

    def act(self, sight: Sight) -> NDArray[np.float64]:
        """Shape (3,) in [-1, 1]: the wished offset of each knob's position from the reference, before limits."""
