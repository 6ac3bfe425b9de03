"""Fits the what-if controller to a study: a handful of candidates, the cheapest on validation traffic."""

from __future__ import annotations

import itertools
import math

from agents.baselines.fitting import choose
from agents.study import Study
from agents.whatif import WhatIf, WhatIfController
from caches.policies.pair import CachePolicy
from envs.ghosts import GhostGrid

MEMORIES, REACHES = (0.6, 0.9, 0.97), (0.25, 1.0)
CAUTION = ((0.003, 0.0), (0.02, 0.5))  # margin and charge


def fit_whatif(study: Study, grid: GhostGrid) -> WhatIfController:
    """The candidate that is cheapest on validation traffic; never moving is one of them, so that a controller that only
    chases noise stays at home."""
    candidates = [controller_for(study, options) for options in (WhatIf(margin=math.inf), *tried())]
    return candidates[choose(study, grid, candidates).index]


def fit_choosing(study: Study, grid: GhostGrid, fixed: WhatIfController) -> WhatIfController:
    """The same with the eviction policy as one more choice, `study.every` the ghosts under each; `fixed`, which stays
    under the study's own, where none of them is cheaper on validation traffic, or where there is nothing to choose."""
    if study.every is None:
        return fixed
    candidates = [fixed, *(controller_for(study, options, study.every.choices) for options in tried())]
    return candidates[choose(study, grid, candidates).index]


def tried() -> list[WhatIf]:
    """Options of the candidates that move."""
    return [
        WhatIf(memory, margin, charge, reach)
        for memory, reach, (margin, charge) in itertools.product(MEMORIES, REACHES, CAUTION)
    ]


def controller_for(study: Study, options: WhatIf, choices: tuple[CachePolicy, ...] = ()) -> WhatIfController:
    """Around the study's reference, within its limits."""
    problem = study.world.problem
    home = problem.knobs.positions(study.reference.settings)
    allowed = problem.constraints.max_unsafe_per_1000 / 1000.0
    return WhatIfController(home, problem.knobs.max_steps, allowed, options, choices)
