"""Runs control policies over a stretch of traffic, side by side on the same requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agents.policy import ControlPolicy
from envs.control import LaneControl
from envs.interval import STATS, total_usd
from envs.observation import ObservationScale
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


def roll_out(
    reference: Reference,
    scale: ObservationScale,
    policies: Sequence[ControlPolicy],
    part: range,
    seed: int = 0,
) -> Rollout:
    """Each policy in a lane of its own, from the state the reference left at the beginning of `part` (which must be
    marked). Policy i is reset with seed + i."""
    control = LaneControl(reference, scale, len(policies), len(part))
    checkpoint = reference.checkpoint(part.start)
    for lane, policy in enumerate(policies):
        control.reset(lane, checkpoint)
        policy.reset(seed + lane)
    rows = np.empty((len(policies), len(part), STATS))
    settings = np.empty((len(policies), len(part), 3))
    for step in range(len(part)):
        observations = control.observe()
        actions = np.stack([policy.act(seen) for policy, seen in zip(policies, observations, strict=True)])
        control.step(np.clip(actions, -1.0, 1.0))
        rows[:, step], settings[:, step] = control.rows, control.settings
    names = tuple(policy.name for policy in policies)
    return Rollout(names, part, rows, settings, reference.rows[part.start : part.stop])
