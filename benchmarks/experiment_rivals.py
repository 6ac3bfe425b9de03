"""What experiments are compared with in benchmarks/experiments.py: tests that others use.

Each says BETTER, WORSE or PENDING of the differences so far, treatment minus control, in which more is worse.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special, stats

from tuner.records import Outcome

Array = NDArray[Any]
CHECKS, FAILURES = (
    10,
    5,
)  # of a canary analysis as Flagger's documentation shows it: steps, and failed ones until rollback


def t_test(differences: Array, alpha: float = 0.05) -> Outcome:
    """Student's paired t-test, two-sided: right for one look at a time that was fixed beforehand."""
    n = len(differences)
    if n < 3:
        return Outcome.PENDING
    error = float(np.std(differences, ddof=1)) / n**0.5
    mean = float(np.mean(differences))
    if abs(mean) <= stats.t.ppf(1.0 - alpha / 2.0, n - 1) * error:
        return Outcome.PENDING
    return Outcome.BETTER if mean < 0 else Outcome.WORSE


def threshold_rule(differences: Array, tolerated: float = 0.0) -> Outcome:
    """A check an interval: failed where the treatment is worse by more than is tolerated. So many failures first:
    WORSE; the checks done first: BETTER."""
    failed = np.cumsum(differences[: CHECKS + FAILURES - 1] > tolerated)
    passed = np.arange(1, len(failed) + 1) - failed
    for bad, good in zip(failed, passed, strict=True):
        if bad >= FAILURES:
            return Outcome.WORSE
        if good >= CHECKS:
            return Outcome.BETTER
    return Outcome.PENDING


def quantile_log_evidence(control: Array, treatment: Array, level: float, tuned_for: float, alpha: float) -> float:
    """Of the sequential two-sample test of equal quantiles by S. R. Howard and A. Ramdas (Bernoulli 28, 2022) for
    independent requests: the least over x of the sum of both arms' mixtures. control, treatment: counts by bucket,
    shape (buckets,); x are the bounds between them. Above log(1 / alpha) the quantiles differ."""
    mixture = _Mixture(level, tuned_for, alpha)
    least = np.inf
    numbers = control.sum(), treatment.sum()
    if min(numbers) == 0:
        return 0.0
    shares = [np.cumsum(counts)[:-1] / number for counts, number in zip((control, treatment), numbers, strict=True)]
    # inside a bucket an arm's share below x may be anything between those at its ends: the least of both arms
    for bucket in range(len(control)):
        total = 0.0
        for share, number in zip(shares, numbers, strict=True):
            low = share[bucket - 1] if bucket else 0.0
            high = share[bucket] if bucket < len(share) else 1.0
            total += mixture.least(float(low), float(high), float(number))
        least = min(least, total)
    return least


class _Mixture:
    """The two-sided beta-binomial mixture of confseq (BetaBinomialMixture), g = level, h = 1 - level."""

    def __init__(self, level: float, tuned_for: float, alpha: float) -> None:
        v = tuned_for * level * (1.0 - level)
        rho = v / (2.0 * np.log(1.0 / alpha) + np.log(1.0 + 2.0 * np.log(1.0 / alpha)))
        self.g, self.h = level, 1.0 - level
        self.r = max(rho - self.g * self.h, 1e-3 * self.g * self.h)
        self.constant = special.betaln(self.r / self.g, self.r / self.h)

    def log_evidence(self, s: float, v: float) -> float:
        g, h = self.g, self.h
        return float(
            -(v + h * s) / h * np.log(g)
            - (v - g * s) / g * np.log(h)
            + special.betaln((self.r + v - g * s) / g, (self.r + v + h * s) / h)
            - self.constant
        )

    def least(self, low: float, high: float, number: float) -> float:
        """Over the shares below from low to high: the evidence is convex in the share, least near the level."""

        def at(share: float) -> float:
            return self.log_evidence((share - self.g) * number, self.g * self.h * number)

        best = optimize.minimize_scalar(at, bounds=(0.0, 1.0), method="bounded", options={"xatol": 1e-6}).x
        return at(min(max(float(best), low), high))
