"""Chooses among a handful of candidates of one policy by rolling them out, side by side, on validation traffic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from agents.policy import ControlPolicy
from agents.rollout import roll_out
from agents.study import Study
from envs.ghosts import GhostGrid


@dataclass(frozen=True)
class Choice:
    """index: of the candidate chosen. saving: of each candidate, as a share of what the reference costs on validation
    traffic. unsafe: share of intervals in which each broke a constraint. allowed: the share up to which it counts."""

    index: int
    saving: tuple[float, ...]
    unsafe: tuple[float, ...]
    allowed: float


def choose(study: Study, grid: GhostGrid, candidates: Sequence[ControlPolicy], seed: int = 0) -> Choice:
    """The cheapest on validation traffic of those that break no more constraints than is allowed, or than the reference
    does there; if none, the one that breaks them least often. Of equals the first. Candidates are left reset."""
    rolled = roll_out(study.reference, study.scale, candidates, study.validation, seed, grid, study.every)
    constraints = study.world.problem.constraints
    broken, allowed = rolled.unsafe(constraints), rolled.tolerated(constraints)
    usd = rolled.usd.sum(axis=1)
    index = min(range(len(candidates)), key=lambda i: (max(broken[i] - allowed, 0.0), usd[i]))
    for lane, policy in enumerate(candidates):
        policy.reset(seed + lane)
    saving = 1.0 - usd / rolled.reference_usd.sum()
    return Choice(index, tuple(np.asarray(saving).tolist()), tuple(broken.tolist()), allowed)
