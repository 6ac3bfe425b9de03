"""Live ghosts under several eviction policies at once, beside training's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from caches.errors import InputError
from caches.knobs import KnobSettings
from caches.policies.pair import policies_called
from caches.target import Arm, Plan, Split
from envs.ghosts import choice_grid, grid_settings
from envs.interval import STATS, total_usd
from envs.world import World
from tests.envs.test_ghost_lanes import by_appearance
from tests.envs.worlds import INTERVAL_SECONDS, KNOBS, SETTINGS, problem, random_trace
from tests.tuner.ghost_traffic import ALONE, everything, intervals, rules_of
from tuner.keys.ghosts import LiveGhosts
from tuner.keys.stream import Pending
from tuner.keys.view import GhostRules, Viewpoint

THREE = policies_called(("lru", "s3-fifo", "gdsf"))
NAMES = tuple(one.eviction for one in THREE)
WORLD = World(problem(by_appearance(random_trace(3, 12, 30.0)), entry_overhead_bytes=20))
VIEW = Viewpoint(KNOBS, SETTINGS, NAMES)


def rules(**changes: Any) -> GhostRules:
    made = rules_of(WORLD.problem, **changes)
    return replace(made, terms=replace(made.terms, policies=THREE))


def test_the_grid_under_each_policy_is_that_of_training() -> None:
    every = choice_grid(WORLD, THREE, SETTINGS)
    ghosts = LiveGhosts(rules(), [VIEW])
    for index, _ in enumerate(intervals(WORLD, ghosts, everything(WORLD))):
        seen = ghosts.seen(VIEW).ghosts
        assert seen is not None
        np.testing.assert_array_equal(seen.positions, every.positions)
        np.testing.assert_array_equal(seen.policy, every.policy)
        np.testing.assert_array_equal(seen.usd, every.usd[:, : index + 1])
        np.testing.assert_array_equal(seen.unsafe, every.unsafe[:, : index + 1])
    by_policy = every.usd.reshape(len(THREE), -1)
    assert (by_policy[0] != by_policy[1]).any()
    assert (by_policy[1] != by_policy[2]).any()


def test_a_policy_that_chooses_later_finds_the_nearest_under_its_own_policy() -> None:
    """New lanes begin with what lanes hold that are there; those of the viewpoint that stays go on."""
    ghosts = LiveGhosts(rules(), [Viewpoint(KNOBS, SETTINGS)])
    alone = LiveGhosts(rules(), [Viewpoint(KNOBS, SETTINGS)])
    for index, (_, _) in enumerate(
        zip(intervals(WORLD, ghosts, everything(WORLD)), intervals(WORLD, alone, everything(WORLD)), strict=True)
    ):
        if index == 5:
            assert ghosts.seen(VIEW).ghosts is None
            ghosts.look_from([VIEW])
        mine, other = ghosts.seen(Viewpoint(KNOBS, SETTINGS)), alone.seen(Viewpoint(KNOBS, SETTINGS))
        assert mine.reference_usd == other.reference_usd
        if index > 5:
            found = ghosts.seen(VIEW).ghosts
            assert found is not None
            assert found.usd.shape == (3 * (len(grid_settings(KNOBS)) + 1), index - 5)


def test_an_arm_that_changes_its_policy_costs_what_such_a_cache_costs() -> None:
    world, rng = WORLD.choosing(THREE), np.random.default_rng(2)
    choice = rng.integers(0, len(THREE), len(WORLD))
    ghosts, pending, usd = LiveGhosts(rules(), [VIEW]), Pending(), []
    pending.add(everything(WORLD))
    for index in range(len(WORLD)):
        named = replace(SETTINGS, eviction_policy=NAMES[choice[index]])
        ghosts.begin(WORLD.timeline.begin(index), INTERVAL_SECONDS)
        ghosts.feed(pending.take(WORLD.timeline.begin(index + 1)))
        found = ghosts.close(Plan(Split(), named, named), {"other": replace(SETTINGS, eviction_policy="gdsf")})
        assert found.notes == ()
        assert set(found.drafts) == {"other"}
        usd.append(found.arms[Arm.CONTROL].usd)
    lanes, rows = world.lanes(1), np.empty((len(world), STATS))
    for index in range(len(world)):
        values = np.append(SETTINGS.as_array(), choice[index])
        world.play.run_interval(world.scene, lanes, 0, index, values, rows[index])
    np.testing.assert_array_equal(usd, total_usd(rows))
    assert len(set(choice.tolist())) == len(THREE)


def test_what_is_under_a_policy_that_is_not_followed_is_not_known() -> None:
    odd = replace(SETTINGS, eviction_policy="sieve")
    ghosts = LiveGhosts(rules(), [VIEW])
    for index, found in enumerate(intervals(WORLD, ghosts, everything(WORLD), Plan(Split(), odd, odd))):
        assert (found.arms, found.drafts) == ({}, {})
        assert found.notes == ("The ghosts of arms do not follow sieve: [cache] eviction_policy does not name it.",)
        assert np.isfinite(found.traffic).all() or index == 0
    assert ghosts.past.intervals == 0
    ghosts.begin(1_000.0, INTERVAL_SECONDS)
    found = ghosts.close(ALONE, {"odd": odd, "same": SETTINGS})
    assert list(found.drafts) == ["same"]
    assert list(found.arms) == [Arm.CONTROL]
    with pytest.raises(InputError, match="eviction_policy: got 'sieve', expected one that is followed: lru, s3-fifo"):
        rules().terms.numbers(odd)


def test_a_viewpoint_names_its_choices() -> None:
    plain, size = Viewpoint(KNOBS, SETTINGS), len(grid_settings(KNOBS)) + 1
    assert plain.grid_choices() is None
    assert len(plain.grid()) == size
    chosen = VIEW.grid_choices()
    assert chosen is not None
    assert chosen.tolist() == [0] * size + [1] * size + [2] * size
    assert VIEW.grid()[:size] == plain.grid()
    assert {one.eviction_policy for one in VIEW.grid()[size : 2 * size]} == {"s3-fifo"}
    assert KnobSettings(2_000.0, 15.0, 0.5, "gdsf") in VIEW.grid()
