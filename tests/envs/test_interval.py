from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from caches.errors import InputError
from envs.interval import COSTS, NAMES, STATS, Timeline, Window, column, timeline_of, total_usd
from envs.reward import CAUSES

arrivals = st.lists(st.integers(0, 400).map(lambda x: x / 10), min_size=2, max_size=60).map(
    lambda times: np.array(sorted([*times, 0.0, 40.0]))
)


@given(arrivals, st.sampled_from([0.5, 1.0, 3.0, 7.5, 20.0]))
def test_every_request_is_in_the_interval_of_its_time(times: np.ndarray, seconds: float) -> None:
    timeline = timeline_of(times, seconds)
    assert len(timeline) == int(40.0 / seconds)
    for index in range(len(timeline)):
        inside = times[timeline.edges[index] : timeline.edges[index + 1]]
        begin = timeline.begin(index)
        assert inside.tolist() == [t for t in times if begin <= t < begin + seconds]


def test_time_left_over_belongs_to_no_interval() -> None:
    timeline = timeline_of(np.array([5.0, 6.0, 7.9, 8.0, 9.5]), 2.0)
    assert timeline.edges.tolist() == [0, 2, 4]  # from 5 to 7, to 9
    assert (timeline.begin(0), timeline.begin(1)) == (5.0, 7.0)


@pytest.mark.parametrize(
    ("seconds", "named"),
    [(0.0, "interval_seconds: got 0.0, expected above 0"), (6.0, "interval_seconds: got 6.0, expected at most half")],
)
def test_a_bad_length_is_named(seconds: float, named: str) -> None:
    with pytest.raises(InputError, match=named):
        timeline_of(np.array([0.0, 10.0]), seconds)


@given(st.integers(40, 400), st.floats(0.05, 0.5), st.floats(0.05, 0.4))
def test_the_parts_are_disjoint_in_order_and_all(count: int, train: float, validation: float) -> None:
    parts = Timeline(np.zeros(count + 1, np.int64), 0.0, 1.0).split(train, validation)
    assert [index for part in parts for index in part] == list(range(count))
    assert len(parts[0]) == pytest.approx(train * count, abs=0.5)
    assert len(parts[0]) + len(parts[1]) == pytest.approx((train + validation) * count, abs=0.5)


@pytest.mark.parametrize(("train", "validation"), [(0.0, 0.5), (0.9, 0.09), (0.6, 0.4)])
def test_a_part_without_intervals_is_an_error(train: float, validation: float) -> None:
    with pytest.raises(InputError, match="expected at least one each"):
        Timeline(np.zeros(5, np.int64), 0.0, 1.0).split(train, validation)


def test_a_window_has_none_where_nothing_is_known() -> None:
    row = np.arange(STATS, dtype=float)
    row[2] = np.nan
    window = Window.of_row(row)
    assert (window.requests, window.hits, window.hit_ratio) == (0.0, 1.0, None)
    assert window.slow_usd == STATS - 1


def test_cost_is_the_sum_over_causes() -> None:
    assert NAMES[COSTS] == tuple(f"{cause}_usd" for cause in CAUSES)
    rows = np.arange(2.0 * STATS).reshape(2, STATS)
    assert total_usd(rows).tolist() == [rows[0, -5:].sum(), rows[1, -5:].sum()]
    assert column(rows, "hits").tolist() == [1.0, STATS + 1.0]
