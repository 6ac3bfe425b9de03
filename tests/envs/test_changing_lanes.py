"""Control that changes the eviction policy too, against one shadow cache that is walked by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caches.errors import InputError
from caches.policies.catalog import ADMISSIONS, EVICTIONS
from caches.policies.pair import CachePolicy
from caches.shadow import kernel
from caches.shadow.cache import ShadowCache
from envs.control import LaneControl, observation_scale
from envs.interval import STATS, column, total_usd
from envs.lanes import Scene, fork
from envs.prefix import PrefixConfig
from envs.world import Reference, World
from tests.envs.test_lanes import random_settings
from tests.envs.worlds import SETTINGS, problem, random_trace

INTERVALS = 12
NAMES = tuple(EVICTIONS)


def choosing(seed: int, admission: str = "all", first: str = "lru", **kwargs: object) -> World:
    """Every policy of the catalog, `first` first."""
    own = CachePolicy(first, admission)
    every = [CachePolicy(name, admission) for name in NAMES]
    return World(problem(random_trace(seed, INTERVALS, 20.0), policy=own, **kwargs)).choosing(every)


def by_shadow(world: World, wanted: np.ndarray, choice: np.ndarray) -> dict[str, list[float]]:
    """What a shadow cache counts in each interval."""
    scene, own = world.scene, world.choices[0]
    assert isinstance(scene, Scene)
    every = [EVICTIONS[one.eviction] for one in world.choices]
    cache = ShadowCache(
        *(scene.requests, world.problem.trace.num_keys, 0.0, 1.0, world.problem.expiry, every[0]),
        ADMISSIONS[own.admission],
        scene.gpu,
        every[1:],
    )
    told: dict[str, list[float]] = {name: [] for name in ("hits", "warmups", "expirations", "evictions", "used_bytes")}
    in_force = 0
    for index, (size, ttl, ratio) in enumerate(wanted):
        before, now = cache.stats(), world.timeline.begin(index)
        if choice[index] != in_force:
            in_force = choice[index]
            cache.limits = kernel.Limits(int(size), ttl, cache.limits.since_touch)  # the change knows the new capacity
            cache.change_policy(every[in_force], now)
        cache.apply(size, ttl, now)
        ranked = scene.candidates[index, : round(ratio * scene.candidate_count[index])]
        cache.warm(ranked, now, now + scene.seconds)
        cache.run(int(scene.edges[index + 1]))
        after = cache.stats()
        for name in ("hits", "warmups", "expirations", "evictions"):
            told[name].append(getattr(after, name) - getattr(before, name))
        told["used_bytes"].append(after.used_bytes)
    return told


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 2**32 - 1), admission=st.sampled_from(list(ADMISSIONS)), first=st.sampled_from(NAMES))
def test_every_interval_equals_a_shadow_cache_that_changes(seed: int, admission: str, first: str) -> None:
    world, rng = choosing(seed, admission, first), np.random.default_rng(seed)
    wanted = random_settings(rng, len(world))
    choice = rng.integers(0, len(NAMES), len(world))
    lanes, rows = world.lanes(1), np.empty((len(world), STATS))
    for index in range(len(world)):
        world.play.run_interval(world.scene, lanes, 0, index, np.append(wanted[index], choice[index]), rows[index])
    for name, values in by_shadow(world, wanted, choice).items():
        np.testing.assert_array_equal(column(rows, name), values, err_msg=name)


@pytest.mark.parametrize("name", NAMES)
def test_who_never_changes_is_in_a_world_of_that_policy(name: str) -> None:
    """Under settings that name no policy, under those that name the own one, and chosen from the beginning."""
    world, rng = choosing(4), np.random.default_rng(4)
    wanted = random_settings(rng, len(world))
    own = world.under(CachePolicy(name))
    places = (world.choices.index(CachePolicy(name)), own.choosing(world.choices).choices.index(CachePolicy(name)))
    assert places == (NAMES.index(name), 0)
    rows = []
    for here, behind in ((own, []), (own.choosing(world.choices), []), (world, [places[0]])):
        lanes = here.lanes(1)
        rows.append(np.empty((len(here), STATS)))
        for index in range(len(here)):
            values = np.append(wanted[index], behind)
            here.play.run_interval(here.scene, lanes, 0, index, values, rows[-1][index])
    np.testing.assert_array_equal(rows[0], rows[1])
    np.testing.assert_array_equal(rows[0], rows[2])


def test_a_reference_goes_over_and_lanes_are_forked_and_moved() -> None:
    world = choosing(7, first="gdsf")
    plain = world.under(world.problem.policy)
    old = Reference(plain, SETTINGS, [3])
    reference = old.on(world, [3])
    scale = observation_scale(plain, old, range(3))
    control, still = (LaneControl(one, scale, 2, 6) for one in (reference, old))
    for one in (control, still):
        for lane in range(2):
            one.reset(lane, one.reference.checkpoint(3))
    actions = np.array([[0.2, -0.3, 0.1], [0.0, 0.0, 0.0]])
    np.testing.assert_array_equal(control.step(actions), still.step(actions))
    assert control.settings_of(0).eviction_policy == "gdsf"
    assert still.settings_of(0).eviction_policy is None
    control.step(actions, np.array([1, 0]))
    assert [control.settings_of(lane).eviction_policy for lane in range(2)] == ["lru", "gdsf"]
    fork(world.play, control.lanes, 0, 1)
    control.positions[1] = control.positions[0]
    control.step(np.zeros((2, 3)), np.array([1, 1]))
    np.testing.assert_array_equal(control.rows[0], control.rows[1])
    assert total_usd(control.rows[0]) > 0


def test_only_caches_of_responses_under_one_rule_of_admission() -> None:
    world = World(problem(random_trace(1, 3, 5.0)))
    with pytest.raises(InputError, match=r"got lru \+ second-hit, expected admission all"):
        world.choosing([CachePolicy("lru", "second-hit")])
    world.problem = replace(world.problem, prefix=PrefixConfig())
    with pytest.raises(InputError, match="got a prefix cache, expected one of responses"):
        world.choosing([CachePolicy("sieve")])
