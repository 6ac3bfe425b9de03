"""What each stage of a request's path may take, so that the whole keeps an objective.

The longest path is through all stages: the key, every tier, the backend. What comes before the backend is given small
shares of the objective, since it is there to be quick, and a tier never more than its own time limit. Tiers of one
level are asked one after the other and share what is the level's, in equal parts. The backend has all the rest, so the
budgets add up to the objective exactly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from caches.errors import InputError
from caches.place import Place


class Stage(StrEnum):
    """In the order of a request. L1: this process alone. L2: what outlives it or is shared. L3: answers by meaning."""

    KEY = "key"
    L1 = "l1"
    L2 = "l2"
    L3 = "l3"
    BACKEND = "backend"


LEVELS = (Stage.L1, Stage.L2, Stage.L3)
SHARES: Mapping[Stage, float] = MappingProxyType(
    {Stage.KEY: 0.01, Stage.L1: 0.01, Stage.L2: 0.04, Stage.L3: 0.04}  # of the objective
)


@dataclass(frozen=True)
class Limited:
    """A tier. limit_seconds: how long it may take before it is given up; None where it answers at once."""

    stage: Stage
    limit_seconds: float | None


def limited(place: Place) -> Limited:
    return Limited(stage_of(place), place.slow_seconds)


def stage_of(place: Place) -> Stage:
    return LEVELS[place.level - 1]


@dataclass(frozen=True)
class Budget:
    """whole_seconds: of a request from end to end. stages: seconds of one pass through each; a level without a tier is
    left out."""

    whole_seconds: float
    stages: Mapping[Stage, float]


def budget_of(objective_seconds: float, tiers: Sequence[Limited]) -> Budget:
    """Raises InputError for an objective that is not above 0."""
    if not objective_seconds > 0:
        raise InputError(f"objective: got {objective_seconds} s, expected above 0")
    found = {Stage.KEY: SHARES[Stage.KEY] * objective_seconds}
    spent = found[Stage.KEY]
    for stage in LEVELS:
        there = [tier for tier in tiers if tier.stage is stage]
        if there:
            limits = [tier.limit_seconds for tier in there if tier.limit_seconds is not None]
            found[stage] = min([SHARES[stage] * objective_seconds / len(there), *limits])
            spent += len(there) * found[stage]
    return Budget(objective_seconds, found | {Stage.BACKEND: objective_seconds - spent})
