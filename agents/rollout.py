"""Runs control policies over a stretch of traffic, side by side on the same requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agents.policy import ChoosingPolicy, ControlPolicy, Ghosts, Sight, choices_of
from caches.errors import InputError
from envs.control import LaneControl
from envs.ghosts import ChoiceGrid, GhostGrid, joined
from envs.interval import STATS, total_usd, unsafe
from envs.observation import ObservationScale
from envs.reward import Constraints
from envs.world import Reference

Array = NDArray[Any]


@dataclass(frozen=True)
class Rollout:
    """rows: (policies, intervals, STATS). settings: (policies, intervals, 3), in force. reference_rows: (intervals,
    STATS). choice: int64 (policies, intervals), the eviction policies in force, as one of each policy's choices."""

    names: tuple[str, ...]
    part: range
    rows: Array
    settings: Array
    reference_rows: Array
    choice: Array

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
    every: ChoiceGrid | None = None,
) -> Rollout:
    """Each policy in a lane of its own, from the state the reference left at the beginning of `part` (which must be
    marked). Policy i is reset with seed + i. grid: shown to the policies up to the interval before, the reference as
    one more ghost. every: the same for those that choose an eviction policy, whose choices it has to have.

    Raises InputError for a policy with other choices.
    """
    for lane, policy in enumerate(policies):
        policy.reset(seed + lane)
    done = Rollout(
        tuple(policy.name for policy in policies),
        part,
        np.empty((len(policies), len(part), STATS)),
        np.empty((len(policies), len(part), 3)),
        reference.rows[part.start : part.stop],
        np.zeros((len(policies), len(part)), np.int64),
    )
    choosing = [bool(choices_of(policy)) for policy in policies]
    if not all(choosing):
        control = LaneControl(reference, scale, choosing.count(False), len(part))
        shown = None if grid is None else joined(grid, reference)
        _roll(control, policies, np.flatnonzero(np.logical_not(choosing)), shown, done)
    if any(choosing):
        _require_choices([policy for policy in policies if choices_of(policy)], every)
        assert every is not None
        there = reference.on(reference.world.choosing(every.choices), [part.start])
        control = LaneControl(there, scale, choosing.count(True), len(part))
        _roll(control, policies, np.flatnonzero(choosing), every, done)
    return done


def _require_choices(policies: Sequence[ControlPolicy], every: ChoiceGrid | None) -> None:
    for policy in policies:
        if every is None or choices_of(policy) != every.choices:
            known = "none" if every is None else ", ".join(map(str, every.choices))
            raise InputError(
                f"{policy.name}: got choices {', '.join(map(str, choices_of(policy)))}, expected those of the ghosts: "
                f"{known}"
            )


def _roll(
    control: LaneControl,
    policies: Sequence[ControlPolicy],
    which: NDArray[np.intp],
    shown: GhostGrid | ChoiceGrid | None,
    done: Rollout,
) -> None:
    """Those of the policies in the lanes of a control, written to `done`."""
    checkpoint, mine = control.reference.checkpoint(done.part.start), [policies[place] for place in which]
    for lane in range(len(mine)):
        control.reset(lane, checkpoint)
    for step in range(len(done.part)):
        sights = look_around(control, shown)
        actions = np.stack([policy.act(sight) for policy, sight in zip(mine, sights, strict=True)])
        choice = [policy.choice if isinstance(policy, ChoosingPolicy) else 0 for policy in mine]
        control.step(np.clip(actions, -1.0, 1.0), np.array(choice))
        done.rows[which, step], done.settings[which, step] = control.rows, control.settings
        done.choice[which, step] = control.choice


def look_around(control: LaneControl, grid: GhostGrid | ChoiceGrid | None) -> list[Sight]:
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
            int(control.choice[lane]),
        )
        for lane in range(control.count)
    ]


def _known(grid: GhostGrid | ChoiceGrid, before: int) -> Ghosts:
    policy = grid.policy if isinstance(grid, ChoiceGrid) else None
    return Ghosts(grid.positions, grid.usd[:, :before], grid.unsafe[:, :before], policy)
