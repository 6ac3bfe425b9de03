"""Fits the hour-of-week schedule to a study's training traffic."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agents.baselines.fitting import choose
from agents.baselines.schedule import HourSchedule, cycle_hours, hour_of
from agents.study import Study
from envs.ghosts import GhostGrid, joined

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Samples:
    """usd: (ghosts, intervals), cost above the reference's. slot: (intervals,), the hour that each lies in. allowed:
    (ghosts,), those that keep the constraints."""

    usd: FloatArray
    slot: NDArray[np.int64]
    allowed: NDArray[np.bool_]


def cheapest_by_slot(samples: Samples, hours: int, shrinkage: float) -> NDArray[np.int64]:
    """Which ghost is expected to be cheapest in each slot, shape (hours,).

    A ghost's mean in a slot of n intervals is drawn towards its mean over all: (n x mean in the slot + shrinkage x mean
    over all) / (n + shrinkage), as an estimate under a normal prior is. A slot without intervals gets the overall best.
    """
    overall = samples.usd.mean(axis=1)
    picks = np.empty(hours, np.int64)
    for hour in range(hours):
        inside = samples.usd[:, samples.slot == hour]
        expected = (inside.sum(axis=1) + shrinkage * overall) / (inside.shape[1] + shrinkage)
        picks[hour] = np.argmin(np.where(samples.allowed, expected, np.inf))
    return picks


SHRINKAGES = (0.5, 2.0, 8.0, 32.0, 128.0, 512.0)  # intervals


def fit_schedule(study: Study, grid: GhostGrid) -> HourSchedule:
    """With the shrinkage of SHRINKAGES that is cheapest on validation traffic."""
    candidates = [schedule_for(study, grid, shrinkage) for shrinkage in SHRINKAGES]
    return candidates[choose(study, grid, candidates).index]


def schedule_for(study: Study, grid: GhostGrid, shrinkage: float) -> HourSchedule:
    """From the ghosts and the reference on training traffic. Ghosts that broke more constraints there than is allowed,
    and than the reference did, are out."""
    ghosts, part = joined(grid, study.reference), slice(study.training.start, study.training.stop)
    hours = cycle_hours(study.scale)
    broken = ghosts.unsafe[:, part].mean(axis=1)
    own = ghosts.settings.index(study.reference.settings)
    limit = study.world.problem.constraints.max_unsafe_per_1000 / 1000.0
    excess = ghosts.usd[:, part] - study.reference.usd[part]
    samples = Samples(excess, hour_of(interval_times(study), hours), broken <= max(limit, float(broken[own])))
    return HourSchedule(ghosts.positions[own], ghosts.positions[cheapest_by_slot(samples, hours, shrinkage)])


def interval_times(study: Study) -> FloatArray:
    """When each training interval begins, on the clock of `Sight.now_seconds`."""
    world = study.world
    start = (world.problem.trace.info.start_unix_seconds or 0.0) + world.timeline.start_seconds
    intervals = np.arange(study.training.start, study.training.stop, dtype=np.float64)
    return np.asarray(start + world.problem.interval_seconds * intervals)
