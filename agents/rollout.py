"""Runs control policies over a stretch of traffic, side by side on the same requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agents.policy import ControlPolicy, Ghosts, Sight
from envs.control import LaneControl
from envs.ghosts import GhostGrid, joined
from envs.interval import STATS, total_usd, unsafe
from envs.observation import ObservationScale
from envs.reward import Constraints
from envs.world import Reference

Array = NDArray[Any]


@dataclass(frozen=True)
class Rollout:
    """rows: (policies, intervals, STATS). settings: (policies, intervals, 3), in force. reference_rows: (intervals,
    STATS)."""

    names: tuple[str, ...]
    part: range
    rows: Array
    settings: Array
    reference_rows: Array

    @property
    def usd(self) -> Array:
        """(policies, intervals)."""
        return total_usd(self.rows)

    @property
    def reference_usd(self) -> Array:
        """(intervals,)."""
        return total_usd(self.reference_rows)

    def unsafe(self, constraints: Constraints) -> Array:
        """(policies,), the share of intervals in which each broke a constraint."""
        return np.asarray(unsafe(self.rows, constraints).mean(axis=1))

    def tolerated(self, constraints: Constraints) -> float:
        """The share of unsafe intervals up to which it does not count: the limit, or what the reference does there."""
        own = float(unsafe(self.reference_rows, constraints).mean())
        return max(constraints.max_unsafe_per_1000 / 1000.0, own)


def roll_out(
    reference: Reference,
    scale: ObservationScale,
    policies: Sequence[ControlPolicy],
    part: range,
    seed: int = 0,
    grid: GhostGrid | None = None,
) -> Rollout:
    """Each policy in a lane of its own, from the state the reference left at the beginning of `part` (which must be
    marked). Policy i is reset with seed + i. grid: shown to the policies up to the interval before, the reference as
    one more ghost."""
    control = LaneControl(reference, scale, len(policies), len(part))
    checkpoint = reference.checkpoint(part.start)
    for lane, policy in enumerate(policies):
        control.reset(lane, checkpoint)
        policy.reset(seed + lane)
    shown = None if grid is None else joined(grid, reference)
    rows = np.empty((len(policies), len(part), STATS))
    settings = np.empty((len(policies), len(part), 3))
    for step in range(len(part)):
        sights = look_around(control, shown)
        actions = np.stack([policy.act(sight) for policy, sight in zip(policies, sights, strict=True)])
        control.step(np.clip(actions, -1.0, 1.0))
        rows[:, step], settings[:, step] = control.rows, control.settings
    names = tuple(policy.name for policy in policies)
    return Rollout(names, part, rows, settings, reference.rows[part.start : part.stop])


def look_around(control: LaneControl, grid: GhostGrid | None) -> list[Sight]:
    """What every lane's policy sees when its next interval begins."""
    observations, now = control.observe(), control.now_seconds()
    return [
        Sight(
            observations[lane],
            int(control.index[lane]),
            float(now[lane]),
            control.rows[lane],
            control.positions[lane],
            None if grid is None else _known(grid, int(control.index[lane])),
        )
        for lane in range(control.count)
    ]


def _known(grid: GhostGrid, before: int) -> Ghosts:
    return Ghosts(grid.positions, grid.usd[:, :before], grid.unsafe[:, :before])
