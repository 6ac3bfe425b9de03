"""Whether the arms got the share of requests that they were meant to get. If not, something is wrong with the split,
and nothing that is compared can be trusted.

Requests come by key and keys are split, so an arm's share of the requests is not binomial: with share p of the keys it
has the variance p (1 - p) * sum of the squares of each key's part of the requests, the concentration of the traffic. On
traffic with a key that makes 3 % of all requests that is a deviation of 1.5 points whatever their number.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from caches.errors import InputError
from tuner.judging.confidence_sequence import prior_information
from tuner.judging.paired import NO_LUCK, Series, batched, effect

Array = NDArray[Any]

ALPHA = 0.001  # both for the noise over time and for the luck of the split


@dataclass(frozen=True)
class Ratio:
    """expected, found: the treatment arm's share of the requests. allowed: how far luck of the split may take it.
    low, high: confidence sequence of the share that it tends to. mismatch: nothing in it is allowed."""

    expected: float
    found: float
    allowed: float
    low: float
    high: float
    mismatch: bool


def concentration(requests_by_key: Array) -> float:
    """Sum of the squares of each key's part of the requests, in (0, 1]; of past traffic about as long as the
    experiment is meant to be. requests_by_key: (keys,), not negative."""
    weight = np.asarray(requests_by_key, np.float64)
    total = weight.sum()
    if not total > 0:
        raise InputError("concentration: got no requests, expected some")
    return float(weight @ weight / total**2)


def sample_ratio(requests: Array, share: float, concentrated: float, batch: int = 1) -> Ratio | None:
    """requests: (intervals, 2), of the control and the treatment arm. share: of the keys that the treatment owns.
    None where nobody requested anything."""
    total = requests.sum(axis=1)
    used = total > 0
    if not used.any():
        return None
    part = requests[used, 1] / total[used]
    ones = np.ones(len(part))
    weight = total[used] / total[used].mean()
    series = batched(Series(part - share, weight, ones, 0 * ones, 0 * ones), batch)
    found = effect(series, prior_information(len(part), ALPHA), ALPHA, NO_LUCK)
    allowed = float(stats.norm.isf(ALPHA / 2.0)) * math.sqrt(share * (1.0 - share) * concentrated)
    mismatch = found.low > allowed or found.high < -allowed
    mean = float(requests[used, 1].sum() / total[used].sum())
    return Ratio(share, mean, allowed, max(share + found.low, 0.0), min(share + found.high, 1.0), mismatch)
