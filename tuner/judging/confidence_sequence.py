"""How sure a mean is while somebody looks after every observation: a confidence sequence for one coefficient.

A 95 % confidence interval is right at one moment that was fixed beforehand. Who looks again and again, and stops when
it excludes zero, is wrong far more often. A confidence sequence holds at all moments at once, so one may stop any time.

For observations that are Gaussian around a linear model, with their common variance and any nuisance coefficients
unknown, and a prior N(0, variance / f) on the coefficient of interest, the Bayes factor against zero is a function of
its t statistic t, its information z (the standard error is residual deviation / sqrt(z)) and the degrees of freedom v:

    e = sqrt(f / (f + z)) * ((1 + f / (f + z) * t^2 / v) / (1 + t^2 / v)) ** (-(v + 1) / 2)

Under a coefficient of zero it exceeds 1 / alpha at any time at all with probability at most alpha: M. Lindon, D. Ham,
M. Tingley, I. Bojinov, Anytime-valid inference in linear models with applications to regression-adjusted causal
inference, arXiv 2210.08589; for one mean it is T. L. Lai's t sequence (Annals of Statistics 4, 1976). The coefficients
that would not be refuted form the sequence. With many degrees of freedom it becomes H. Robbins' normal mixture, which
is what the asymptotic confidence sequences of I. Waudby-Smith, D. Arbour, R. Sinha, E. Kennedy, A. Ramdas (Annals of
Statistics 52, 2024) use for means of any distribution with a little more than a variance.

Own code, because the two libraries do not fit: confseq has no wheels and its sources do not compile against
Python 3.11, and expectation wants Python 3.12. A test compares it with confseq's C++.
"""

from __future__ import annotations

import math

from caches.errors import InputError


def prior_information(expected: float, alpha: float) -> float:
    """The f of the module for which the sequence is about narrowest at the `expected` information: S. R. Howard, A.
    Ramdas, J. McAuliffe, J. Sekhon, Time-uniform, nonparametric, nonasymptotic confidence sequences, Annals of
    Statistics 49 (2021). It has to be fixed before the data is seen; being wrong costs width, not validity."""
    if not expected > 0:
        raise InputError(f"expected information: got {expected}, expected above 0")
    return expected / (2.0 * math.log(1.0 / _checked(alpha)) + math.log(1.0 + 2.0 * math.log(1.0 / alpha)))


def log_evidence(t: float, information: float, degrees: float, prior: float) -> float:
    """Logarithm of e of the module: above log(1 / alpha) a coefficient of zero is refuted. 0 without information."""
    if not (information > 0 and degrees > 0):
        return 0.0
    k, u = prior / (prior + information), t * t / degrees
    return 0.5 * math.log(k) - 0.5 * (degrees + 1.0) * (math.log1p(k * u) - math.log1p(u))


def standard_errors(information: float, degrees: float, prior: float, alpha: float) -> float:
    """Half the width of the sequence now, in standard errors: where `log_evidence` is log(1 / alpha). Infinite while
    there is too little to refute anything."""
    _checked(alpha)
    if not (information > 0 and degrees > 0):
        return math.inf
    k = prior / (prior + information)
    least = math.log(alpha * alpha * k) / (degrees + 1.0)
    above = math.exp(least) - k
    return math.sqrt(-degrees * math.expm1(least) / above) if above > 0 else math.inf


def _checked(alpha: float) -> float:
    if not 0.0 < alpha < 1.0:
        raise InputError(f"alpha: got {alpha}, expected between 0 and 1")
    return alpha
