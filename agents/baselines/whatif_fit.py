"""Fits the what-if controller to a study: a handful of candidates, the cheapest on validation traffic."""

from __future__ import annotations

import itertools
import math

from agents.baselines.fitting import choose
from agents.study import Study
from agents.whatif import WhatIf, WhatIfController
from envs.ghosts import GhostGrid

MEMORIES, REACHES = (0.6, 0.9, 0.97), (0.25, 1.0)
CAUTION = ((0.003, 0.0), (0.02, 0.5))  # margin and charge


def fit_whatif(study: Study, grid: GhostGrid) -> WhatIfController:
    """The candidate that is cheapest on validation traffic; never moving is one of them, so that a controller that only
    chases noise stays at home."""
    tried = [
        WhatIf(memory, margin, charge, reach)
        for memory, reach, (margin, charge) in itertools.product(MEMORIES, REACHES, CAUTION)
    ]
    candidates = [controller_for(study, options) for options in (WhatIf(margin=math.inf), *tried)]
    return candidates[choose(study, grid, candidates).index]


def controller_for(study: Study, options: WhatIf) -> WhatIfController:
    """Around the study's reference, within its limits."""
    problem = study.world.problem
    home = problem.knobs.positions(study.reference.settings)
    return WhatIfController(home, problem.knobs.max_steps, problem.constraints.max_unsafe_per_1000 / 1000.0, options)
