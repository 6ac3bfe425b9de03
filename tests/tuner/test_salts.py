"""A salt for keys by their names."""

from __future__ import annotations

import numpy as np
import pytest

from tuner.experiment import imbalance
from tuner.router import points
from tuner.salts import HEAVIEST, balanced_salt

KEYS = [b"%d" % number for number in range(300)]


def test_what_it_says_of_a_salt_is_so() -> None:
    weights = np.random.default_rng(0).exponential(size=(300, 2))
    found = balanced_salt(KEYS, weights, 7, (0.1, 0.5))
    assert found is not None
    assert found.keys == 300
    assert imbalance(points(KEYS, found.salt), weights / weights.sum(axis=0), (0.1, 0.5)) == pytest.approx(
        found.imbalance
    )
    assert balanced_salt(KEYS, weights, 7, (0.1, 0.5)) == found
    assert balanced_salt(KEYS, weights, 8, (0.1, 0.5)) != found


def test_a_measure_of_which_there_is_nothing_is_left_out() -> None:
    weights = np.stack((np.arange(300.0), np.zeros(300)), axis=1)
    assert balanced_salt(KEYS, weights, 7, (0.5,)) == balanced_salt(KEYS, weights[:, :1], 7, (0.5,))
    assert balanced_salt(KEYS, np.zeros((300, 2)), 7, (0.5,)) is None
    assert balanced_salt([], np.zeros((0, 2)), 7, (0.5,)) is None


def test_of_many_keys_the_heaviest_are_looked_at() -> None:
    """The light ones may be any number."""
    light = [b"light %d" % number for number in range(HEAVIEST)]
    weights = np.concatenate((np.full((300, 1), 5.0), np.full((HEAVIEST - 300, 1), 0.01)))
    few = balanced_salt([*KEYS, *light[: HEAVIEST - 300]], weights, 3, (0.5,))
    more = np.concatenate((weights, np.full((300, 1), 0.001)))
    assert balanced_salt([*KEYS, *light], more, 3, (0.5,)) == few
