"""Control under any eviction and admission policy, against one shadow cache that is walked by hand."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caches.errors import InputError
from caches.knobs import KnobSettings
from caches.policies.catalog import ADMISSIONS, EVICTIONS
from caches.policies.pair import PLAIN, CachePolicy, policies_called
from caches.shadow import kernel
from caches.shadow.cache import ShadowCache
from caches.stats import Expiry
from envs.control import Episodes, LaneControl, observation_scale
from envs.interval import STATS, column, total_usd
from envs.lanes import RESPONSE, Scene, fork
from envs.world import Reference, World
from tests.envs.test_lanes import random_settings
from tests.envs.worlds import SETTINGS, problem, random_trace

INTERVALS = 12
OTHERS = [CachePolicy(one, other) for one, other in itertools.product(EVICTIONS, ADMISSIONS)][1:]
FEW = [
    CachePolicy("sieve"),
    CachePolicy("w-tinylfu"),
    CachePolicy("gdsf", "cost-aware"),
    CachePolicy("lru", "second-hit"),
]


def by_shadow(world: World, wanted: np.ndarray) -> dict[str, list[float]]:
    """What a shadow cache counts in each interval."""
    scene, policy = world.scene, world.problem.policy
    assert isinstance(scene, Scene)
    cache = ShadowCache(
        scene.requests,
        world.problem.trace.num_keys,
        0.0,
        1.0,
        world.problem.expiry,
        EVICTIONS[policy.eviction],
        ADMISSIONS[policy.admission],
        scene.gpu,
    )
    told: dict[str, list[float]] = {name: [] for name in ("hits", "warmups", "expirations", "evictions", "used_bytes")}
    told |= {"compute_usd": [], "warmup_usd": []}
    for index, (size, ttl, ratio) in enumerate(wanted):
        before, now = cache.stats(), world.timeline.begin(index)
        at, stop = int(scene.edges[index]), int(scene.edges[index + 1])
        cache.apply(size, ttl, now)
        ranked = scene.candidates[index, : round(ratio * scene.candidate_count[index])]
        fetched = cache.warm(ranked, now, now + scene.seconds)
        missed = np.flatnonzero(cache.run_recording(stop).outcome == kernel.MISS) + at
        after, gpu = cache.stats(), scene.gpu.astype(np.float64)
        for name in ("hits", "warmups", "expirations", "evictions"):
            told[name].append(getattr(after, name) - getattr(before, name))
        told["used_bytes"].append(after.used_bytes)
        told["compute_usd"].append(gpu[missed].sum() * scene.tariff.gpu_second)
        told["warmup_usd"].append(gpu[fetched].sum() * scene.tariff.gpu_second * scene.tariff.warmup_factor)
    return told


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    policy=st.sampled_from(OTHERS),
    expiry=st.sampled_from(list(Expiry)),
    plain=st.booleans(),
)
def test_every_interval_equals_a_shadow_cache_of_the_policy(
    seed: int, policy: CachePolicy, expiry: Expiry, plain: bool
) -> None:
    world = World(problem(random_trace(seed, INTERVALS, 20.0, plain=plain), expiry=expiry, policy=policy))
    wanted = random_settings(seed, len(world))
    lanes, rows = world.lanes(1), np.full((len(world), STATS), np.nan)
    for index in range(len(world)):
        world.play.run_interval(world.scene, lanes, 0, index, wanted[index], rows[index])
    for name, expected in by_shadow(world, wanted).items():
        np.testing.assert_allclose(column(rows, name), expected, rtol=1e-12, atol=1e-15, err_msg=name)


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 2**32 - 1), expiry=st.sampled_from(list(Expiry)))
def test_the_queues_of_least_recently_used_give_the_rows_of_its_own_kernel(seed: int, expiry: Expiry) -> None:
    """Admission on the first request takes in all that is read: LRU by the other kernel."""
    world = World(problem(random_trace(seed, INTERVALS, 20.0), expiry=expiry))
    assert world.play is RESPONSE
    other = world.under(CachePolicy("lru", "second-hit"))
    other.rules = other.rules._replace(requests=1)
    wanted = [KnobSettings(*row) for row in random_settings(seed, 3)]
    np.testing.assert_array_equal(world.replay_static(wanted, 12), other.replay_static(wanted, 12))


@pytest.mark.parametrize("policy", FEW, ids=str)
def test_a_lane_goes_on_from_a_checkpoint_and_from_another_lane(policy: CachePolicy) -> None:
    world = World(problem(random_trace(5, INTERVALS, 20.0), policy=policy))
    reference = Reference(world, SETTINGS, (4,))
    lanes, rows = world.lanes(2), np.empty((2, len(world), STATS))
    reference.checkpoint(4).copy_to(lanes, 0)
    for index in range(4, len(world)):
        if index == 8:
            fork(world.play, lanes, 0, 1)
        for lane in (0, 1)[: 1 + (index >= 8)]:
            world.play.run_interval(world.scene, lanes, lane, index, SETTINGS.as_array(), rows[lane, index])
    np.testing.assert_array_equal(rows[0, 4:], reference.rows[4:])
    np.testing.assert_array_equal(rows[1, 8:], reference.rows[8:])


@pytest.mark.parametrize("policy", FEW[:2], ids=str)
def test_staying_at_the_reference_is_worth_nothing_under_any_policy(policy: CachePolicy) -> None:
    world = World(problem(random_trace(2, 24), policy=policy), threads=2)
    episodes = Episodes.over(range(16), 6, 3)
    reference = Reference(world, SETTINGS, episodes.starts)
    control = LaneControl(reference, observation_scale(world, reference, range(16)), 3, 6)
    for lane, start in enumerate(episodes.starts):
        control.reset(lane, reference.checkpoint(start))
    for _ in range(6):
        np.testing.assert_array_equal(control.step(np.zeros((3, 3))), np.zeros(3))
        assert np.isfinite(control.observe()).all()


def test_worlds_under_other_policies_share_all_but_the_cache() -> None:
    world = World(problem(random_trace(7, INTERVALS, 20.0)))
    other = world.under(CachePolicy("s3-fifo"))
    assert world.under(PLAIN) is world
    assert other.traffic is world.traffic
    assert other.scene is world.scene
    assert world.problem.policy == PLAIN
    fresh = World(replace(world.problem, policy=CachePolicy("s3-fifo")))
    wanted = [KnobSettings(*row) for row in random_settings(1, 4)]
    one, same, plain = (each.replay_static(wanted, 12) for each in (other, fresh, world))
    np.testing.assert_array_equal(one, same)
    assert (total_usd(one) != total_usd(plain)).any()


def test_policies_are_called_by_name() -> None:
    assert [str(one) for one in policies_called(("lru", "sieve"), ("all", "tinylfu"))] == [
        "lru",
        "lru + tinylfu",
        "sieve",
        "sieve + tinylfu",
    ]
    assert [one.eviction for one in policies_called("all")] == list(EVICTIONS)
    for wrong in ("fifo", ()):
        with pytest.raises(InputError, match="eviction_policy: got"):
            policies_called(wrong)
    with pytest.raises(InputError, match="admission: got 'none'"):
        policies_called("lru", ("none",))
