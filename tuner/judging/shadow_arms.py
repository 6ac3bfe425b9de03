"""What an experiment would have counted on recorded traffic: both arms replayed exactly, each its own cache.

The keys of a trace are split by a salt and a share, and each arm replays its own requests through the kernel of
envs/lanes.py: that share of the cache size, of the backend's slots and of its VRAM. In a real deployment both arms wait
for one backend; here each has a part of it to itself, so the arms do not slow each other down, and a small arm waits a
little longer than it would (few slots pool less well than many). Split evenly, on a backend with slots to spare, it
makes no difference that can be seen.

A sample of the keys under the control's settings is a ghost cache as the daemon has it: what it says each arm's own
requests would have cost, with the error of a sample.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from caches.errors import InputError
from caches.knobs import KnobSettings
from caches.shadow.kernel import HIT, MISS, Requests
from caches.shadow.sampling import key_hash
from caches.target import Split
from envs.interval import STATS, total_usd
from envs.lanes import Scene
from envs.serving import Load
from envs.traffic import warmup_candidates
from envs.world import World

Array = NDArray[Any]
BOUNDS = tuple(float(bound) for bound in 10.0 ** (np.arange(-32, 23) / 8.0))  # 0.1 ms to 560 s, 8 a decade


def key_points(num_keys: int, salt: str) -> Array:
    """Where each key of a trace lies on [0, 1), float64 (keys,). Keys of a trace are numbers that are dealt anew with
    every trace, so they are hashed faster than `tuner.router.points` hashes those of a live cache."""
    seed = int.from_bytes(hashlib.sha256(salt.encode()).digest()[:8], "big")
    return np.asarray(key_hash(num_keys, seed) * 2.0**-64)


@dataclass(frozen=True, eq=False)
class ArmRows:
    """rows: (intervals, STATS), as envs.interval. ttft, latency: (intervals, len(BOUNDS) + 1), how many requests took
    how long, by the buckets of BOUNDS."""

    rows: Array
    ttft: Array
    latency: Array


def keys_of(points: Array, split: Split, treatment: bool) -> NDArray[np.bool_]:
    """Which keys are an arm's, bool (keys,): the treatment's are those below its share."""
    below = points < split.treatment
    return np.asarray(below if treatment else ~below)


class ShadowArm:
    """One arm's cache over its own requests. keys: bool (keys of the trace,). share: of the whole deployment that it
    has; by default its share of the keys cannot be read off them, so it is given."""

    def __init__(self, world: World, keys: Array, share: float) -> None:
        if not isinstance(world.scene, Scene):
            raise InputError("trace: got a prefix cache, expected a cache of responses (its keys can be split)")
        if not 0.0 < share <= 1.0:
            raise InputError(f"share: got {share}, expected above 0 and at most 1")
        self.world, self.share = world, share
        self.scene = _part(world, world.scene, keys, share)

    def replay(self, settings: Sequence[KnobSettings], slower: Array | None = None) -> ArmRows:
        """The arm from an empty cache through the first len(settings) intervals, settings[i] (of the whole cache) in
        force in interval i. slower: what the backend's times to the first token and in all are multiplied by in each
        interval, for the histograms only."""
        intervals = len(settings)
        if intervals > len(self.world):
            raise InputError(f"settings: got {intervals}, expected at most the {len(self.world)} intervals there are")
        scene, problem = self.scene, self.world.problem
        room = intervals * problem.warmup_candidates if any(one.warmup_ratio for one in settings) else 0
        lanes = self.world.lanes_for(scene, 1, room)
        rows = np.empty((intervals, STATS))
        ttft = np.zeros((intervals, len(BOUNDS) + 1), np.int64)
        latency = np.zeros_like(ttft)
        factors = np.ones(intervals) if slower is None else np.asarray(slower, np.float64)
        values = np.array([one.as_array() for one in settings]) * (self.share, 1.0, 1.0)
        bounds = np.array(BOUNDS)
        for index in range(intervals):
            self.world.play.run_interval(scene, lanes, 0, index, values[index], rows[index])
            hits, misses = int(rows[index, 1]), int(rows[index, 0] - rows[index, 1])
            for delays, into in ((lanes.ttft[0], ttft[index]), (lanes.latency[0], latency[index])):
                _count(delays[:misses], factors[index], bounds, into)
                into[np.searchsorted(bounds, scene.backend.hit_seconds)] += hits
        return ArmRows(rows, ttft, latency)

    def costs(self, settings: KnobSettings, intervals: int, scale: float = 1.0) -> Array:
        """What each of the first intervals would have cost under fixed settings, USD, shape (intervals,): the covariate
        of an experiment. scale: what a sample's cost is multiplied by."""
        rows = self.replay([settings] * intervals).rows
        return total_usd(rows) * scale


def key_costs(world: World, settings: KnobSettings, intervals: range) -> Array:
    """What each key cost in some intervals under fixed settings, misses and expected stale answers, USD, shape (keys,):
    what a salt is balanced by. The rest of the cost (memory, waiting) is nobody's in particular."""
    arm = ShadowArm(world, np.ones(world.problem.trace.num_keys, np.bool_), 1.0)
    scene, tariff, key = arm.scene, arm.scene.tariff, world.problem.trace.key
    lanes = world.lanes_for(scene, 1, len(world) * world.problem.warmup_candidates)
    cost, row = np.zeros(world.problem.trace.num_keys), np.empty(STATS)
    for index in range(intervals.stop):
        world.play.run_interval(scene, lanes, 0, index, settings.as_array(), row)
        if index not in intervals:
            continue
        span = slice(int(scene.edges[index]), int(scene.edges[index + 1]))
        outcome, age = (column[0, : span.stop - span.start] for column in (lanes.outcome, lanes.age))
        missed = scene.gpu[span] * tariff.gpu_second * (outcome == MISS)
        stale = np.where(outcome == HIT, -np.expm1(-age / tariff.answer_lifetime_seconds), 0.0) * tariff.stale_answer
        cost += np.bincount(key[span], missed + stale, len(cost))
    return cost


def sampled(world: World, keys: Array, rate: float, seed: int) -> NDArray[np.bool_]:
    """Of some keys those that a ghost cache sees, chosen by a hash of their own."""
    return np.asarray(keys & (key_hash(world.problem.trace.num_keys, seed) * 2.0**-64 < rate))


def _part(world: World, scene: Scene, keys: Array, share: float) -> Scene:
    problem, num_keys = world.problem, world.problem.trace.num_keys
    # the scene's keys are numbered by popularity, the trace's are what `keys` speaks of
    rows = np.flatnonzero(keys[problem.trace.key])
    requests, load, backend = scene.requests, scene.load, scene.backend
    own = Requests(
        requests.key[rows],
        requests.time[rows],
        requests.size[rows],
        requests.ttl[rows] if requests.ttl.size else requests.ttl,
        requests.operation[rows] if requests.operation.size else requests.operation,
    )
    edges = np.searchsorted(rows, scene.edges).astype(np.int64)
    candidates, count = warmup_candidates(
        np.ascontiguousarray(problem.trace.key[rows], np.int32),
        edges,
        num_keys,
        max(round(problem.warmup_candidates * share), 1),
        problem.popularity_decay,
    )
    return scene._replace(
        requests=own,
        load=Load(own.time, load.prompt[rows], load.output[rows]),
        gpu=scene.gpu[rows],
        edges=edges,
        candidates=candidates,
        candidate_count=count,
        backend=backend._replace(
            slots=max(round(backend.slots * share), 1),
            vram_bytes=backend.vram_bytes * share,
            weights_bytes=backend.weights_bytes * share,
        ),
    )


@njit(cache=True)
def _count(delays: Array, factor: float, bounds: Array, into: Array) -> None:
    """Adds each delay times the factor to its bucket: the first bound that is not below it."""
    for delay in delays:
        into[np.searchsorted(bounds, delay * factor)] += 1
