"""Ghost caches: a grid of settings, each held fixed from the trace's start, on the same requests."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caches.knobs import KnobSettings, KnobSpace
from caches.policies.pair import CachePolicy
from envs.interval import total_usd, unsafe
from envs.reward import Constraints
from envs.world import Progress, Reference, World

Array = NDArray[Any]

GRID = (6, 8, 3)  # positions per knob: cache_size, ttl_seconds, warmup_ratio


@dataclass(frozen=True)
class GhostGrid:
    """settings: one per ghost. positions: (ghosts, 3). rows: (ghosts, intervals, STATS)."""

    settings: tuple[KnobSettings, ...]
    positions: Array
    rows: Array
    constraints: Constraints

    @cached_property
    def usd(self) -> Array:
        """Cost in each interval, shape (ghosts, intervals)."""
        return total_usd(self.rows)

    @cached_property
    def unsafe(self) -> NDArray[np.bool_]:
        """Which intervals broke a constraint, shape (ghosts, intervals)."""
        return unsafe(self.rows, self.constraints)


@dataclass(frozen=True)
class ChoiceGrid:
    """The grids of several eviction policies as one, of which only costs are kept. choices: the policies, the cache's
    own first. positions, usd, unsafe: as of a GhostGrid. policy: int64 (ghosts,), which of the choices each is under.
    """

    choices: tuple[CachePolicy, ...]
    positions: Array
    policy: NDArray[np.int64]
    usd: Array
    unsafe: NDArray[np.bool_]


Costs = tuple[Array, NDArray[np.bool_]]  # usd and unsafe of a GhostGrid


def choice_grid(
    world: World,
    choices: Sequence[CachePolicy],
    home: KnobSettings,
    known: Mapping[CachePolicy, Costs] = MappingProxyType({}),
) -> ChoiceGrid:
    """Under each of the choices, and under the world's own, `grid_settings` and `home`, over the whole trace. known: of
    `grid_settings` under policies where they were replayed already."""
    knobs, every = world.problem.knobs, tuple(dict.fromkeys((world.problem.policy, *choices)))
    settings = grid_settings(knobs)
    more = [] if home in settings else [home]
    usd, broken = [], []
    for policy in every:
        there = world.under(policy)
        costs = [known[policy]] if policy in known else [_costs(ghost_grid(there, settings))]
        costs += [_costs(ghost_grid(there, more))] if more else []
        usd += [one for one, _ in costs]
        broken += [one for _, one in costs]
    settings += more
    positions = np.array([knobs.positions(one) for one in settings])
    return ChoiceGrid(
        every,
        np.tile(positions, (len(every), 1)),
        np.repeat(np.arange(len(every)), len(settings)),
        np.concatenate(usd),
        np.concatenate(broken),
    )


def _costs(grid: GhostGrid) -> Costs:
    return grid.usd, grid.unsafe


def grid_settings(knobs: KnobSpace, sizes: Sequence[int] = GRID) -> list[KnobSettings]:
    """Evenly spaced positions of every knob, each with each; a setting that occurs twice counts once."""
    axes = (np.linspace(0.0, 1.0, size) for size in sizes)
    return list(dict.fromkeys(knobs.settings(np.array(point)) for point in itertools.product(*axes)))


def ghost_grid(
    world: World, settings: Sequence[KnobSettings] | None = None, progress: Progress | None = None
) -> GhostGrid:
    """Replays the settings (by default `grid_settings`) over the whole trace."""
    every = grid_settings(world.problem.knobs) if settings is None else settings
    return grid_of(world, every, world.replay_static(every, len(world), progress))


def grid_of(world: World, settings: Sequence[KnobSettings], rows: Array) -> GhostGrid:
    """Of settings that were replayed over the whole trace. rows: (settings, intervals, STATS)."""
    problem = world.problem
    positions = np.array([problem.knobs.positions(one) for one in settings])
    return GhostGrid(tuple(settings), positions, rows, problem.constraints)


def joined(grid: GhostGrid, reference: Reference) -> GhostGrid:
    """The grid with the reference as one more ghost, the last one, unless it is among them."""
    if reference.settings in grid.settings:
        return grid
    home = reference.world.problem.knobs.positions(reference.settings)
    return replace(
        grid,
        settings=(*grid.settings, reference.settings),
        positions=np.vstack((grid.positions, home)),
        rows=np.concatenate((grid.rows, reference.rows[None])),
    )
