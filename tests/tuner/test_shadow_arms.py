"""Arms replayed on a trace: the whole cache when they have all keys, each its part when they are split."""

from __future__ import annotations

import numpy as np
import pytest

from caches.errors import InputError
from caches.knobs import KnobSettings
from caches.target import Split
from envs.interval import column, total_usd
from envs.world import World
from tests.envs.worlds import SETTINGS, problem, random_trace
from tuner.judging.shadow_arms import BOUNDS, ShadowArm, key_costs, key_points, keys_of, sampled

INTERVALS = 12


@pytest.fixture(scope="module")
def world() -> World:
    return World(problem(random_trace(3, INTERVALS, 40.0, 60, plain=False)))


def every_key(world: World) -> np.ndarray:
    return np.ones(world.problem.trace.num_keys, np.bool_)


def test_an_arm_with_all_keys_is_the_cache_to_the_last_bit(world: World) -> None:
    """With warm-ups, lifetimes of their own, writes and deletes."""
    whole = world.replay_static([SETTINGS], INTERVALS)[0]
    np.testing.assert_array_equal(ShadowArm(world, every_key(world), 1.0).replay([SETTINGS] * INTERVALS).rows, whole)


def test_settings_may_change_from_interval_to_interval(world: World) -> None:
    arm = ShadowArm(world, every_key(world), 1.0)
    small = KnobSettings(300.0, 5.0, 0.0)
    mixed = arm.replay([SETTINGS] * 6 + [small] * 6).rows
    np.testing.assert_array_equal(mixed[:6], arm.replay([SETTINGS] * 6).rows)
    assert column(mixed[6:], "hits").sum() < column(arm.replay([SETTINGS] * INTERVALS).rows[6:], "hits").sum()


def test_arms_share_out_requests_and_capacity(world: World) -> None:
    points, split = key_points(world.problem.trace.num_keys, "salt"), Split("salt", 0.3)
    arms = [ShadowArm(world, keys_of(points, split, ours), split.treatment if ours else 0.7) for ours in (False, True)]
    rows = [arm.replay([SETTINGS] * INTERVALS).rows for arm in arms]
    whole = world.replay_static([SETTINGS], INTERVALS)[0]
    np.testing.assert_array_equal(sum(column(one, "requests") for one in rows), column(whole, "requests"))
    for one, share in zip(rows, (0.7, 0.3), strict=True):
        assert column(one, "used_bytes").max() <= SETTINGS.cache_size * share
        np.testing.assert_allclose(column(one, "memory_usd"), column(whole, "memory_usd") * share)


def test_histograms_count_every_request(world: World) -> None:
    found = ShadowArm(world, every_key(world), 1.0).replay([SETTINGS] * INTERVALS)
    requests, hits = column(found.rows, "requests"), column(found.rows, "hits")
    np.testing.assert_array_equal(found.ttft.sum(axis=1), requests)
    np.testing.assert_array_equal(found.latency.sum(axis=1), requests)
    at_hits = int(np.searchsorted(BOUNDS, world.problem.profile.hit_seconds))
    np.testing.assert_array_equal(found.ttft[:, at_hits], hits)


def test_a_slower_backend_moves_misses_up(world: World) -> None:
    """By a decade: eight buckets on; hits stay."""
    arm = ShadowArm(world, every_key(world), 1.0)
    usual = arm.replay([SETTINGS] * INTERVALS)
    slow = arm.replay([SETTINGS] * INTERVALS, np.full(INTERVALS, 10.0))
    np.testing.assert_array_equal(slow.rows, usual.rows)
    misses = int(column(usual.rows, "requests").sum() - column(usual.rows, "hits").sum())
    assert int((slow.ttft.cumsum(axis=1) < usual.ttft.cumsum(axis=1)).sum()) > 0
    assert int(slow.ttft[:, 8:].sum()) >= misses


def test_costs_are_those_of_the_replay(world: World) -> None:
    arm = ShadowArm(world, every_key(world), 1.0)
    np.testing.assert_array_equal(
        arm.costs(SETTINGS, INTERVALS, 2.0), 2.0 * total_usd(world.replay_static([SETTINGS], INTERVALS)[0])
    )


def test_costs_of_keys_add_up_to_misses_and_staleness(world: World) -> None:
    still = KnobSettings(SETTINGS.cache_size, SETTINGS.ttl_seconds, 0.0)
    rows = world.replay_static([still], INTERVALS)[0]
    expected = column(rows, "compute_usd").sum() + column(rows, "staleness_usd").sum()
    assert key_costs(world, still, range(INTERVALS)).sum() == pytest.approx(expected)
    later = column(rows[4:], "compute_usd").sum() + column(rows[4:], "staleness_usd").sum()
    assert key_costs(world, still, range(4, INTERVALS)).sum() == pytest.approx(later)


def test_points_are_spread_and_depend_on_the_salt() -> None:
    points = key_points(20_000, "a")
    assert (points >= 0.0).all()
    assert (points < 1.0).all()
    assert np.histogram(points, 10, (0.0, 1.0))[0].min() > 1_800
    assert abs(np.corrcoef(points, key_points(20_000, "b"))[0, 1]) < 0.03


def test_a_sample_is_a_part_of_the_arm(world: World) -> None:
    ours = keys_of(key_points(world.problem.trace.num_keys, "s"), Split("s", 0.5), True)
    part = sampled(world, ours, 0.5, 1)
    assert not (part & ~ours).any()
    assert 0 < part.sum() < ours.sum()


def test_no_share_is_refused(world: World) -> None:
    with pytest.raises(InputError, match=r"share: got 0\.0"):
        ShadowArm(world, every_key(world), 0.0)
