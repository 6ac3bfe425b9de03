"""Change detection on what is observed: whether traffic is no longer what it was.

Each watched signal goes through an ADWIN detector of its own (A. Bifet, R. Gavaldà, Learning from time-changing data
with adaptive windowing, SIAM Data Mining 2007), which fires when the means of an older and a newer stretch differ by
more than chance allows. Chance is reckoned for independent values, and traffic has days and hours. So the detector gets
means over several intervals, each less the mean at the same time one season before, in deviations of calm traffic.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from river.drift import ADWIN

from caches.errors import InputError
from envs.observation import names

FloatArray = NDArray[np.float64]

# Not `new_key_ratio`: it falls as long as a trace is young.
WATCHED = ("qps", "entropy", "one_hit_ratio", "prompt_tokens", "output_tokens")
MIN_CHANGES = 8  # below, a deviation says nothing
DAY_SECONDS, BLOCK_SECONDS = 86_400.0, 3_600.0


@dataclass(frozen=True)
class DriftRule:
    """delta: ADWIN's bound on the chance of a false alarm, per signal. block: intervals averaged into one value.
    season: blocks after which traffic repeats, usually a day; 0 compares with nothing, for traffic without a day.
    signals: names of envs.observation.SIGNALS."""

    delta: float = 1e-4
    block: int = 6
    season: int = 0
    signals: tuple[str, ...] = WATCHED

    def __post_init__(self) -> None:
        if not 0.0 < self.delta < 1.0:
            raise InputError(f"delta: got {self.delta}, expected in (0, 1)")
        if self.block < 1:
            raise InputError(f"block: got {self.block}, expected at least 1 interval")
        if self.season < 0:
            raise InputError(f"season: got {self.season}, expected at least 0 blocks")
        unknown = [signal for signal in self.signals if f"known_{signal}" not in names()]
        if unknown or not self.signals:
            raise InputError(f"signals: got {', '.join(unknown) or 'none'}, expected names of observed signals")

    @staticmethod
    def daily(interval_seconds: float) -> DriftRule:
        """Blocks of about an hour, compared with the same hour a day before."""
        block = max(round(BLOCK_SECONDS / interval_seconds), 1)
        return DriftRule(block=block, season=max(round(DAY_SECONDS / (block * interval_seconds)), 1))


class Changes:
    """Turns observations, one per interval, into changes of block means against one season before."""

    def __init__(self, rule: DriftRule) -> None:
        self.rule = rule
        self._at = [(names().index(signal), names().index(f"known_{signal}")) for signal in rule.signals]
        self._block: list[FloatArray] = []
        self._before: deque[FloatArray] = deque(maxlen=rule.season)

    def add(self, observation: NDArray[np.float32]) -> FloatArray | None:
        """One value per signal when a block is full and there is one a season before; NaN where not known."""
        values = [float(observation[value]) if observation[known] else np.nan for value, known in self._at]
        self._block.append(np.array(values))
        if len(self._block) < self.rule.block:
            return None
        mean, self._block = mean_of_known(np.array(self._block)), []
        if not self.rule.season:
            return mean
        change = mean - self._before[0] if len(self._before) == self.rule.season else None
        self._before.append(mean)
        return change


def calm_deviation(observations: Iterable[NDArray[np.float32]], rule: DriftRule) -> FloatArray:
    """Standard deviation of each signal's changes in traffic that counts as unchanged, shape (signals,). observations:
    one per interval, in order. InputError where they are too few, or a signal never changed."""
    blocks = Changes(rule)
    changes = [change for seen in observations if (change := blocks.add(seen)) is not None]
    known = np.isfinite(changes).sum(axis=0) if changes else np.zeros(len(rule.signals))
    short = [signal for signal, count in zip(rule.signals, known, strict=True) if count < MIN_CHANGES]
    if short:
        raise InputError(
            f"calm traffic: got {int(known.min())} known changes of {', '.join(short)}, expected at least {MIN_CHANGES}"
        )
    deviation = np.nanstd(changes, axis=0)
    flat = [signal for signal, one in zip(rule.signals, deviation, strict=True) if one <= 0.0]
    if flat:
        raise InputError(f"calm traffic: got no change at all of {', '.join(flat)}, expected some")
    return np.asarray(deviation)


class DriftDetector:
    """Fed with one observation per interval. deviation: of `calm_deviation`."""

    def __init__(self, rule: DriftRule, deviation: FloatArray) -> None:
        self.rule, self.deviation = rule, deviation
        self.reset()

    def reset(self) -> None:
        """Forgets everything but what calm traffic is like."""
        self._changes = Changes(self.rule)
        delta = self.rule.delta
        self._detectors = [ADWIN(delta=delta, clock=1) for _ in self.rule.signals]  # type: ignore[no-untyped-call]

    def update(self, observation: NDArray[np.float32]) -> tuple[str, ...]:
        """Names of the signals that changed, as far as this interval shows; a signal that is not known shows nothing.

        observation: (envs.observation.SIZE,).
        """
        change = self._changes.add(observation)
        if change is None:
            return ()
        fired = []
        for signal, detector, value in zip(self.rule.signals, self._detectors, change / self.deviation, strict=True):
            if np.isfinite(value):
                detector.update(float(value))  # type: ignore[no-untyped-call]
                if detector.drift_detected:
                    fired.append(signal)
        return tuple(fired)


def fires_at_last(values: Iterable[float], delta: float) -> bool:
    """Whether a detector that is fed with these values, in order, reports a change at the last of them. What is not
    finite is passed over. So a detector can be had anew from values that were written down."""
    detector, fired = ADWIN(delta=delta, clock=1), False  # type: ignore[no-untyped-call]
    for value in values:
        fired = False
        if np.isfinite(value):
            detector.update(float(value))  # type: ignore[no-untyped-call]
            fired = bool(detector.drift_detected)
    return fired


def mean_of_known(values: FloatArray) -> FloatArray:
    """Over the first axis, NaN where nothing is known."""
    count = np.isfinite(values).sum(axis=0)
    total = np.where(np.isfinite(values), values, 0.0).sum(axis=0)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)
