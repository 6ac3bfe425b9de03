"""Work of a judgement that a Ray cluster can share: the ghost grid, replayed in parts, and the rivals, fitted apart.

config.trace.path must lead to the same trace on every node; results are equal to the digit to those of one process.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agents.baselines.catalog import FITS, Rivals, rivals_of
from agents.bundle import PolicyBundle
from agents.on_ray import run_on_ray
from agents.policy import ControlPolicy
from agents.tracks import study_for
from caches.knobs import KnobSettings
from envs.ghosts import GhostGrid, grid_of, grid_settings
from envs.world import Progress, World
from tuner.config import TunerConfig
from tuner.problem import make_problem, split_of

Array = NDArray[Any]
PARTS = 8  # tasks; each opens the trace and makes its world anew


def grid_on_ray(address: str, config: TunerConfig, world: World, progress: Progress | None = None) -> GhostGrid:
    """As envs.ghosts.ghost_grid on that world."""
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


def rivals_on_ray(address: str, config: TunerConfig, bundle: PolicyBundle, grid: GhostGrid) -> Rivals:
    """As agents.baselines.catalog.rivals in the study that the bundle is judged in."""
    return rivals_of(run_on_ray(address, _fit, [(config, bundle, grid, name) for name in FITS]))


def _fit(config: TunerConfig, bundle: PolicyBundle, grid: GhostGrid, name: str) -> ControlPolicy | None:
    study = study_for(World(make_problem(config)), split_of(config), bundle)
    return FITS[name](study, grid)
