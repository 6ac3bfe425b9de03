"""The seam of a control policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from caches.policies.pair import CachePolicy

Array = NDArray[Any]


@dataclass(frozen=True)
class Ghosts:
    """What fixed settings cost on the same traffic, as far as it is known when an interval begins.

    positions: (ghosts, 3) in [0, 1]. usd, unsafe: (ghosts, intervals before), oldest first, from the trace's start;
    views that nobody may write to. policy: int64 (ghosts,), the eviction policy that each is under, as one of those to
    choose between; None: all are under the cache's own.
    """

    positions: Array
    usd: Array
    unsafe: NDArray[np.bool_]
    policy: NDArray[np.int64] | None = None


@dataclass(frozen=True)
class Sight:
    """All that is known when an interval begins.

    observation: float32 (envs.observation.SIZE,). interval: its number in the trace. now_seconds: when it begins, on a
    clock whose zero is a midnight. row: statistics of the interval before (order of envs.interval.NAMES, NaN for what
    is not known). positions: (3,), of the settings in force. ghosts: None where nothing follows the traffic's keys.
    choice: the eviction policy in force, as one of those to choose between; 0 where there is nothing to choose, None
    where it is none of them.
    """

    observation: NDArray[np.float32]
    interval: int
    now_seconds: float
    row: Array
    positions: Array
    ghosts: Ghosts | None = None
    choice: int | None = 0


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


@runtime_checkable
class ChoosingPolicy(ControlPolicy, Protocol):
    """One that may choose the eviction policy as well, where it has any to choose between."""

    @property
    def choices(self) -> tuple[CachePolicy, ...]:
        """The first is what it begins under; none: it leaves the cache under its own."""

    @property
    def choice(self) -> int:
        """Which of them `act` wants from now on."""


def choices_of(policy: ControlPolicy) -> tuple[CachePolicy, ...]:
    """None for one that cannot choose."""
    return policy.choices if isinstance(policy, ChoosingPolicy) else ()
