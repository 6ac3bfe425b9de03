"""Shares of requests: what luck of a split may do, and what it may not."""

from __future__ import annotations

import numpy as np
import pytest

from caches.errors import InputError
from tuner.judging.sample_ratio import concentration, sample_ratio


def test_concentration_by_hand() -> None:
    assert concentration(np.array([1, 1, 2])) == pytest.approx((1 + 1 + 4) / 16)
    with pytest.raises(InputError, match="no requests"):
        concentration(np.zeros(3))


def test_nothing_requested_says_nothing() -> None:
    assert sample_ratio(np.zeros((3, 2)), 0.5, 0.01) is None


def split_of(seed: int, share: float, weight: np.ndarray, intervals: int = 30) -> np.ndarray:
    """Requests of each arm over time, where keys are dealt by chance."""
    random = np.random.default_rng(seed)
    ours = random.random(len(weight)) < share
    counts = random.poisson(2_000 * weight / weight.sum(), (intervals, len(weight)))
    return np.stack((counts[:, ~ours].sum(axis=1), counts[:, ours].sum(axis=1)), axis=1)


def test_luck_with_hot_keys_is_no_mismatch() -> None:
    """The first key has 20 % of the requests: shares from 36 to 63 % are luck, and a binomial test would refuse all."""
    weight = 1.0 / np.arange(1, 300)
    concentrated = concentration(weight)
    found = [sample_ratio(split_of(seed, 0.5, weight), 0.5, concentrated) for seed in range(100)]
    assert sum(one.mismatch for one in found if one is not None) <= 1
    assert np.std([one.found for one in found if one is not None]) > 0.08


def test_a_share_that_is_not_the_planned_one_is_a_mismatch() -> None:
    """Many keys alike: one arm lost four in ten of its requests."""
    requests = split_of(1, 0.5, np.ones(5_000)) * (1.0, 0.6)
    found = sample_ratio(requests, 0.5, concentration(np.ones(5_000)))
    assert found is not None
    assert found.mismatch
    assert found.high < 0.5 - found.allowed
    alike = sample_ratio(split_of(1, 0.5, np.ones(5_000)), 0.5, concentration(np.ones(5_000)))
    assert alike is not None
    assert not alike.mismatch
