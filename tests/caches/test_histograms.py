"""Quantiles and shares above a value, read from buckets."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caches.histograms import above, added, quantile
from caches.target import Histogram

SEEN = Histogram((1.0, 10.0, 100.0), (2, 4, 2, 2), 0.0)
BOUNDS = (0.0005, 0.001, 0.2, 0.5, 1.0, 2.0)


@pytest.mark.parametrize(
    ("share", "expected"),
    [
        (0.1, 0.5),  # rank 1, the first of two from 0 to 1
        (0.4, 5.5),  # rank 4, the second of four from 1 to 10: half of the way
        (0.5, 7.75),  # rank 5, the third of four
        (0.8, 100.0),  # rank 8, the last below 100
        (0.99, 100.0),  # one of the two above all bounds: at least 100
    ],
)
def test_a_quantile_by_hand(share: float, expected: float) -> None:
    assert quantile(SEEN, share) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("bounds", "counts", "share", "expected"),
    [
        ((1.0, 2.0, 4.0), (0, 4, 0, 0), 0.5, 1.5),
        ((1.0, 2.0, 4.0), (4, 0, 0, 0), 0.5, 0.5),  # the first bucket begins at 0
        ((1.0, 2.0, 4.0), (1, 0, 1, 0), 0.99, 3.96),  # rank 1.98, the second of two: 0.98 of the way from 2 to 4
        ((1.0, 2.0, 4.0), (0, 0, 0, 3), 0.5, 4.0),
        ((0.0, 2.0), (0, 4, 0), 0.5, 1.0),
        ((-1.0, 2.0), (4, 0, 0), 0.5, -1.0),  # no width
        ((-1.0, 2.0), (0, 4, 0), 0.5, 0.5),
        ((1.0, 2.0, 4.0), (0, 0, 0, 0), 0.5, None),
        ((), (3,), 0.5, None),
    ],
)
def test_a_quantile_of_odd_buckets(
    bounds: tuple[float, ...], counts: tuple[int, ...], share: float, expected: float | None
) -> None:
    found = quantile(Histogram(bounds, counts, 0.0), share)
    assert found == (None if expected is None else pytest.approx(expected))


def test_how_many_lie_above_a_value() -> None:
    assert above(SEEN, -1.0) == 10.0
    assert above(SEEN, 0.5) == 1.0 + 8.0
    assert above(SEEN, 10.0) == 4.0
    assert above(SEEN, 55.0) == 1.0 + 2.0
    assert above(SEEN, 1e6) == 2.0
    assert above(Histogram((-2.0, 2.0), (1, 4, 0), 0.0), 1.0) == 1.0
    assert above(Histogram((), (3,), 0.0), 1.0) == 3.0


def test_histograms_are_added_by_bucket() -> None:
    more = Histogram(SEEN.bounds, (1, 0, 0, 5), 2.5)
    assert added([SEEN, more, more]) == Histogram(SEEN.bounds, (4, 4, 2, 12), 5.0)


@given(st.lists(st.integers(0, 50), min_size=7, max_size=7), st.floats(0.01, 0.99))
def test_as_many_lie_above_a_quantile_as_its_share_leaves(counts: list[int], share: float) -> None:
    histogram = Histogram(BOUNDS, tuple(counts), 0.0)
    number, value = sum(counts), quantile(histogram, share)
    if not number:
        assert value is None
        return
    assert value is not None
    if value < BOUNDS[-1]:
        assert above(histogram, value) == pytest.approx((1.0 - share) * number)
    else:
        assert above(histogram, value) >= (1.0 - share) * number - 1e-9


@given(st.lists(st.integers(0, 50), min_size=7, max_size=7))
def test_quantiles_are_in_order_and_inside_their_bucket(counts: list[int]) -> None:
    histogram, shares = Histogram(BOUNDS, tuple(counts), 0.0), (0.5, 0.95, 0.99)
    found = [value for share in shares if (value := quantile(histogram, share)) is not None]
    assert found == sorted(found)
    assert len(found) == (3 if sum(counts) else 0)
    ends = [*itertools.accumulate(counts)]
    for value, share in zip(found, shares, strict=False):
        bucket = next(i for i, end in enumerate(ends) if end >= share * sum(counts))
        low = 0.0 if bucket == 0 else BOUNDS[bucket - 1]
        assert low <= value <= BOUNDS[min(bucket, 5)]
