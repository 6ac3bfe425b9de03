"""A salt for keys that a live cache knows by name: only there can it be told which arm each of them would be in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caches.target import BalancedSalt
from tuner.experiment import choose_salt
from tuner.router import points

Array = NDArray[Any]

HEAVIEST = 5_000  # keys that are looked at; the many light ones balance by themselves


def balanced_salt(keys: Sequence[bytes], weights: Array, seed: int, shares: Sequence[float]) -> BalancedSalt | None:
    """As `choose_salt`, of the heaviest keys. weights: (keys, measures), not negative; a measure of which there is
    nothing is left out. None without keys that weigh anything. Takes a tenth of a second or two."""
    weights = weights[:, weights.sum(axis=0) > 0]
    if not weights.size:
        return None
    heavy = np.argsort(-(weights / weights.sum(axis=0)).sum(axis=1), kind="stable")[:HEAVIEST]
    chosen = [keys[one] for one in heavy.tolist()]
    salt, imbalance = choose_salt(lambda salt: points(chosen, salt), weights[heavy], seed, shares=shares)
    return BalancedSalt(salt, imbalance, len(chosen))
