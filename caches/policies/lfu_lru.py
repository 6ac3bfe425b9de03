"""LFU-LRU in the replay kernel: a circle for each count of uses, least recently used first."""

from __future__ import annotations

from typing import Any

import numpy as np

from caches.policies.compiled import inlined
from caches.policies.heap import LATEST
from caches.policies.rules import Rules
from caches.policies.state import SEQUENCE, State
from caches.shadow.kernel import ABSENT


@inlined
def first_of_counts(state: State, rules: Rules) -> Any:
    """Of LFU-LRU: of the least recently used entry of every count of uses, the one with the lowest score."""
    keys, newer, used_at = state.entry.shape[0], state.newer, state.used_at
    latest = state.tally[SEQUENCE]
    oldest = latest
    for uses in range(rules.most_uses):
        key = np.int64(newer[keys + uses])
        if key < keys:
            oldest = min(oldest, np.int64(used_at[key, LATEST]))
    span = max(latest - oldest, 1)
    first, score = np.int64(ABSENT), np.inf
    for uses in range(rules.most_uses):
        key = np.int64(newer[keys + uses])
        if key < keys:
            recency = (used_at[key, LATEST] - oldest) / span
            other = rules.frequency_weight * ((uses + 1) / rules.most_uses) + rules.recency_weight * recency
            if other < score or (other == score and used_at[key, LATEST] < used_at[first, LATEST]):
                first, score = key, other
    return first
