"""Every control policy without deep learning, fitted for one study, in the order in which tables show them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agents.baselines.bandit import fit_bandit, is_offered
from agents.baselines.elastic import fit_elastic_ttl
from agents.baselines.pid import fit_pid
from agents.baselines.schedule import HourSchedule
from agents.baselines.schedule_fit import fit_schedule
from agents.baselines.ttl import fit_formula_ttl, fit_target_ttl
from agents.baselines.whatif_fit import fit_whatif
from agents.policy import ControlPolicy
from agents.study import Study
from agents.whatif import WhatIfController
from envs.ghosts import GhostGrid

NO_CLASSES = "Elastic TTL is left out: no key of training traffic is requested twice."
NO_BANDIT = "The contextual bandit is left out: its package is not installed (pip install 'setpoint[bandit]')."
STAYS = "The what-if controller found no move that pays on validation traffic and stays at the best static setting."

NO_HOUR = "The schedule found no hour in which another setting pays and stays at the best static setting."


@dataclass(frozen=True)
class Rivals:
    """policies: in a fixed order, with stable names. notes: sentences on what is missing or was decided, to be shown
    beside the table."""

    policies: tuple[ControlPolicy, ...]
    notes: tuple[str, ...]


def _bandit(study: Study, grid: GhostGrid) -> ControlPolicy | None:
    return fit_bandit(study, grid) if is_offered() else None


Fit = Callable[[Study, GhostGrid], ControlPolicy | None]
# In the order of the tables; each can be fitted alone. None: not to be had.
FITS: dict[str, Fit] = {
    "what-if controller": fit_whatif,
    "target TTL": fit_target_ttl,
    "elastic TTL": lambda study, _: fit_elastic_ttl(study),
    "formula TTL": lambda study, _: fit_formula_ttl(study),
    "PID to P99": fit_pid,
    "contextual bandit": _bandit,
    "hour-of-week schedule": fit_schedule,
}


def rivals(study: Study, grid: GhostGrid) -> Rivals:
    """Fitted on training traffic and checked on validation traffic; nothing of the test traffic is looked at.

    grid: of `envs.ghosts.ghost_grid`, over the whole trace; only its part before the test traffic is used here.
    """
    return rivals_of([fit(study, grid) for fit in FITS.values()])


def rivals_of(fitted: Sequence[ControlPolicy | None]) -> Rivals:
    """fitted: one for each of FITS, in their order."""
    controller, _, elastic, _, _, bandit, schedule = fitted
    assert isinstance(controller, WhatIfController)
    assert isinstance(schedule, HourSchedule)
    remarks = (
        (NO_CLASSES, elastic is None),
        (NO_BANDIT, bandit is None),
        (STAYS, math.isinf(controller.options.margin)),
        (NO_HOUR, bool((schedule.slots == schedule.home).all())),
    )
    policies = tuple(policy for policy in fitted if policy is not None)
    return Rivals(policies, tuple(note for note, holds in remarks if holds))
