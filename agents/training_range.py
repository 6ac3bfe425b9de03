"""How far an observation lies from those that a policy was trained on.

An entry's range is what all but the most extreme share of training intervals stayed in, on either side. What lies
beyond is counted in deviations of training traffic, and the largest over all entries is the distance. Only entries that
tell of traffic count: signals while they are known, and what-if savings. The settings are the policy's own doing, the
clock goes round, and a signal that is missing is not far away but missing.

A range is kept in the bundle of the policy, as arrays beside its weights.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agents.actor import Actor, Scaler, frozen_array
from agents.bundle import PolicyBundle
from agents.policy import ControlPolicy
from agents.rollout import look_around
from agents.study import Study
from caches.errors import InputError
from envs.observation import CLOCK, LIMIT, SETTINGS, SIGNALS, SIZE, names

Array = NDArray[Any]
FloatArray = NDArray[np.float64]

EXTREME = 0.005  # share of training intervals beyond either end of the range
LEAST_DEVIATION = 0.1  # entries are scaled to about 1: what lies nearer than this is the same to a network
SCALER_REACH = 3.0  # deviations: the range where only a scaler tells of training traffic
LOW, HIGH, DEVIATION, KNOWN = "range.low", "range.high", "range.deviation", "range.known"

_SIGNALS = len(SIGNALS)
WHATIF = slice(2 * _SIGNALS + len(SETTINGS) + len(CLOCK), SIZE)


@dataclass(frozen=True)
class Distance:
    """deviations: how far the entry `name` lies beyond low to high, 0 inside. value: it."""

    deviations: float
    name: str
    value: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class TrainingRange:
    """low, high, deviation: float64 (envs.observation.SIZE,). known: float64 (len(SIGNALS),), in which share of
    training intervals each signal was known. Raises InputError where shapes or numbers are not of this kind."""

    low: FloatArray
    high: FloatArray
    deviation: FloatArray
    known: FloatArray

    def __post_init__(self) -> None:
        for name, size in (("low", SIZE), ("high", SIZE), ("deviation", SIZE), ("known", _SIGNALS)):
            array = frozen_array(getattr(self, name), np.float64)
            object.__setattr__(self, name, array)
            if array.shape != (size,) or not np.isfinite(array).all():
                raise InputError(f"training range, {name}: got shape {array.shape}, expected {size} finite numbers")
        if not (self.low <= self.high).all() or not (self.deviation > 0.0).all():
            raise InputError("training range: expected low up to high, and deviations above 0")

    def distance(self, observation: NDArray[np.float32]) -> Distance:
        """Of the entry that is farthest out. InputError where the shape is wrong or an entry is not finite."""
        seen = np.asarray(observation, np.float64)
        if seen.shape != (SIZE,) or not np.isfinite(seen).all():
            raise InputError(f"observation: got shape {seen.shape}, expected {SIZE} finite entries")
        beyond = np.maximum(np.maximum(self.low - seen, seen - self.high), 0.0) / self.deviation
        beyond[~_counts(seen)] = 0.0
        far = int(np.argmax(beyond))
        return Distance(float(beyond[far]), names()[far], float(seen[far]), float(self.low[far]), float(self.high[far]))

    def missing(self, observation: NDArray[np.float32], always: float = 0.99) -> tuple[str, ...]:
        """Names of the signals that are not known here and were in at least the share `always` of training."""
        known = np.asarray(observation)[_SIGNALS : 2 * _SIGNALS] > 0.0
        return tuple(names()[i] for i in range(_SIGNALS) if self.known[i] >= always and not known[i])

    def arrays(self) -> dict[str, FloatArray]:
        """By the names that `range_of_bundle` reads."""
        return {LOW: self.low, HIGH: self.high, DEVIATION: self.deviation, KNOWN: self.known}


def range_of(observations: NDArray[np.float32]) -> TrainingRange:
    """From what was observed in training intervals, shape (intervals, SIZE). A signal that was never known has the
    range 0 to 0: one that a policy never saw is far away. InputError where there are no intervals."""
    seen = np.array(observations, np.float64)
    if seen.ndim != 2 or seen.shape[1] != SIZE or not len(seen):
        raise InputError(f"observations: got shape {seen.shape}, expected (intervals, {SIZE})")
    known = seen[:, _SIGNALS : 2 * _SIGNALS] > 0.0
    low, high, deviation = np.zeros(SIZE), np.zeros(SIZE), np.full(SIZE, LEAST_DEVIATION)
    for entry in range(SIZE):
        values = seen[known[:, entry], entry] if entry < _SIGNALS else seen[:, entry]
        if len(values):
            low[entry], high[entry] = np.quantile(values, (EXTREME, 1.0 - EXTREME))
            deviation[entry] = max(float(values.std()), LEAST_DEVIATION)
    return TrainingRange(low, high, deviation, known.mean(axis=0))


def range_of_scaler(scaler: Scaler) -> TrainingRange:
    """What the running normalisation of a policy says of its training."""
    deviation = np.maximum(scaler.std, LEAST_DEVIATION)
    reach = SCALER_REACH * deviation
    known = scaler.mean[_SIGNALS : 2 * _SIGNALS]
    return TrainingRange(scaler.mean - reach, scaler.mean + reach, deviation, known)


def range_of_bundle(bundle: PolicyBundle) -> TrainingRange | None:
    """None where the bundle does not tell. InputError where its arrays are damaged."""
    found = [bundle.weights.get(name) for name in (LOW, HIGH, DEVIATION, KNOWN)]
    if all(array is not None for array in found):
        return TrainingRange(*found)  # type: ignore[arg-type]
    if bundle.scaler is not None and len(bundle.scaler.mean) == SIZE:
        return range_of_scaler(bundle.scaler)
    return None


def observed(study: Study, policy: ControlPolicy, part: range) -> NDArray[np.float32]:
    """What the policy sees while it acts on a part of the traffic whose beginning is marked; (intervals, SIZE)."""
    control = study.control(1, len(part))
    control.reset(0, study.reference.checkpoint(part.start))
    policy.reset(0)
    seen = np.empty((len(part), SIZE), np.float32)
    for step in range(len(part)):
        sight = look_around(control, None)[0]
        seen[step] = sight.observation
        control.step(np.clip(policy.act(sight), -1.0, 1.0)[None, :])
    return seen


def ranged(actor: Actor, training: TrainingRange) -> dict[str, Array]:
    """The arrays of a policy for its bundle, its range beside its layers. What the actor cannot see, because its first
    layer does not weigh it, has no bounds: it cannot lead astray."""
    unseen = ~np.any(actor.weights[0][0] != 0.0, axis=0)
    low, high = np.where(unseen, -LIMIT, training.low), np.where(unseen, LIMIT, training.high)
    return actor.arrays() | replace(training, low=low, high=high).arrays()


def _counts(seen: FloatArray) -> NDArray[np.bool_]:
    counts = np.zeros(SIZE, bool)
    counts[:_SIGNALS] = seen[_SIGNALS : 2 * _SIGNALS] > 0.0
    counts[WHATIF] = True
    return counts
