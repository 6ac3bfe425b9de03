"""The surface of a what-if in money, for one kind of cache: what every setting of a grid would have cost."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from agents.uncertainty import CONFIDENCE
from caches.errors import InputError
from caches.knobs import Knob, KnobSettings
from envs.lanes import Scene
from envs.world import World
from traces.whatif import Sampling, Sums, Traffic, bounds, sampled_bounds, sampled_surface, surface
from traces.whatif_kernel import Ahead
from tuner.whatif_pricing import Grid
from tuner.whatif_result import Axis, HitBound, Surface
from tuner.whatif_sample import expected_reads

Array = NDArray[Any]
Progress = Callable[[int, int], None]

MIN_METHOD = (
    "The bound is Belady's MIN, which knows the future and evicts what is needed last; all entries here have one size"
)
PFOO_METHOD = (
    "The bound is PFOO-L (Berger, Beckmann and Harchol-Balter, SIGMETRICS 2018), an upper limit for any cache, even "
    "one that knows the future; it may lie above what is possible"
)


@dataclass(frozen=True, eq=False)
class Cells:
    """usd: without slow requests; hits: lookups answered; both (samples, sizes, ttls, intervals). reads: lookups in
    each interval. grid: the same as a list of settings. share: of the keys in each sample, 1 where all is exact."""

    axes: tuple[Axis, Axis]
    reads: Array
    hits: Array
    usd: Array
    grid: Grid
    bound: HitBound | None
    share: float

    @property
    def samples(self) -> int:
        return int(self.usd.shape[0])

    @property
    def hit_ratio(self) -> Surface:
        found = _surface("hit_ratio", "ratio", self.hits.sum(axis=-1) / self.reads.sum())
        return replace(found, values=found.values.clip(0.0, 1.0))  # an estimate may leave the range

    @property
    def usd_per_1000(self) -> Surface:
        return _surface("usd_per_1000", "USD", 1000.0 * self.usd.sum(axis=-1) / self.reads.sum())


def axis_of(knob: Knob, points: int) -> Axis:
    """Equally spaced over the knob's range, in its own scale."""
    return Axis(knob.name, knob.unit, np.array([knob.value(float(place)) for place in np.linspace(0.0, 1.0, points)]))


def response_cells(
    world: World,
    axes: tuple[Axis, Axis],
    warmup_ratio: float,
    sampling: Sampling | None,
    progress: Progress | None = None,
    bounded: bool = True,
) -> Cells:
    """A cache of responses. sampling: None for an exact surface. bounded: whether to work out the bound. Raises
    InputError for another kind of cache."""
    scene, problem = world.scene, world.problem
    if not isinstance(scene, Scene):
        raise InputError("cache: got a prefix cache, expected a cache of responses")
    traffic = Traffic(
        scene.requests,
        problem.trace.num_keys,
        scene.edges,
        scene.gpu,
        problem.prices.answer_lifetime_seconds,
        problem.expiry,
        _ahead(scene, warmup_ratio),
        expected_reads(world),
        world.rules,
    )
    threads, (sizes, ttls) = world.crew.threads, (axis.values for axis in axes)
    if sampling is None:
        sums = surface(traffic, sizes, ttls, threads, progress)
    else:
        sums = sampled_surface(traffic, sizes, ttls, sampling, threads, progress)
    usd = _priced(scene, sums, sizes)
    grid = _grid(axes, warmup_ratio, sums, usd, problem.constraints.stale_ratio)
    bound = _bound(traffic, sizes, ttls, sampling, threads) if bounded else None
    return Cells(axes, sums.reads, sums.hits, usd, grid, bound, sums.share)


def _ahead(scene: Scene, warmup_ratio: float) -> Ahead | None:
    """Whom the warm-ups of that ratio would fetch, as envs.lanes rounds it."""
    if not warmup_ratio > 0:
        return None
    wanted = np.round(warmup_ratio * scene.candidate_count).astype(np.int64)
    return Ahead(scene.candidates, wanted, scene.start, scene.seconds)


def _priced(scene: Scene, sums: Sums, sizes: Array) -> Array:
    """Money by envs.reward.price, without slow requests: (samples, sizes, ttls, intervals)."""
    tariff = scene.tariff
    compute = (sums.missed_compute + sums.warmup_compute * tariff.warmup_factor) * tariff.gpu_second
    memory = sizes * scene.seconds * tariff.byte_second
    return np.asarray(compute + sums.stale_answers * tariff.stale_answer + memory[:, None, None])


def _bound(traffic: Traffic, sizes: Array, ttls: Array, sampling: Sampling | None, threads: int) -> HitBound | None:
    """None with warm-ups: with them a cache may hit what was never asked for before."""
    if traffic.ahead is not None:
        return None
    if sampling is None:
        found, estimated = bounds(traffic, sizes, ttls, threads), "."
    else:
        found = sampled_bounds(traffic, sizes, ttls, sampling, threads)
        estimated = "; it is estimated from the same samples of keys."
    method = MIN_METHOD if found.exact else PFOO_METHOD
    return HitBound(found.hits / traffic.reads.sum(), method + estimated)


def _grid(axes: tuple[Axis, Axis], warmup_ratio: float, sums: Sums, usd: Array, stale_limit: float) -> Grid:
    every = itertools.product(axes[0].values, axes[1].values)
    settings = tuple(KnobSettings(float(size), float(ttl), warmup_ratio) for size, ttl in every)

    def as_list(each: Array) -> Array:
        return np.asarray(each.mean(axis=0).reshape(len(settings), -1))

    hits, stale = as_list(sums.hits), as_list(sums.stale_answers)
    broken = (hits > 0) & (stale > stale_limit * hits)
    return Grid(settings, as_list(usd), broken, as_list(sums.missed_compute), sums.samples == 1)


def _surface(name: str, unit: str, each: Array) -> Surface:
    """each: (samples, sizes, ttls)."""
    if len(each) == 1:
        return Surface(name, unit, each[0])
    return Surface(name, unit, each.mean(axis=0), half_width(each))


def half_width(each: Array) -> Array:
    """Of the 95 % interval of the mean over the first axis, by Student's t."""
    samples = len(each)
    reach = float(stats.t.ppf(0.5 + CONFIDENCE / 2, samples - 1)) / np.sqrt(samples)
    return np.asarray(reach * each.std(axis=0, ddof=1))
