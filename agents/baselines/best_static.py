"""The best single setting in hindsight on training traffic: a grid, then a local search."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caches.knobs import KnobSettings
from envs.ghosts import GRID, GhostGrid, grid_settings
from envs.interval import total_usd, unsafe
from envs.world import Progress, World

Array = NDArray[Any]

LOCAL_ROUNDS = 5  # each halves the distance to the neighbours


@dataclass(frozen=True)
class StaticFit:
    """settings: the cheapest that keeps the constraints on training traffic, or, if none does, the one that breaks them
    least often (`feasible` False). tried: everything priced, with usd and unsafe intervals per 1,000 in training."""

    settings: KnobSettings
    usd: float
    unsafe_per_1000: float
    feasible: bool
    tried: tuple[tuple[KnobSettings, float, float], ...]


def fit_best_static(
    world: World, training: range, progress: Progress | None = None, grid: GhostGrid | None = None
) -> StaticFit:
    """Only looks at traffic up to the end of `training`, from an empty cache at the trace's start. grid: of
    `envs.ghosts.grid_settings`, where it was replayed already."""
    knobs = world.problem.knobs
    search = _Search(world, training, progress)
    if grid is None:
        search.try_all(grid_settings(knobs))
    else:
        search.keep(grid.settings, grid.rows[:, : training.stop])
    spacing = np.array([1.0 / (size - 1) for size in GRID])
    for _ in range(LOCAL_ROUNDS):
        spacing = spacing / 2.0
        here = knobs.positions(search.best[0])
        steps = itertools.product((-1.0, 0.0, 1.0), repeat=3)
        search.try_all([knobs.settings(np.clip(here + spacing * np.array(step), 0.0, 1.0)) for step in steps])
    settings, usd, broken = search.best
    limit = world.problem.constraints.max_unsafe_per_1000
    return StaticFit(settings, usd, broken, broken <= limit, tuple(search.tried.values()))


class _Search:
    def __init__(self, world: World, training: range, progress: Progress | None) -> None:
        self.world, self.training, self.progress = world, training, progress
        self.tried: dict[KnobSettings, tuple[KnobSettings, float, float]] = {}
        self._expected = int(np.prod(GRID)) + LOCAL_ROUNDS * 26

    def try_all(self, settings: Sequence[KnobSettings]) -> None:
        new = [one for one in dict.fromkeys(settings) if one not in self.tried]
        done = len(self.tried)

        def report(count: int, _: int) -> None:
            if self.progress is not None:
                self.progress(min(done + count, self._expected), self._expected)

        self.keep(new, self.world.replay_static(new, self.training.stop, report))

    def keep(self, settings: Sequence[KnobSettings], rows: Array) -> None:
        """rows: (settings, training.stop, STATS)."""
        rows = rows[:, self.training.start :]
        broken = 1000.0 * unsafe(rows, self.world.problem.constraints).mean(axis=1)
        for one, usd, share in zip(settings, total_usd(rows).sum(axis=1), broken, strict=True):
            self.tried[one] = (one, float(usd), float(share))

    @property
    def best(self) -> tuple[KnobSettings, float, float]:
        limit = self.world.problem.constraints.max_unsafe_per_1000
        return min(self.tried.values(), key=lambda one: (max(one[2] - limit, 0.0), one[1]))
