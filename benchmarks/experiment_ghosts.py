"""The daemon's ghosts on recorded traffic: what it would say of both arms, and of the past before any experiment."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from caches.shadow.sampling import mixed
from caches.stats import Expiry
from caches.target import Arm, Plan, Split
from envs.ghost_lanes import Terms
from envs.journal import Batch
from envs.lanes import Scene
from envs.reward import tariff_of
from envs.serving import backend_of
from envs.world import Problem, World
from tuner.judging.shadow_arms import key_points, keys_of
from tuner.keys.ghosts import LiveGhosts
from tuner.keys.past import PastTraffic
from tuner.keys.stream import Taken
from tuner.keys.view import GhostRules, KeyInterval, Viewpoint

Array = NDArray[Any]

GRID_RATE = 0.01  # the grid says nothing here, but the arms are to be exact beside one that is sampled


def arms_told(world: World, split: Split, intervals: int) -> tuple[Array, float]:
    """What the daemon says that each arm's own requests cost under the control's settings in each of the first
    intervals, USD, (intervals, 2); and the least share of the keys that its ghosts of arms followed."""
    _, told = _fed(world, split, intervals)
    return np.array([[one.arms[arm].usd for arm in (Arm.CONTROL, Arm.TREATMENT)] for one in told]), told[-1].arm_rate


def past_told(world: World, intervals: int) -> PastTraffic:
    """What it knows of single keys after these intervals, without an experiment."""
    return _fed(world, Split(), intervals)[0].past


def _fed(world: World, split: Split, intervals: int) -> tuple[LiveGhosts, list[KeyInterval]]:
    problem, timeline, edges = world.problem, world.timeline, world.timeline.edges
    control = problem.knobs.default()
    ghosts, plan = LiveGhosts(_rules(problem), [Viewpoint(problem.knobs, control)]), Plan(split, control, control)
    requests, told = _requests(world, split), []
    for index in range(intervals):
        begin, end = timeline.begin(index), timeline.begin(index + 1)
        ghosts.begin(begin, end - begin)
        ghosts.feed(Taken(requests.of(np.arange(edges[index], edges[index + 1]))))
        told.append(ghosts.close(plan))
        ghosts.tend(end)
    return ghosts, told


def _rules(problem: Problem) -> GhostRules:
    terms = Terms(
        backend_of(problem.profile, problem.serving),
        tariff_of(problem.prices),
        problem.constraints.p99_ttft_seconds,
        float(problem.serving.sequence_tokens),
        problem.expiry is Expiry.SINCE_TOUCH,
        problem.warmup_candidates,
        problem.popularity_decay,
    )
    # tokens are those of the trace, so nothing is assumed of them
    return GhostRules(terms, problem.constraints, problem.entry_overhead_bytes, 1, 1.0, GRID_RATE)


def _requests(world: World, split: Split) -> Batch:
    """All of a trace, as a key stream hands them out."""
    problem, scene = world.problem, world.scene
    assert isinstance(scene, Scene)
    assert not scene.requests.operation.size
    key, requests = problem.trace.key, scene.requests
    treatment = keys_of(key_points(problem.trace.num_keys, split.salt), split, True)
    return Batch(
        mixed(key.astype(np.uint64), 1),
        requests.time,
        (requests.size - problem.entry_overhead_bytes).astype(np.int32),
        requests.ttl if requests.ttl.size else np.full(len(key), np.nan, np.float32),
        scene.load.prompt.astype(np.int32),
        scene.load.output.astype(np.int32),
        treatment[key],
    )
