"""How sure a mean is: over time by a block bootstrap, over seeds by Student's t.

Costs of neighbouring control intervals are not independent (the cache remembers, the day has a shape), so resampling
single intervals would promise too much. The moving-block bootstrap resamples stretches of them: H. R. Künsch, The
jackknife and the bootstrap for general stationary observations, Annals of Statistics 17 (1989).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Array = NDArray[Any]

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Estimate:
    """A mean with the bounds of its confidence interval; low <= mean <= high."""

    mean: float
    low: float
    high: float
    confidence: float = CONFIDENCE


@dataclass(frozen=True)
class Spread:
    """A figure over seeds. low, high: 95 % t-interval of the mean; std: sample deviation; None with fewer than two."""

    seeds: int
    mean: float
    low: float | None
    high: float | None
    std: float | None
    smallest: float
    largest: float


@dataclass(frozen=True)
class Resampling:
    """How to bootstrap. block_intervals: None chooses the length by `block_length`."""

    resamples: int = 2000
    seed: int = 0
    block_intervals: int | None = None


def spread(values: Sequence[float]) -> Spread | None:
    """None without values."""
    if not values:
        return None
    n, mean = len(values), float(np.mean(values))
    if n < 2:
        return Spread(n, mean, None, None, None, mean, mean)
    std = float(np.std(values, ddof=1))
    reach = float(stats.t.ppf(0.5 + CONFIDENCE / 2, n - 1)) * std / math.sqrt(n)
    return Spread(n, mean, mean - reach, mean + reach, std, float(min(values)), float(max(values)))


def block_length(series: Array) -> int:
    """Intervals per block that suit a series, shape (n,): from n ** (1/3) to n / 4.

    The block bootstrap's variance is that of a Bartlett kernel of the block's width (Künsch 1989). Its best width for
    an autoregression of order one with coefficient r is (1.5 n (2 r / (1 - r^2))^2) ** (1/3) (D. W. K. Andrews,
    Econometrica 59, 1991); r is estimated by the autocorrelation of neighbours.
    """
    n = len(series)
    longest = max(n // 4, 1)
    least: int = min(math.ceil(n ** (1 / 3)), longest)
    centred = series - series.mean()
    power = float(centred @ centred)
    if power <= 0:
        return least
    r = float(np.clip(centred[1:] @ centred[:-1] / power, 0.0, 0.99))
    wide: int = math.ceil((1.5 * n * (2 * r / (1 - r * r)) ** 2) ** (1 / 3))
    return min(max(wide, least), longest)


def ratio_estimate(numerator: Array, denominator: Array, block: int, resampling: Resampling) -> Estimate:
    """sum(numerator) / sum(denominator) over intervals, both shape (n,), with its interval.

    Numerator and denominator of an interval are drawn together. The resampled ratios are centred at the ratio, because
    blocks reach the ends of the series less often than its middle, and the percentiles are widened from the normal's
    to Student's t with one degree less than there are blocks (T. C. Hesterberg, American Statistician 69, 2015).
    """
    n = len(numerator)
    ratio = float(numerator.sum() / denominator.sum())
    draws = _resampled(numerator, block, resampling) / _resampled(denominator, block, resampling)
    independent = max(n / block, 2.0)
    t = float(stats.t.ppf(0.5 + CONFIDENCE / 2, independent - 1))
    tail = float(stats.norm.sf(t * math.sqrt(independent / (independent - 1))))
    low, high = ratio + np.quantile(draws - draws.mean(), [tail, 1 - tail])
    return Estimate(ratio, min(float(low), ratio), max(float(high), ratio))


def _resampled(values: Array, block: int, resampling: Resampling) -> Array:
    """Sums of resampled series, shape (resamples,). The last block is cut so that each series has n intervals."""
    n = len(values)
    blocks = math.ceil(n / block)
    starts = np.random.default_rng(resampling.seed).integers(0, n - block + 1, (resampling.resamples, blocks))
    upto = np.concatenate(([0.0], np.cumsum(values)))
    lengths = np.full(blocks, block)
    lengths[-1] = n - (blocks - 1) * block
    return np.asarray((upto[starts + lengths] - upto[starts]).sum(axis=1))
