"""The surface of a what-if for a prefix cache: every setting of a grid replayed with the engine that it feeds."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caches.errors import InputError
from caches.knobs import KnobSettings
from caches.shadow.curve import link
from envs.interval import column, total_usd
from envs.prefix_lanes import PrefixScene
from envs.world import World
from tuner.whatif_pricing import Grid
from tuner.whatif_result import Axis, HitBound
from tuner.whatif_surface import Cells

Array = NDArray[Any]
METHOD = (
    "The bound is PFOO-L (Berger, Beckmann and Harchol-Balter, SIGMETRICS 2018) over blocks, for the tuned tier and "
    "the one below together and without lifetimes: an upper limit for any cache, even one that knows the future."
)


def prefix_cells(
    world: World,
    axes: tuple[Axis, Axis],
    warmup_ratio: float,
    progress: Callable[[int, int], None] | None = None,
    bounded: bool = True,
) -> Cells:
    """Exact. A request counts as a hit by the share of its prompt that was found, in either tier.

    bounded: whether to work out the bound. InputError for another kind of cache.
    """
    scene = world.scene
    if not isinstance(scene, PrefixScene):
        raise InputError("cache: got a cache of responses, expected a prefix cache")
    settings = tuple(KnobSettings(float(s), float(t), warmup_ratio) for s, t in itertools.product(*_values(axes)))
    rows = world.replay_static(settings, len(world), progress)
    usd = total_usd(rows) - column(rows, "slow_usd")
    reads = column(rows, "requests")[0]
    shape = (1, *(len(axis.values) for axis in axes), len(world))
    compute = column(rows, "compute_usd") / scene.tariff.gpu_second
    grid = Grid(settings, usd, np.zeros(usd.shape, np.bool_), compute, exact=True)
    bound = _bound(scene, axes) if bounded else None
    return Cells(axes, reads, column(rows, "hits").reshape(shape), usd.reshape(shape), grid, bound, 1.0)


def _values(axes: tuple[Axis, Axis]) -> tuple[Array, Array]:
    return axes[0].values, axes[1].values


def _bound(scene: PrefixScene, axes: tuple[Axis, Axis]) -> HitBound:
    """Each reuse of a block is worth its share of the prompt and takes a block of room since the use before; the best
    value for room comes first, the last one in part. That only leading blocks hit is left out, which bounds too."""
    offsets = scene.chains.offsets
    first, last = offsets[scene.edges[0]], offsets[scene.edges[-1]]
    previous, _ = link(scene.chains.node[first:last], len(scene.chains.parent))
    again = np.flatnonzero(previous >= 0)
    request = np.repeat(np.arange(len(scene.load.time)), np.diff(offsets))[first:last][again]
    worth = np.minimum(scene.block_tokens / np.maximum(scene.load.prompt[request], 1), 1.0)
    cost = (again - previous[again]).astype(np.float64)
    best = np.argsort(cost / worth, kind="stable")
    costs, worths = np.concatenate(([0.0], np.cumsum(cost[best]))), np.concatenate(([0.0], np.cumsum(worth[best])))
    block_bytes = scene.kv_bytes_per_token * scene.block_tokens
    rooms = np.floor(axes[0].values / block_bytes) + scene.below_blocks
    most = np.interp(rooms * (last - first), costs, worths) / (scene.edges[-1] - scene.edges[0])
    return HitBound(np.repeat(most[:, None], len(axes[1].values), axis=1), METHOD)
