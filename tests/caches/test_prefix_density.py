from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from caches.policies import prefix_density as density

LIMITS = (16, 4)  # blocks


def none() -> np.ndarray:
    return np.zeros((density.CLASSES, density.BINS))


def test_density_worked_out_by_hand() -> None:
    # 100 blocks came to bin 3, from 2.25 to 3.375 s; 50 returned there, 50 were not watched any longer after it
    returned, lost = none(), none()
    returned[7, 3] = lost[7, 3] = 50.0
    worth = density.densities(returned, lost, 1e-9)
    # at the age of 0: 0.5 hits for 1 + 0.5 + 0.75 s and three quarters of 1.125 s; at that of bin 3, for the last alone
    assert worth[7, 0] == pytest.approx(0.5 / (2.25 + 0.75 * 1.125))
    assert worth[7, 3] == pytest.approx(0.5 / (0.75 * 1.125))
    assert worth[7, 0] < worth[7, 1] < worth[7, 2] < worth[7, 3]  # the nearer the return, the more it is worth
    assert not np.delete(worth, 7, axis=0).any()  # of a class that was never seen nothing is expected


def test_of_ages_that_nobody_came_to_the_average_is_expected() -> None:
    # as above: 50 returns in 100 x 2.25 s and 75 x 1.125 s; bin 4 is 1.6875 s wide
    returned, lost = none(), none()
    returned[7, 3] = lost[7, 3] = 50.0
    rate = 50.0 / (225.0 + 75.0 * 1.125)
    hit = 1.0 - np.exp(-rate * 1.6875)
    worth = density.densities(returned, lost, 1e-9)
    assert worth[7, 4] == pytest.approx(hit / ((1.0 - 0.5 * hit) * 1.6875))


def test_classes_share_a_curve_and_differ_by_a_factor() -> None:
    often, seldom = density.class_of(0, density.SHORT, 0), density.class_of(0, density.LONG, 0)
    returned, lost = none(), none()
    returned[often, 3], lost[often, 3] = 60.0, 40.0
    returned[seldom, 3], lost[seldom, 3] = 20.0, 80.0
    worth = density.densities(returned, lost, 1e-9)
    assert worth[often, 3] == pytest.approx(0.6 / (0.7 * 1.125))
    assert worth[seldom, 3] == pytest.approx(0.2 / (0.9 * 1.125))
    steadied = density.densities(returned, lost, 1e9)  # both as a return at any age of all
    assert steadied[often, 3] == pytest.approx(steadied[seldom, 3])


@given(st.floats(0.0, 1e9))
def test_bins_lie_between_their_edges(age: float) -> None:
    found = density.bin_of(age)
    assert density.EDGES[found] <= age
    assert found == density.BINS - 1 or age < density.EDGES[found + 1]


def test_levels() -> None:
    assert [density.uses_level(times) for times in (1, 2, 3, 4, 5, 6, 99)] == [0, 1, 2, 3, 3, 4, 4]
    assert [density.gap_level(2, gap) for gap in (0.0, 44.9, 45.0, 90.0, 240.0)] == [1, 1, 2, 3, 4]
    assert density.gap_level(1, 0.0) == 0
    first_uses = [
        (2, 3, 0, False, density.LAST),
        (0, 16, 0, False, density.SHORT),
        (0, 64, 0, False, density.MIDDLING),
        (0, 65, 0, False, density.LONG),
        (7, 10, 6, True, density.FEW_MORE),
        (7, 10, 5, True, density.MANY_MORE),
    ]
    for place, blocks, known, goes_on, level in first_uses:
        assert density.size_level(1, place, blocks, known, goes_on, LIMITS) == level
    for known, level in ((10, density.ONE_NEW), (9, density.ONE_NEW), (6, density.FEW_NEW), (5, density.MANY_NEW)):
        assert density.size_level(2, 9, 10, known, True, LIMITS) == level
    every = {
        density.class_of(uses, size, gap)
        for uses in range(density.USES)
        for size in range(density.SIZES)
        for gap in range(density.GAPS)
    }
    assert every == set(range(density.CLASSES))
