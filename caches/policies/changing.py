"""Another eviction policy for a cache that holds something.

What is held enters the new policy's queues in the order in which it was last touched, as if each had just been taken
in; what the old policy remembered of uses and of names is forgotten. Frequencies of a sketch begin anew, unless the
rule of admission goes by them. Nothing is evicted, and nothing counts. caches.policies.live has the same for what runs
live.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from caches.policies.compiled import UNCOUNTED
from caches.policies.hooks import NEW, offered, taken_in
from caches.policies.numbers import FIRST_BLOCKS
from caches.policies.rules import COST_AWARE, SIEVE, TINYLFU, Rules
from caches.policies.state import ADDED, BLOCKS, FORGOTTEN, HAND, HELD, REMEMBERED, State
from caches.shadow.kernel import ABSENT, LISTED, SIZE, TOUCHED

Array = NDArray[Any]


@njit(cache=True)
def change_policy(state: State, rules: Rules, capacity: int, now: float) -> None:
    """From now on the cache is under these rules, for which `empty_states` made room. capacity: bytes, that binds then.
    The rule of admission has to be the one that it was."""
    held = _by_touch(state)
    _forget(state, rules)
    _take_in(state, rules, held, capacity, now)


@njit(cache=True)
def _by_touch(state: State) -> Array:
    """Keys that are held, least recently touched first. A warm-up came before the request that it says."""
    held = np.flatnonzero(state.entry[:, TOUCHED] != ABSENT)
    listed = state.cursor[LISTED]
    at = np.empty(held.size, np.int64)
    for i in range(held.size):
        code = np.int64(state.entry[held[i], TOUCHED])
        at[i] = code * (listed + 1) + listed if code >= 0 else state.warm_at[-2 - code] * (listed + 1) + (-2 - code)
    return held[np.argsort(at)]


@njit(cache=True)
def _forget(state: State, rules: Rules) -> None:
    """All but entries, prices, and what the rule of admission knows."""
    keys, links = state.entry.shape[0], state.older.size
    for place in range(links):
        state.older[place] = state.newer[place] = place
    state.queue[:], state.uses[:] = 0, 0
    kept = (state.tally[FORGOTTEN], state.tally[REMEMBERED], state.tally[BLOCKS], state.tally[ADDED])
    state.tally[:] = 0
    state.tally[FORGOTTEN], state.tally[REMEMBERED], state.tally[BLOCKS], state.tally[ADDED] = kept
    if rules.admission != TINYLFU and rules.admission != COST_AWARE:
        state.sketch[:] = 0
        state.tally[BLOCKS], state.tally[ADDED] = FIRST_BLOCKS, 0
    state.tally[HAND] = keys if rules.eviction == SIEVE else 0
    state.cache_age[0] = 0.0
    state.history[:], state.used_at[:] = ABSENT, 0


@njit(cache=True, **UNCOUNTED)  # type: ignore[untyped-decorator]
def _take_in(state: State, rules: Rules, held: Array, capacity: int, now: float) -> None:
    for i in range(held.size):
        k = np.uint64(held[i])
        price = state.price[k] if state.price.size > 0 else 1.0
        standing = offered(state, rules, k, NEW, price, state.entry[k, SIZE])
        state.tally[HELD] += 1
        taken_in(state, rules, k, standing, capacity, now)
