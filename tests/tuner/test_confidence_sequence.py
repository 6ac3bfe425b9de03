"""The sequence against confseq's C++, against its own definition, and how often it is wrong while somebody looks."""

from __future__ import annotations

import math

import numpy as np
import pytest

from caches.errors import InputError
from tuner.judging.confidence_sequence import log_evidence, prior_information, standard_errors

MANY = 1e12  # degrees of freedom: as if the variance were known
# confseq 0.0.11, src/confseq/uniform_boundaries.h compiled with g++ 12 and Boost 1.74: normal_mixture_bound(v, alpha,
# v_opt=50, alpha_opt=alpha, is_one_sided=false), a bound on the sum; and normal_log_mixture(2 sqrt(v), v, 50, 0.05)
CONFSEQ_BOUNDS = {
    (1.0, 0.05): 6.69438861707,
    (1.0, 0.01): 7.08840730202,
    (10.0, 0.05): 10.6375470066,
    (10.0, 0.01): 12.2137423782,
    (100.0, 0.05): 30.6147721887,
    (100.0, 0.01): 35.9560479913,
    (10_000.0, 0.05): 365.653646618,
    (10_000.0, 0.01): 411.846061337,
}
CONFSEQ_EVIDENCE = {1.0: 0.200302768188, 100.0: 0.468625695426}


@pytest.mark.parametrize(("information", "alpha"), CONFSEQ_BOUNDS)
def test_with_a_known_variance_it_is_the_normal_mixture_of_confseq(information: float, alpha: float) -> None:
    prior = prior_information(50.0, alpha)
    bound = standard_errors(information, MANY, prior, alpha) * math.sqrt(information)
    assert bound == pytest.approx(CONFSEQ_BOUNDS[information, alpha], rel=1e-9)


@pytest.mark.parametrize("information", CONFSEQ_EVIDENCE)
def test_with_a_known_variance_its_evidence_is_that_of_confseq(information: float) -> None:
    found = log_evidence(2.0, information, 1e8, prior_information(50.0, 0.05))
    assert found == pytest.approx(CONFSEQ_EVIDENCE[information], rel=1e-5)


@pytest.mark.parametrize("degrees", [8, 30, 100])
@pytest.mark.parametrize("information", [15.0, 40.0])
def test_at_its_edge_the_evidence_is_one_in_alpha(degrees: int, information: float) -> None:
    reach = standard_errors(information, degrees, 5.0, 0.05)
    assert log_evidence(reach, information, degrees, 5.0) == pytest.approx(math.log(20.0))
    assert log_evidence(-reach, information, degrees, 5.0) == pytest.approx(math.log(20.0))


def test_evidence_by_hand() -> None:
    """f = 1, z = 3, v = 2, t^2 = 6: k = 1/4, u = 3; e = 1/2 * ((1 + 3/4) / 4) ** (-3/2) = 1/2 * (16/7) ** 1.5."""
    assert log_evidence(math.sqrt(6.0), 3.0, 2, 1.0) == pytest.approx(math.log(0.5 * (16.0 / 7.0) ** 1.5))


def test_too_little_data_says_nothing() -> None:
    assert standard_errors(0.0, 10, 1.0, 0.05) == math.inf
    assert standard_errors(3.0, 0, 1.0, 0.05) == math.inf
    assert standard_errors(1.0, 1, 10.0, 0.001) == math.inf  # one degree of freedom cannot refute at one in a thousand
    assert log_evidence(3.0, 0.0, 10, 1.0) == 0.0


def test_wider_than_an_interval_of_one_moment_and_wider_with_fewer_degrees() -> None:
    widths = [standard_errors(20.0, degrees, 5.0, 0.05) for degrees in (1000, 20, 5)]
    assert 1.96 < widths[0] < widths[1] < widths[2]


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(InputError, match=r"alpha: got 1\.0"):
        standard_errors(1.0, 1, 1.0, 1.0)
    with pytest.raises(InputError, match=r"expected information: got 0\.0"):
        prior_information(0.0, 0.05)


@pytest.mark.parametrize("tails", ["normal", "t5"])
def test_whoever_looks_after_every_observation_is_rarely_wrong(tails: str) -> None:
    """2,000 means of zero, looked at 198 times each: at most 5 % are ever refuted, and a t-test would refute a third.
    Also where tails are heavier than the normal's."""
    random = np.random.default_rng(5)
    values = random.normal(size=(2000, 200)) if tails == "normal" else random.standard_t(5, size=(2000, 200))
    n = np.arange(1, 201)
    mean = values.cumsum(axis=1) / n
    variance = np.maximum((values**2).cumsum(axis=1) / n - mean**2, 1e-12) * n / np.maximum(n - 1, 1)
    t = np.abs(mean) / np.sqrt(variance / n)
    prior = prior_information(100.0, 0.05)
    edges = np.array([standard_errors(float(count), count - 1, prior, 0.05) for count in n])
    looked = slice(2, 200)
    ever = (t[:, looked] > edges[looked]).any(axis=1).mean()
    naive = (t[:, looked] > 1.96).any(axis=1).mean()
    assert ever <= 0.05
    assert naive > 0.3
