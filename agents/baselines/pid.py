"""A PID controller that holds P99 time to the first token at its objective by the size of the cache."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agents.baselines.fitting import choose
from agents.policy import Sight
from agents.study import Study
from caches.errors import InputError
from envs.ghosts import GhostGrid
from envs.interval import COLUMN

FloatArray = NDArray[np.float64]
P99 = COLUMN["p99_ttft_seconds"]


@dataclass(frozen=True)
class Gains:
    """In share of the range per unit of error, the natural logarithm of P99 over the objective: 0.69 is twice too slow.

    proportional, integral (per interval), derivative (times an interval). keep: share of the integral that is left an
    interval later. slack: errors from -slack to 0 count as 0, so that latency better than asked for is no reason to
    take memory away; 0 holds P99 at the objective from both sides.
    """

    proportional: float = 0.05
    integral: float = 0.01
    derivative: float = 0.02
    keep: float = 1.0
    slack: float = 0.0

    def __post_init__(self) -> None:
        for name in ("proportional", "integral", "derivative", "slack"):
            if not getattr(self, name) >= 0.0:
                raise InputError(f"{name}: got {getattr(self, name)}, expected at least 0")
        if not 0.0 < self.keep <= 1.0:
            raise InputError(f"keep: got {self.keep}, expected in (0, 1]")


class PidToP99:
    """Positional form around home: offset = proportional x error + integral x sum of errors + derivative x change.

    directions: (3,), how each knob moves per unit of the offset, 0 or more; by default the size alone. The offset keeps
    at least one of these knobs within its range, and changes by at most `max_step` per interval. Anti-windup: an error
    is not added to the sum while the offset is limited and the error would push it further (conditional integration:
    K. J. Åström, T. Hägglund, PID Controllers: Theory, Design, and Tuning, 2nd edition, 1995, section 3.5). Without
    data it holds still.
    """

    name = "PID to P99"

    def __init__(
        self,
        home: FloatArray,
        objective_seconds: float,
        max_step: float,
        gains: Gains = Gains(),
        directions: tuple[float, float, float] = (1.0, 0.0, 0.0),
    ) -> None:
        self.home, self.objective_seconds, self.max_step, self.gains = home, objective_seconds, max_step, gains
        self._directions = np.array(directions)
        moved = self._directions > 0.0
        if not moved.any() or (self._directions < 0.0).any():
            raise InputError(f"directions: got {directions}, expected none below 0 and one above it")
        self.lowest = -float((home[moved] / self._directions[moved]).max())
        self.highest = float(((1.0 - home[moved]) / self._directions[moved]).max())
        self.reset(0)

    def reset(self, seed: int) -> None:
        self._offset, self._sum = 0.0, 0.0
        self._error: float | None = None

    def act(self, sight: Sight) -> FloatArray:
        p99 = float(sight.row[P99])
        if not math.isnan(p99):
            self._update(math.log(p99 / self.objective_seconds))
        return np.clip(self.home + self._offset * self._directions, 0.0, 1.0) - self.home

    def _update(self, error: float) -> None:
        gains = self.gains
        if -gains.slack <= error <= 0.0:
            error = 0.0
        change = 0.0 if self._error is None else error - self._error
        self._error = error
        before = gains.keep * self._sum
        wish = gains.proportional * error + gains.integral * (before + error) + gains.derivative * change
        low, high = max(self.lowest, self._offset - self.max_step), min(self.highest, self._offset + self.max_step)
        limited = min(max(wish, low), high)
        self._sum = before if (wish - limited) * error > 0.0 else before + error
        self._offset = limited


CANDIDATES = (
    Gains(),
    Gains(proportional=0.2, integral=0.02, derivative=0.05),
    Gains(keep=0.95, slack=math.inf),
    Gains(proportional=0.2, integral=0.02, derivative=0.05, keep=0.95, slack=math.inf),
)


def fit_pid(study: Study, grid: GhostGrid) -> PidToP99:
    """The gains of CANDIDATES that are cheapest on validation traffic, moving the size alone."""
    problem = study.world.problem
    home = problem.knobs.positions(study.reference.settings)
    objective, max_step = problem.constraints.p99_ttft_seconds, problem.knobs.cache_size.max_step
    candidates = [PidToP99(home, objective, max_step, gains) for gains in CANDIDATES]
    return candidates[choose(study, grid, candidates).index]
