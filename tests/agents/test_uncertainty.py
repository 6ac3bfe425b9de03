"""Intervals over time and over seeds: exact where they can be, else how often they hold the truth."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.signal import lfilter

from agents.uncertainty import Estimate, Resampling, Spread, block_length, ratio_estimate, spread


def autoregression(r: float, n: int, rng: np.random.Generator) -> np.ndarray:
    """x[t] = r x[t - 1] + noise, mean 1."""
    return lfilter([1.0], [1.0, -r], rng.normal(size=n + 200))[200:] + 1.0


def test_spread_over_three_seeds() -> None:
    """1, 2, 3: deviation 1, and 4.302653 is the 97.5 % point of t with two degrees of freedom."""
    found = spread([1.0, 2.0, 3.0])
    assert found is not None
    reach = 4.302653 / np.sqrt(3.0)
    assert (found.seeds, found.mean, found.std, found.smallest, found.largest) == (3, 2.0, 1.0, 1.0, 3.0)
    assert found.low == pytest.approx(2.0 - reach, abs=1e-6)
    assert found.high == pytest.approx(2.0 + reach, abs=1e-6)


def test_one_seed_has_no_interval_and_none_has_nothing() -> None:
    assert spread([0.5]) == Spread(1, 0.5, None, None, None, 0.5, 0.5)
    assert spread([]) is None


@pytest.mark.parametrize("block", [1, 3, 7, 20])
def test_constant_difference_has_no_width(block: int) -> None:
    """3 per request whatever the number of requests: every resample gives 3."""
    requests = np.arange(1.0, 21.0)
    assert ratio_estimate(3.0 * requests, requests, block, Resampling(200)) == Estimate(3.0, 3.0, 3.0)


def test_ratio_is_weighted_by_the_denominator() -> None:
    """(1 + 9) / (1 + 3), not the mean of 1 and 3."""
    assert ratio_estimate(np.array([1.0, 9.0]), np.array([1.0, 3.0]), 1, Resampling(200)).mean == 2.5


def test_equal_seeds_give_equal_intervals() -> None:
    series = autoregression(0.5, 100, np.random.default_rng(1))
    ones = np.ones(100)
    first, again, other = (ratio_estimate(series, ones, 5, Resampling(300, seed)) for seed in (4, 4, 5))
    assert first == again
    assert first != other


def test_block_length_follows_the_memory_of_the_series() -> None:
    """125 values: at least 5, the cube root, for noise; (1.5 x 125 x (2r / (1 - r^2))^2)^(1/3) otherwise; never more
    than a quarter."""
    rng = np.random.default_rng(2)
    assert block_length(np.ones(125)) == 5
    alternating = np.tile([1.0, -1.0], 63)[:125]
    assert block_length(alternating) == 5
    assert block_length(np.repeat([1.0, -1.0], 63)[:125]) == 31
    series = autoregression(0.6, 125, rng)
    centred = series - series.mean()
    r = centred[1:] @ centred[:-1] / (centred @ centred)
    assert block_length(series) == int(np.ceil((1.5 * 125 * (2 * r / (1 - r**2)) ** 2) ** (1 / 3)))


@pytest.mark.parametrize(("r", "least"), [(0.0, 0.92), (0.5, 0.90), (0.8, 0.86)])
def test_coverage_on_autoregressive_noise(r: float, least: float) -> None:
    """About 95 % of intervals hold the true mean; with a long memory a little less, as the blocks are few."""
    rng = np.random.default_rng(3)
    ones, held = np.ones(400), 0
    for trial in range(400):
        series = autoregression(r, 400, rng)
        found = ratio_estimate(series, ones, block_length(series), Resampling(300, trial))
        held += found.low <= 1.0 <= found.high
    assert least <= held / 400 <= 0.985


def test_independent_blocks_would_promise_too_much() -> None:
    """The same noise resampled one interval at a time: far from 95 %."""
    rng = np.random.default_rng(4)
    ones, held = np.ones(400), 0
    for trial in range(200):
        series = autoregression(0.8, 400, rng)
        found = ratio_estimate(series, ones, 1, Resampling(200, trial))
        held += found.low <= 1.0 <= found.high
    assert held / 200 < 0.65


@given(st.lists(st.floats(-5, 5), min_size=2, max_size=60), st.integers(0, 9))
def test_bounds_enclose_the_mean_for_any_series(values: list[float], seed: int) -> None:
    series = np.array(values)
    found = ratio_estimate(series, np.ones(len(series)), block_length(series), Resampling(100, seed))
    assert found.low <= found.mean <= found.high
