"""Knobs: what can be tuned, in which range, and how far one control interval may move it.

A position is a knob's place in its range as a number in [0, 1], linear or logarithmic in the value. Limits
(range and largest step) hold here, by construction, so they bind in training exactly as they do live.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from caches.errors import InputError

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class KnobSettings:
    """A full assignment of all knobs. Partial assignments do not exist.

    cache_size: capacity in bytes. ttl_seconds: lifetime of an entry. warmup_ratio: share, in [0, 1], of the
    ranked warm-up candidates that are fetched ahead at the start of a control interval. eviction_policy: beside the
    knobs, by its name in caches.policies.catalog; None: the one that the cache was made with.
    """

    cache_size: float
    ttl_seconds: float
    warmup_ratio: float
    eviction_policy: str | None = None

    def __post_init__(self) -> None:
        for name in KNOB_NAMES:
            if not math.isfinite(getattr(self, name)):
                raise InputError(f"{name}: got {getattr(self, name)!r}, expected a finite number")
        if self.eviction_policy is not None and not isinstance(self.eviction_policy, str):
            raise InputError(f"eviction_policy: got {self.eviction_policy!r}, expected a name, or None")

    def as_array(self) -> FloatArray:
        """Shape (3,), in the order of KNOB_NAMES."""
        return np.array([self.cache_size, self.ttl_seconds, self.warmup_ratio])

    def numbers(self) -> dict[str, float]:
        """The knobs by name, without the eviction policy."""
        return {name: getattr(self, name) for name in KNOB_NAMES}

    @staticmethod
    def from_array(values: FloatArray) -> KnobSettings:
        """From shape (3,), in the order of KNOB_NAMES."""
        size, ttl, warmup = (float(value) for value in values)
        return KnobSettings(size, ttl, warmup)


KNOB_NAMES = ("cache_size", "ttl_seconds", "warmup_ratio")


@dataclass(frozen=True)
class Knob:
    """One tunable. `max_step` is the largest change per control interval, as a share of the range."""

    name: str
    unit: str
    low: float
    high: float
    default: float
    max_step: float
    scale: Literal["log", "linear"]

    def __post_init__(self) -> None:
        if self.scale == "log" and self.low <= 0:
            raise InputError(f"{self.name}.low: got {self.low}, expected above 0 on a log scale")
        if not self.low < self.high:
            raise InputError(f"{self.name}: got range {self.low} to {self.high}, expected low < high")
        if not self.low <= self.default <= self.high:
            raise InputError(f"{self.name}.default: got {self.default}, expected within {self.low} to {self.high}")
        if not 0 < self.max_step <= 1:
            raise InputError(f"{self.name}.max_step: got {self.max_step}, expected in (0, 1]")

    def within(self, value: float) -> float:
        """The nearest value in the range."""
        return min(max(value, self.low), self.high)

    def position(self, value: float) -> float:
        """Value to position in [0, 1]; values outside the range are clamped to it."""
        value = self.within(value)
        if self.scale == "log":
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def value(self, position: float) -> float:
        """Position to value; positions outside [0, 1] are clamped to it. The ends are exact."""
        if position <= 0:
            return self.low
        if position >= 1:
            return self.high
        if self.scale == "log":
            return float(self.low * (self.high / self.low) ** position)
        return self.low + position * (self.high - self.low)


@dataclass(frozen=True)
class KnobSpace:
    """The knobs of one cache, in the order of KNOB_NAMES."""

    cache_size: Knob
    ttl_seconds: Knob
    warmup_ratio: Knob

    def __post_init__(self) -> None:
        for name in KNOB_NAMES:
            if getattr(self, name).name != name:
                raise InputError(f"knob space: got {getattr(self, name).name!r} in place of {name!r}")

    @property
    def knobs(self) -> tuple[Knob, Knob, Knob]:
        return self.cache_size, self.ttl_seconds, self.warmup_ratio

    @property
    def max_steps(self) -> FloatArray:
        """Shape (3,): largest change of position per control interval."""
        return np.array([knob.max_step for knob in self.knobs])

    def default(self) -> KnobSettings:
        return KnobSettings.from_array(np.array([knob.default for knob in self.knobs]))

    def positions(self, settings: KnobSettings) -> FloatArray:
        """Shape (3,), each in [0, 1]."""
        values = settings.as_array()
        return np.array([knob.position(value) for knob, value in zip(self.knobs, values, strict=True)])

    def settings(self, positions: FloatArray) -> KnobSettings:
        """Inverse of `positions`; clamps to the range."""
        values = [knob.value(float(p)) for knob, p in zip(self.knobs, positions, strict=True)]
        return KnobSettings.from_array(np.array(values))

    def values(self, positions: FloatArray) -> FloatArray:
        """What `settings` says, for many positions at once: shape (..., 3) to the same shape."""
        low, high = np.array([(knob.low, knob.high) for knob in self.knobs]).T
        log = np.array([knob.scale == "log" for knob in self.knobs])
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            inside = np.where(log, low * (high / low) ** positions, low + positions * (high - low))
        return np.asarray(np.where(positions <= 0.0, low, np.where(positions >= 1.0, high, inside)))

    def move(self, home: FloatArray, here: FloatArray, action: FloatArray) -> FloatArray:
        """Positions after the limits: towards `home` + action, clamped to the range, by at most each largest step.

        home: (3,), positions of the reference. here, action: (..., 3), current positions and offsets wished.
        """
        wish = np.clip(home + np.asarray(action, np.float64), 0.0, 1.0)
        return np.asarray(np.clip(wish, here - self.max_steps, here + self.max_steps))

    def decide(self, action: FloatArray, reference: KnobSettings, current: KnobSettings) -> KnobSettings:
        """What an action asks for, after the limits.

        action: shape (3,) in [-1, 1]; the wished position is the reference's plus the action. The result
        moves from `current` towards the wish by at most each knob's largest step and stays in range.
        """
        home = self.positions(reference)
        there = self.move(home, self.positions(current), action)
        values = np.array([knob.value(float(position)) for knob, position in zip(self.knobs, there, strict=True)])
        lows, highs = np.array([(knob.low, knob.high) for knob in self.knobs]).T
        # the way to a position and back rounds: the reference itself is given back to the last bit
        return KnobSettings.from_array(np.where(there == home, np.clip(reference.as_array(), lows, highs), values))
