"""What a treatment changes, from the differences of two groups of keys interval by interval.

Group 1 minus group 0 differs by luck of the split, b, also when both are treated alike. With s = 0 while they are, 1
while group 1 is treated and -1 while group 0 is (a crossover), an interval's difference is

    y = b + s * effect + noise,    variance of the noise = v / weight

and the effect is estimated by weighted least squares: with a lead-in it is the difference of two means, with a
crossover half the difference of the two halves, with both what is best made of them. What luck remains in the lead-in
is thereby part of the standard error and does not go away however long the experiment is: that is what the information
sum w (s - mean s)^2 says. Each `stratum` has a b of its own: another share of the keys, another pair of blocks.

Neighbouring intervals are alike, so they are batched, and what autocorrelation is left between batches widens the
standard error by sqrt((1 + r) / (1 - r)). Each batch counts with the noise that it shows (H. White, Econometrica 48,
1980), since a quiet night may be noisier than its weight says.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.judging.confidence_sequence import log_evidence, standard_errors

Array = NDArray[Any]

CORRELATED = 0.1  # autocorrelation of neighbouring batches that is let be
LEAST_BATCHES = 6  # that a lead-in is cut into, whatever its autocorrelation
MOST_CORRELATED = 0.9  # autocorrelation that is reckoned with at most


@dataclass(frozen=True)
class Series:
    """difference, weight, sign (s of the module), stratum and run: shape (n,), in order of time. run: intervals of one
    stretch in which all but the noise stays as it is have the same number. Nothing is NaN; weights are positive."""

    difference: Array
    weight: Array
    sign: Array
    stratum: Array
    run: Array

    def __len__(self) -> int:
        return len(self.difference)

    def where(self, chosen: Array) -> Series:
        return Series(*(getattr(self, name)[chosen] for name in ("difference", "weight", "sign", "stratum", "run")))


@dataclass(frozen=True)
class Effect:
    """mean: of the effect; None where the data cannot tell it from luck of the split. low, high: of the confidence
    sequence, infinite while there is too little. batches: complete ones. autocorrelation: of neighbouring residuals,
    None with fewer than four batches. information: z of tuner/judging/confidence_sequence.py, after autocorrelation."""

    mean: float | None
    low: float
    high: float
    standard_error: float | None
    log_evidence: float
    information: float
    degrees: int
    batches: int
    autocorrelation: float | None


@dataclass(frozen=True)
class Assumed:
    """What is known beside the data. luck: standard deviation of b from past traffic; infinite where it is unknown,
    None where there is no b at all (s is then not centred: blocks of time). widened: what the standard error is
    multiplied by, for a luck that drifts. steady: luck does not drift, so what varies slowly is the effect itself, and
    the mean of it is asked for; otherwise whatever varies is taken for noise."""

    luck: float | None = math.inf
    widened: float = 1.0
    steady: bool = False


ASSUMED = Assumed()
NO_LUCK = Assumed(luck=None)
NO_EFFECT = Effect(None, -math.inf, math.inf, None, 0.0, 0.0, 0, 0, None)


def batch_length(lead_in: Series) -> int:
    """Intervals per batch: the fewest such that batches of a first-order autoregression with the lead-in's
    autocorrelation correlate by at most CORRELATED, and such that the lead-in has LEAST_BATCHES."""
    longest = max(len(lead_in) // LEAST_BATCHES, 1)
    if longest == 1:
        return 1
    r = max(neighbours(_centred(lead_in)), 0.0)
    for length in range(1, longest):
        if batch_autocorrelation(min(r, MOST_CORRELATED), length) <= CORRELATED:
            return length
    return longest


def batch_autocorrelation(r: float, length: int) -> float:
    """Of the means of neighbouring batches of a stationary autoregression of order one with coefficient r."""
    power = r**length
    return r * (1.0 - power) ** 2 / (length * (1.0 - r * r) - 2.0 * r * (1.0 - power))


def neighbours(residuals: Array) -> float:
    """Autocorrelation at lag one, 0 where nothing varies."""
    total = float(residuals @ residuals)
    return float(residuals[1:] @ residuals[:-1]) / total if total > 0 else 0.0


def batched(series: Series, length: int) -> Series:
    """Runs cut into batches of so many intervals: the weighted mean with the sum of the weights. What is left over at
    the end of a run joins its last batch, but for the run that is still going on, where it waits. A run that is over
    and shorter than a batch is one batch."""
    starts: list[int] = []
    waits = len(series)
    edges = [0, *(np.flatnonzero(np.diff(series.run)) + 1).tolist(), len(series)]
    for begin, end in itertools.pairwise(edges):
        whole = (end - begin) // length
        over = end < len(series)
        starts += [begin + length * number for number in range(max(whole, 1) if over else whole)]
        waits = end if over else begin + length * whole
    if not starts:
        return series.where(np.zeros(0, np.int64))
    first, kept = np.array(starts), series.weight[:waits]
    weight = np.add.reduceat(kept, first)
    total = np.add.reduceat(kept * series.difference[:waits], first)
    return Series(total / weight, weight, series.sign[first], series.stratum[first], series.run[first])


@dataclass(frozen=True)
class Noise:
    """How much batches vary for nothing. variance: estimated for each batch by itself, (n,). kurtosis: of such an
    estimate, its mean square over its squared mean. degrees: of freedom of them all. autocorrelation: of neighbours,
    None with fewer than four batches to see it in."""

    variance: Array
    kurtosis: float
    degrees: int
    autocorrelation: float | None

    @property
    def growth(self) -> float:
        """What autocorrelation multiplies the variance of a mean by."""
        r = min(max(self.autocorrelation or 0.0, 0.0), MOST_CORRELATED)
        return (1.0 + r) / (1.0 - r)


@dataclass(frozen=True)
class Fit:
    """Weighted least squares. pull: (n,), what each batch's difference is multiplied by; their sum over `information`
    is the effect. luck_pull: root of the sum of squares of what each stratum's assumed luck is multiplied by."""

    pull: Array
    information: float
    mean: float
    luck_pull: float


def effect(batches: Series, prior: float, alpha: float, assumed: Assumed = ASSUMED) -> Effect:
    """The effect with its confidence sequence. prior: `prior_information`, in units of the weights."""
    nothing = replace(NO_EFFECT, batches=len(batches))
    fit = _fit(batches, 0.0, assumed.luck is None)
    noise = _local(batches) if assumed.steady else _left_over(batches, fit, assumed)
    if noise is None:
        return nothing
    typical = float(np.mean(batches.weight * noise.variance))
    luck = assumed.luck if assumed.luck is not None and 0.0 < assumed.luck < math.inf else 0.0
    if luck:
        fit = _fit(batches, typical / luck**2, False)
    if not fit.information > 0:
        return nothing
    parts = fit.pull**2 * noise.variance
    # each batch's own noise where it makes the sum larger than the noise that their weights say: the more careful one
    uneven = float(parts.sum()) > typical * float(fit.pull**2 @ (1.0 / batches.weight))
    degrees = _degrees(parts, noise) if uneven else noise.degrees
    total = float(parts.sum()) if uneven else typical * float(fit.pull**2 @ (1.0 / batches.weight))
    total = (total + (fit.luck_pull * luck) ** 2) * assumed.widened**2 * noise.growth
    error = math.sqrt(total) / fit.information
    if not error > 0:
        return replace(nothing, mean=fit.mean, low=fit.mean, high=fit.mean, standard_error=0.0, degrees=degrees)
    information = typical / error**2
    reach = standard_errors(information, degrees, prior, alpha) * error
    evidence = log_evidence(fit.mean / error, information, degrees, prior)
    ends = fit.mean - reach, fit.mean + reach
    return Effect(fit.mean, *ends, error, evidence, information, degrees, len(batches), noise.autocorrelation)


def _left_over(series: Series, fit: Fit, assumed: Assumed) -> Noise | None:
    """By what the model leaves over: a luck or an effect that changes counts as noise. None without a degree of
    freedom."""
    degrees = len(series) - (0 if assumed.luck is None else len(_strata(series))) - 1
    if degrees < 1:
        return None
    rest = np.asarray(series.difference - series.sign * fit.mean, np.float64)
    if assumed.luck is not None:
        for inside in _strata(series):
            rest[inside] -= (series.weight[inside] @ rest[inside]) / series.weight[inside].sum()
    r = None if len(series) < 4 else neighbours(rest * np.sqrt(series.weight))
    return Noise(rest**2 * len(series) / degrees, 3.0, degrees, r)


def _local(series: Series) -> Noise | None:
    """By differences of neighbours inside runs (J. von Neumann, Annals of Mathematical Statistics 12, 1941), which an
    effect that changes slowly does not enter; autocorrelation by the lead-in, where there is no effect."""
    same = np.diff(series.run) == 0
    most = int(2 * same.sum() / 3)
    if most < 1:
        return None
    lead_in = series.where(series.sign == 0.0)
    r = None if len(lead_in) < 4 else neighbours(_centred(lead_in))
    halves = np.where(same, np.diff(series.difference) ** 2 / 2.0, 0.0)
    beside = np.convolve(same, (1.0, 1.0))
    alone = float(halves[same].mean())  # for a batch without a neighbour
    near = np.convolve(halves, (1.0, 1.0)) / np.maximum(beside, 1.0)
    variance = np.where(beside > 0, near, alone) / (1.0 - min(max(r or 0.0, 0.0), MOST_CORRELATED))
    return Noise(variance, 2.25, most, r)


def _degrees(parts: Array, noise: Noise) -> int:
    """Of a sum of estimated variances, by F. E. Satterthwaite (Biometrics 2, 1946): few where few parts make it up."""
    even = noise.kurtosis * float(parts.sum()) ** 2 / (len(parts) * float(parts @ parts))
    return max(min(int(noise.degrees * even), noise.degrees), 1)


def _centred(series: Series) -> Array:
    """About the weighted mean, times the root of the weight."""
    mean = float(series.weight @ series.difference) / series.weight.sum()
    return np.asarray((series.difference - mean) * np.sqrt(series.weight))


def _strata(series: Series) -> list[Array]:
    """Which observations are in each stratum."""
    if not len(series) or (series.stratum == series.stratum[0]).all():
        return [np.ones(len(series), np.bool_)] if len(series) else []
    return [series.stratum == stratum for stratum in np.unique(series.stratum)]


def _fit(series: Series, extra: float, uncentred: bool) -> Fit:
    """extra: weight of one more observation in each stratum, of no difference at s = 0: what luck is assumed to be."""
    w, s = series.weight, series.sign
    pull, luck_pull = np.asarray(w * s, np.float64), 0.0
    if not uncentred:
        for inside in _strata(series):
            mean = float(w[inside] @ s[inside]) / (w[inside].sum() + extra)
            pull[inside] -= w[inside] * mean
            luck_pull += (extra * mean) ** 2
    information = float(pull @ s)
    if not information > 1e-9 * w.sum():
        return Fit(pull, 0.0, 0.0, 0.0)
    return Fit(pull, information, float(pull @ series.difference) / information, math.sqrt(luck_pull))
