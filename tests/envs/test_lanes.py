"""The step kernel against a slow lane made of the live cache, a list of slots and the formulas."""

from __future__ import annotations

import math
from dataclasses import astuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caches.knobs import KnobSettings
from caches.stats import Expiry
from envs import lanes as lane_kernels
from envs.interval import NAMES, STATS, column
from envs.lanes import Crew
from envs.serving import Serving
from envs.units import GIB
from envs.world import Problem, World
from tests.envs.slow_lane import SlowLane
from tests.envs.worlds import problem, random_trace

INTERVALS = 12


def random_settings(seed: int, count: int, largest: float = 4_000.0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.column_stack(
        (
            rng.choice([0.0, 350.5, 1_000.0, 2_500.25, largest], count),
            rng.choice([2.0, 5.0, 20.0, 1e9], count),
            rng.choice([0.0, 0.3, 0.5, 1.0], count),
        )
    )


def fast_rows(world: World, wanted: np.ndarray) -> np.ndarray:
    lanes, rows = world.lanes(1), np.full((len(world), STATS), np.nan)
    for index in range(len(world)):
        lane_kernels.run_interval(world.scene, lanes, 0, index, wanted[index], rows[index])
    return rows


def slow_rows(world: World, wanted: np.ndarray) -> np.ndarray:
    scene = world.scene
    ranked = [row[:n].tolist() for row, n in zip(scene.candidates, scene.candidate_count, strict=True)]
    lane = SlowLane(world.problem, ranked)
    windows = [lane.interval(index, KnobSettings(*wanted[index])) for index in range(len(world))]
    return np.array([[math.nan if value is None else value for value in astuple(window)] for window in windows])


def assert_equal(wanted: Problem, seed: int, largest: float = 4_000.0) -> np.ndarray:
    world = World(wanted)
    values = random_settings(seed, len(world), largest)
    fast, slow = fast_rows(world, values), slow_rows(world, values)
    for name in NAMES:
        np.testing.assert_allclose(column(fast, name), column(slow, name), rtol=2e-6, atol=1e-12, err_msg=name)
    return fast


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    expiry=st.sampled_from(list(Expiry)),
    plain=st.booleans(),
    rate=st.sampled_from([0.7, 6.0, 20.0]),
    overhead=st.sampled_from([0, 100]),
)
def test_every_statistic_of_every_interval_equals_the_slow_lane(
    seed: int, expiry: Expiry, plain: bool, rate: float, overhead: int
) -> None:
    trace = random_trace(seed, INTERVALS, rate, plain=plain)
    assert_equal(problem(trace, expiry=expiry, entry_overhead_bytes=overhead), seed)


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 2**32 - 1))
def test_a_cache_in_vram_changes_the_number_of_slots(seed: int) -> None:
    serving = Serving(replicas=2, cache_in_vram=True, sequence_tokens=500)
    wanted = problem(random_trace(seed, INTERVALS, 20.0), serving=serving)
    rows = assert_equal(wanted, seed, largest=0.9 * GIB)  # of 1 GiB beside the weights
    assert np.isfinite(column(rows, "utilisation")).all()


def test_the_scene_of_these_tests_has_everything_in_it() -> None:
    """Otherwise equality would say little."""
    rows = assert_equal(problem(random_trace(3, 40, 20.0, plain=False)), 3)
    for name in ("hits", "warmups", "expirations", "evictions", "mean_wait_seconds", "slow_requests"):
        assert np.nanmax(column(rows, name)) > 0, name


def test_an_interval_without_requests_has_no_ratios_and_still_pays_rent() -> None:
    trace = random_trace(0, 12, 0.4)
    world = World(problem(trace))
    rows = fast_rows(world, np.tile([1_000.0, 5.0, 0.0], (12, 1)))
    empty = column(rows, "requests") == 0
    assert empty.any()
    for name in ("hit_ratio", "byte_hit_ratio", "token_hit_ratio", "p99_ttft_seconds", "mean_wait_seconds"):
        assert np.isnan(column(rows[empty], name)).all(), name
    assert (column(rows[empty], "compute_usd") == 0.0).all()
    rent = 1_000.0 / 2**30 * 10.0 / 3600 * 4_000.0
    np.testing.assert_allclose(column(rows[empty], "memory_usd"), rent)


@pytest.mark.parametrize(("used", "wanted", "expected"), [(4, 2, [4.0, 9.0]), (2, 4, [1.0, 3.0, 5.0, 5.0])])
def test_the_busiest_slots_stay_and_new_ones_are_free_now(used: int, wanted: int, expected: list[float]) -> None:
    slots = np.array([3.0, 1.0, np.inf, 0.0, 0.0] if used == 2 else [3.0, 9.0, 4.0, 1.0, np.inf])
    lane_kernels._resize_slots(slots, used, wanted, 5.0)
    assert slots[:wanted].tolist() == expected
    assert slots[wanted] == np.inf


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_change_nothing(threads: int) -> None:
    world = World(problem(random_trace(1, 30, 20.0)))
    count, told = 7, []
    for crew in (Crew(1), Crew(threads)):
        lanes, index, rows = world.lanes(count), np.arange(count, dtype=np.int64), np.zeros((count, STATS))
        for step in range(20):
            values = random_settings(step, count)
            crew.share(
                lambda part, v=values, la=lanes, i=index, r=rows: lane_kernels.step_lanes(
                    world.scene, la, part, i, v, r
                ),  # type: ignore[misc]
                count,
            )
            index += 1
        told.append((rows.copy(), *(array.copy() for array in lanes[:8])))
    for one, other in zip(*told, strict=True):
        np.testing.assert_array_equal(one, other)


def test_static_replay_is_a_lane_per_setting() -> None:
    world = World(problem(random_trace(2, INTERVALS, 20.0)), threads=2)
    wanted = [KnobSettings(*row) for row in random_settings(5, 11)]
    calls: list[tuple[int, int]] = []
    rows = world.replay_static(wanted, 9, lambda done, total: calls.append((done, total)))
    assert rows.shape == (11, 9, STATS)
    assert calls == [(8, 11), (11, 11)]
    for one, setting in zip(rows, wanted, strict=True):
        np.testing.assert_array_equal(one, fast_rows(world, np.tile(setting.as_array(), (INTERVALS, 1)))[:9])


def test_an_error_in_a_thread_is_raised() -> None:
    def fail(part: tuple[int, int]) -> None:
        if part[0] > 0:
            raise ValueError("second half")

    with pytest.raises(ValueError, match="second half"):
        Crew(2).share(fail, 4)
