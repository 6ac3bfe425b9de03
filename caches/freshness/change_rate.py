"""How often answers change, from answers that were asked for again: each tells its age, and whether it had changed.

That is current status data: nobody saw the change, only on which side of it the look fell. Under an exponential time to
the next change with rate r, an answer of age a has changed with the chance 1 - exp(-r a), so the likelihood of pairs is
known and has one maximum. The interval is exact for that model, whatever the ages: the number of changed answers is a
sum of independent coins whose chances all rise with r, so its ends are the rates at which as few, or as many, would be
a surprise of half the doubt. With equal ages it is Clopper's and Pearson's interval.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from caches.errors import InputError

Array = NDArray[Any]
CONFIDENCE = 0.95
SMALLEST = 1e-12  # changes in a mean age that no interval ends below, unless at 0


@dataclass(frozen=True)
class Look:
    """An answer that was asked for again. age_seconds: from its write to the look, above 0."""

    age_seconds: float
    changed: bool


@dataclass(frozen=True)
class ChangeRate:
    """Per second. rate: the most likely; endless where everything had changed. low, high: the interval; high is endless
    where everything had changed. looks, changed: what it rests on. longest_age_seconds: among them."""

    rate: float
    low: float
    high: float
    looks: int
    changed: int
    longest_age_seconds: float


def change_rate(looks: Sequence[Look], confidence: float = CONFIDENCE) -> ChangeRate | None:
    """None without looks. Raises InputError for an age that is not above 0."""
    if not looks:
        return None
    ages = np.array([look.age_seconds for look in looks], np.float64)
    if not (np.isfinite(ages).all() and (ages > 0.0).all()):
        raise InputError(f"age_seconds: got {ages.min()}, expected above 0")
    changed = np.array([look.changed for look in looks], bool)
    low, high = interval(ages, int(changed.sum()), confidence)
    return ChangeRate(_most_likely(ages, changed), low, high, len(ages), int(changed.sum()), float(ages.max()))


def interval(ages: Array, changed: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Of the rate, where so many of the answers of these ages had changed."""
    doubt, mean = (1.0 - confidence) / 2.0, float(ages.mean())
    relative = ages / mean

    def at_most(scale: float, count: int) -> float:
        return _at_most(-np.expm1(-scale * relative), count)

    low, high = 0.0, math.inf
    if changed > 0:
        low = _root(lambda scale: (1.0 - at_most(scale, changed - 1)) - doubt) / mean
    if changed < len(ages):
        high = _root(lambda scale: doubt - at_most(scale, changed)) / mean
    return low, high


def safe_age_seconds(rate: float, stale_budget: float) -> float:
    """The lifetime at which the expected share of stale answers among hits is the budget: 1 - (1 - exp(-x)) / x with
    x = rate lifetime, for hits at any age below it alike. Endless where nothing changes, 0 where everything does."""
    if not 0.0 < stale_budget < 1.0:
        raise InputError(f"stale_budget: got {stale_budget}, expected above 0, below 1")
    if rate == 0.0:
        return math.inf
    changes = float(brentq(lambda x: _stale_share(x) - stale_budget, 1e-9, 2.0 / (1.0 - stale_budget)))
    return changes / rate


def _stale_share(changes: float) -> float:
    return 1.0 + math.expm1(-changes) / changes


def _most_likely(ages: Array, changed: Array) -> float:
    """The root of the score, which falls from positive to negative as the rate rises."""
    if changed.all():
        return math.inf
    if not changed.any():
        return 0.0
    mean = float(ages.mean())
    seen, unseen = ages[changed] / mean, float(ages[~changed].sum()) / mean

    def score(scale: float) -> float:
        with np.errstate(over="ignore"):
            return float((seen / np.expm1(scale * seen)).sum()) - unseen

    upper = 1.0
    while score(upper) > 0.0:
        upper *= 2.0
    return float(brentq(score, SMALLEST, upper)) / mean


def _root(rising: Callable[[float], float]) -> float:
    """Of a function that rises with the rate, in changes per mean age."""
    upper = 1.0
    while rising(upper) < 0.0:
        upper *= 2.0
    return float(brentq(rising, SMALLEST, upper, xtol=1e-14))


def _at_most(chances: Array, count: int) -> float:
    """The chance that at most so many of these coins fall on heads, by multiplying their polynomials pairwise."""
    rows = np.stack([1.0 - chances, chances], axis=1)
    while len(rows) > 1:
        if len(rows) % 2:
            rows = np.concatenate([rows, np.eye(1, rows.shape[1])])
        size = 2 * rows.shape[1] - 1
        if size <= 64:
            rows = _multiplied(rows[0::2], rows[1::2])
        else:
            rows = np.fft.irfft(np.fft.rfft(rows[0::2], size) * np.fft.rfft(rows[1::2], size), size)
    return float(min(max(rows[0][: count + 1].sum(), 0.0), 1.0))


def _multiplied(one: Array, other: Array) -> Array:
    """Polynomials row by row; short ones, exactly."""
    product = np.zeros((len(one), one.shape[1] + other.shape[1] - 1))
    for place in range(one.shape[1]):
        product[:, place : place + other.shape[1]] += one[:, place : place + 1] * other
    return product
