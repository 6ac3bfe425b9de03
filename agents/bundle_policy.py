"""A bundle at work."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from agents.bundle import PolicyBundle
from agents.policy import Sight
from agents.rules import RULES
from agents.whatif import WhatIfController
from caches.policies.pair import CachePolicy


class BundlePolicy:
    """A bundle as a control policy, without torch: the actor of a trained one, the rule of a fitted one, no deviation
    for a static one."""

    def __init__(self, name: str, bundle: PolicyBundle) -> None:
        self.name = name
        self._actor = bundle.actor() if bundle.kind == "ppo" else None
        self._rule = bundle.rule() if bundle.kind in RULES else None

    def reset(self, seed: int) -> None:
        if self._rule is not None:
            self._rule.reset(seed)

    def memory(self) -> list[float]:
        """What it carries from one interval to the next, for `recall`: a daemon that starts anew goes on from there."""
        return self._rule.target.tolist() if isinstance(self._rule, WhatIfController) else []

    def recall(self, memory: Sequence[float]) -> None:
        """InputError where it is not the memory of such a policy."""
        if isinstance(self._rule, WhatIfController):
            self._rule.recall(np.array(memory))

    @property
    def choices(self) -> tuple[CachePolicy, ...]:
        """Eviction policies that it chooses between; none for most."""
        return self._rule.choices if isinstance(self._rule, WhatIfController) else ()

    @property
    def choice(self) -> int:
        """As last decided."""
        return self._rule.choice if isinstance(self._rule, WhatIfController) else 0

    def act(self, sight: Sight) -> NDArray[np.float64]:
        if self._rule is not None:
            return self._rule.act(sight)
        return np.zeros(3) if self._actor is None else self._actor.act(sight.observation)
