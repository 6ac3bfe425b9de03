"""Lifetimes by rule: towards a hit ratio (d-TTL), and by a formula of load and errors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agents.baselines.fitting import choose
from agents.policy import Sight
from agents.study import Study
from caches.errors import InputError
from caches.knobs import Knob
from envs.ghosts import GhostGrid
from envs.interval import COLUMN, column

FloatArray = NDArray[np.float64]
Array = NDArray[Any]

REQUESTS, HIT_RATIO, SLOW = COLUMN["requests"], COLUMN["hit_ratio"], COLUMN["slow_requests"]


class TargetTtl:
    """Steers ttl_seconds by stochastic approximation so that the hit ratio becomes `target`; the other knobs stay home.

    S. Basu, A. Sundarrajan, J. Ghaderi, S. Shakkottai, R. Sitaraman, Adaptive TTL-based caching for content delivery,
    IEEE/ACM Transactions on Networking 26 (2018), algorithm d-TTL. There a step is made at each request; here at each
    interval, with its hit ratio, which is the mean over its requests. Steps are in the knob's position, so in the
    logarithm of the lifetime, and begin at the lifetime in force.

    gain: share of the range per unit of missing hit ratio. decay: step k is `gain` / k ** decay; 0 goes on following
    traffic that changes, above 1/2 (at most 1) comes to rest where it does not.
    """

    name = "target TTL"

    def __init__(self, home: FloatArray, target: float, gain: float = 0.2, decay: float = 0.0) -> None:
        if not 0.0 <= target <= 1.0:
            raise InputError(f"target: got {target}, expected a hit ratio in [0, 1]")
        if not gain > 0.0:
            raise InputError(f"gain: got {gain}, expected above 0")
        self.home, self.target, self.gain, self.decay = home, target, gain, decay
        self.reset(0)

    def reset(self, seed: int) -> None:
        self._steps = 0

    def act(self, sight: Sight) -> FloatArray:
        position, hit_ratio = float(sight.positions[1]), float(sight.row[HIT_RATIO])
        if not math.isnan(hit_ratio):
            self._steps += 1
            position += self.gain * self._steps**-self.decay * (self.target - hit_ratio)
        return np.array([0.0, min(max(position, 0.0), 1.0) - self.home[1], 0.0])


GAINS = (0.05, 0.2, 0.8)


def fit_target_ttl(study: Study, grid: GhostGrid, target: float | None = None) -> TargetTtl:
    """target: by default the hit ratio of the best static setting over training traffic. The gain is the one of GAINS
    that is cheapest on validation traffic."""
    wanted = training_hit_ratio(study) if target is None else target
    candidates = [TargetTtl(home_of(study), wanted, gain) for gain in GAINS]
    return candidates[choose(study, grid, candidates).index]


def training_hit_ratio(study: Study) -> float:
    """Of the reference, over all requests of training traffic."""
    rows = study.reference.rows[study.training.start : study.training.stop]
    return float(column(rows, "hits").sum() / column(rows, "requests").sum())


def ttl_factor(requests_per_second: float, error_ratio: float) -> float:
    """clamp(1.5 - 2 x error ratio + 0.3 x log10(requests/s + 1), 0.5, 2.0)."""
    return min(max(1.5 - 2.0 * error_ratio + 0.3 * math.log10(requests_per_second + 1.0), 0.5), 2.0)


class FormulaTtl:
    """ttl_seconds = base_seconds x `ttl_factor` of the last interval; the other knobs stay home.

    A rule that is passed around among operators: longer lifetimes under load, shorter ones when errors pile up, looked
    at every 10 s. Here it is looked at once per interval, with the interval's mean rate. Replay records no errors:
    `slow_is_error` False takes none, True takes requests past the objective for their first token as errors.
    """

    name = "formula TTL"

    def __init__(
        self, home: FloatArray, knob: Knob, base_seconds: float, interval_seconds: float, slow_is_error: bool = False
    ) -> None:
        if not base_seconds > 0.0:
            raise InputError(f"base_seconds: got {base_seconds}, expected above 0")
        self.home, self.knob, self.base_seconds = home, knob, base_seconds
        self.interval_seconds, self.slow_is_error = interval_seconds, slow_is_error

    def reset(self, seed: int) -> None:
        """Nothing to forget."""

    def act(self, sight: Sight) -> FloatArray:
        factor = self.factor(sight.row)
        if factor is None:
            return np.array([0.0, sight.positions[1] - self.home[1], 0.0])
        return np.array([0.0, self.knob.position(self.base_seconds * factor) - self.home[1], 0.0])

    def factor(self, row: Array) -> float | None:
        """Of an interval's statistics; None where its requests are not known."""
        requests = float(row[REQUESTS])
        if math.isnan(requests):
            return None
        errors = float(row[SLOW]) / requests if self.slow_is_error and requests > 0 else 0.0
        return ttl_factor(requests / self.interval_seconds, errors)


def fit_formula_ttl(study: Study) -> FormulaTtl:
    """base_seconds: what makes the lifetime on training traffic, on geometric average, that of the best static setting.
    So the formula is judged by how it moves, not by a guessed base."""
    problem = study.world.problem
    seconds = problem.interval_seconds
    policy = FormulaTtl(home_of(study), problem.knobs.ttl_seconds, 1.0, seconds)
    rows = study.reference.rows[study.training.start : study.training.stop]
    factors = [factor for factor in map(policy.factor, rows) if factor is not None]
    base = study.reference.settings.ttl_seconds / math.exp(float(np.mean(np.log(factors))))
    return FormulaTtl(home_of(study), problem.knobs.ttl_seconds, base, seconds)


def home_of(study: Study) -> FloatArray:
    """Positions of the study's reference, shape (3,)."""
    return study.world.problem.knobs.positions(study.reference.settings)
