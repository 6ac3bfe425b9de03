"""A policy beside a live cache sees what it saw in training."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from caches.knobs import KnobSettings
from caches.policies.pair import CachePolicy, policies_called
from envs.control import LaneControl, observation_scale
from envs.interval import COLUMN, STATS, total_usd
from envs.observation import names
from envs.world import Reference, World
from tests.envs.worlds import KNOBS, SETTINGS, problem, random_trace
from tuner.loop.sight import AVERAGES, Eyes, KeysSeen, averaged, whole

INTERVALS = 12
TWO = policies_called(("lru", "sieve"))


def test_observation_is_that_of_training_to_the_last_bit() -> None:
    reference = Reference(World(problem(random_trace(3, INTERVALS))), SETTINGS, (0,))
    world = reference.world
    scale = replace(observation_scale(world, reference, range(8)), daily=True)
    control = LaneControl(reference, scale, 1, INTERVALS)
    control.reset(0, reference.checkpoint(0))
    eyes, averages = Eyes(KNOBS, SETTINGS, scale), np.zeros(AVERAGES)
    rng = np.random.default_rng(0)
    for index in range(INTERVALS - 1):
        control.step(rng.uniform(-1.0, 1.0, (1, 3)))
        keys = KeysSeen(world.traffic[index], reference.usd[index], reference.ghost_usd[:, index], None)
        averages = averaged(averages, keys, scale)
        moment = (index + 1, float(control.now_seconds()[0]))
        sight = eyes.sight(control.rows[0], control.settings_of(0), keys, averages, moment)
        np.testing.assert_allclose(sight.positions, control.positions[0], atol=1e-12)
        np.testing.assert_allclose(sight.observation, control.observe()[0], atol=1e-6)


def test_what_is_not_known_is_marked() -> None:
    reference = Reference(World(problem()), SETTINGS, (0,))
    scale = observation_scale(reference.world, reference, range(8))
    sight = Eyes(KNOBS, SETTINGS, scale).sight(None, SETTINGS, KeysSeen.nothing(), np.zeros(AVERAGES), (5, 0.0))
    known = [value for name, value in zip(names(), sight.observation, strict=True) if name.startswith("known_")]
    assert known == [0.0] * 18
    assert np.isfinite(sight.observation).all()


def test_an_arm_is_stated_for_the_whole() -> None:
    row = np.full(STATS, np.nan)
    row[COLUMN["requests"]], row[COLUMN["hit_ratio"]], row[COLUMN["compute_usd"]] = 20.0, 0.5, 3.0
    stated = whole(row, 0.2)
    assert stated[COLUMN["requests"]] == 100.0
    assert stated[COLUMN["hit_ratio"]] == 0.5
    assert stated[COLUMN["compute_usd"]] == 15.0
    assert row[COLUMN["requests"]] == 20.0


def test_averages_stay_where_no_ghosts_were() -> None:
    reference = Reference(World(problem()), SETTINGS, (0,))
    scale = observation_scale(reference.world, reference, range(8))
    before = np.arange(AVERAGES, dtype=float)
    np.testing.assert_array_equal(averaged(before, KeysSeen.nothing(), scale), before)


def test_a_policy_that_observes_nothing_gets_nothing() -> None:
    settings = KnobSettings(100.0, 1.0, 0.0)
    sight = Eyes(KNOBS, SETTINGS, None).sight(None, settings, KeysSeen.nothing(), np.zeros(AVERAGES), (5, 0.0))
    assert sight.observation.shape == (0,)
    assert sight.positions == pytest.approx([0.0, 0.0, 0.0])
    assert total_usd(sight.row) != total_usd(sight.row)  # nan


@pytest.mark.parametrize(
    ("choices", "in_force", "expected"),
    [((), None, 0), ((), "gdsf", 0), (TWO, None, 0), (TWO, "lru", 0), (TWO, "sieve", 1), (TWO, "gdsf", None)],
)
def test_the_eviction_policy_in_force_as_one_of_the_choices(
    choices: tuple[CachePolicy, ...], in_force: str | None, expected: int | None
) -> None:
    """None named is the cache's own, which is the first; another than those is none of them."""
    settings = replace(SETTINGS, eviction_policy=in_force)
    eyes = Eyes(KNOBS, SETTINGS, None, choices)
    assert eyes.sight(None, settings, KeysSeen.nothing(), np.zeros(AVERAGES), (5, 0.0)).choice == expected
