"""Work of a judgement that a Ray cluster can share: the ghost grid, replayed in parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agents.on_ray import run_on_ray
from caches.knobs import KnobSettings
from envs.ghosts import GhostGrid, grid_of, grid_settings
from envs.world import Progress, World
from tuner.config import TunerConfig
from tuner.problem import make_problem

Array = NDArray[Any]
PARTS = 8  # tasks; each opens the trace and makes its world anew


def grid_on_ray(address: str, config: TunerConfig, world: World, progress: Progress | None = None) -> GhostGrid:
    """As envs.ghosts.ghost_grid on that world, equal to the digit. config.trace.path must lead to its trace on every
    node."""
    settings = grid_settings(world.problem.knobs)
    parts = [[settings[i] for i in places] for places in np.array_split(np.arange(len(settings)), PARTS)]
    done: list[int] = []

    def report(part: int) -> None:
        done.append(len(parts[part]))
        if progress is not None:
            progress(sum(done), len(settings))

    rows = run_on_ray(address, _replay, [(config, part) for part in parts], report)
    return grid_of(world, settings, np.concatenate(rows))


def _replay(config: TunerConfig, settings: Sequence[KnobSettings]) -> Array:
    world = World(make_problem(config))
    return world.replay_static(settings, len(world))
