"""Regret: what the cache cost lately beyond the cheapest fixed setting that ghosts followed through the same intervals.

Ghosts know fixed settings of a grid, not the best there is. What no setting could have saved, the bound, needs the
future: only an evaluation offline can tell it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agents.policy import Ghosts
from tuner.account import cost_usd, value
from tuner.loop.closing import Looked
from tuner.records import IntervalRecord

Array = NDArray[Any]

LATELY = 24  # intervals


@dataclass(frozen=True)
class GhostInterval:
    """Of one interval, shape (ghosts,) each: what it cost and whether it broke a constraint; positions: (ghosts, 3)."""

    positions: Array
    usd: Array
    unsafe: NDArray[np.bool_]


def ghost_interval(looked: Looked) -> GhostInterval | None:
    """None where the key stream says nothing of this interval, though it may of earlier ones."""
    ghosts: Ghosts | None = looked.keys.ghosts
    if ghosts is None or not ghosts.usd.shape[1] or np.isnan(looked.keys.traffic[0]):
        return None
    return GhostInterval(ghosts.positions, ghosts.usd[:, -1], ghosts.unsafe[:, -1])


@dataclass(frozen=True)
class Regret:
    """The latest intervals of which both is known, oldest first. spent: USD and requests of both arms, in each."""

    ghosts: tuple[GhostInterval, ...] = ()
    spent: tuple[tuple[float, float], ...] = field(default=())

    def after(self, records: Sequence[IntervalRecord], ghosts: GhostInterval | None) -> Regret:
        """With one more interval: its records, of all arms that had keys. Another grid begins anew."""
        costs = [(cost_usd(record), value(record, "requests")) for record in records]
        known = [(usd, requests) for usd, requests in costs if usd is not None and requests is not None]
        if ghosts is None or not known or len(known) < len(costs):
            return self
        spent = sum(usd for usd, _ in known), sum(requests for _, requests in known)
        if self.ghosts and not np.array_equal(self.ghosts[-1].positions, ghosts.positions):
            return Regret((ghosts,), (spent,))
        return replace(self, ghosts=(*self.ghosts, ghosts)[-LATELY:], spent=(*self.spent, spent)[-LATELY:])

    def usd_per_1000(self) -> float | None:
        """Against the cheapest of the ghosts that broke a constraint least often; None where nothing is known."""
        requests = sum(one[1] for one in self.spent)
        if not requests:
            return None
        usd = np.sum([one.usd for one in self.ghosts], axis=0)
        broken = np.sum([one.unsafe for one in self.ghosts], axis=0)
        known = np.isfinite(usd)
        if not known.any():
            return None
        safest = known & (broken == broken[known].min())
        return 1000.0 * (sum(one[0] for one in self.spent) - float(usd[safest].min())) / requests
