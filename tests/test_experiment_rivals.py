"""The tests that experiments are measured against in benchmarks/experiments.py, by hand and against confseq."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks.experiment_rivals import quantile_log_evidence, t_test, threshold_rule
from tuner.records import Outcome

# confseq 0.0.11 compiled with g++ 12 and Boost 1.74: p of QuantileABTest(level, t_opt=1000, alpha_opt=0.05), a a
# permutation of 0 to 2999 and b = 1.05 a
CONFSEQ = {0.9: 6.30158756299e-06, 0.99: 2.43043201538e-11}


@pytest.mark.parametrize("level", CONFSEQ)
def test_the_sequential_quantile_test_is_that_of_confseq(level: float) -> None:
    control = np.arange(3000.0)
    treatment = control * 1.05
    bounds = np.unique(np.concatenate((control, treatment))) + 1e-9
    edges = np.concatenate(([-np.inf], bounds, [np.inf]))
    counts = [np.histogram(values, edges)[0] for values in (control, treatment)]
    found = quantile_log_evidence(counts[0], counts[1], level, 1000.0, 0.05)
    assert found == pytest.approx(-math.log(CONFSEQ[level]), rel=1e-6)


def test_equal_quantiles_are_not_refuted() -> None:
    counts = np.array([900, 90, 10])
    assert quantile_log_evidence(counts, counts, 0.99, 1000.0, 0.05) < 0.0
    assert quantile_log_evidence(counts, 0 * counts, 0.99, 1000.0, 0.05) == 0.0


def test_a_t_test_by_hand() -> None:
    """Mean 2, deviation 1, error 1 / sqrt(3): t = 3.46, below 4.30 of two degrees; ten times that is above."""
    assert t_test(np.array([1.0, 2.0, 3.0])) is Outcome.PENDING
    assert t_test(np.array([19.0, 20.0, 21.0])) is Outcome.WORSE
    assert t_test(np.array([-19.0, -20.0, -21.0])) is Outcome.BETTER


def test_a_threshold_rule_counts_checks() -> None:
    assert threshold_rule(np.full(9, -1.0)) is Outcome.PENDING
    assert threshold_rule(np.full(10, -1.0)) is Outcome.BETTER
    assert threshold_rule(np.full(5, 1.0)) is Outcome.WORSE
    assert threshold_rule(np.array([1.0, -1.0] * 5)) is Outcome.WORSE
    assert threshold_rule(np.full(5, 1.0), tolerated=2.0) is Outcome.PENDING
