"""Rules of admission in the replay kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from caches.policies.compiled import inlined
from caches.policies.rules import COST_AWARE, GDSF, SECOND_HIT, TINYLFU, Rules
from caches.policies.sketch import count, frequency
from caches.policies.state import FORGOTTEN, REMEMBERED, State
from caches.shadow.kernel import ABSENT, SIZE

Array = NDArray[Any]
U = np.uint64


@inlined
def asked(state: State, rules: Rules, key: Array, k: Any, t: int) -> None:
    """Request t is for key k, whether it hits or misses: for whoever counts requests."""
    if rules.admission == SECOND_HIT:
        _asked_again(state, rules, key, k, t)
    if state.sketch.size > 0:
        count(state, k, rules.sample)


@inlined
def _asked_again(state: State, rules: Rules, key: Array, k: Any, t: int) -> None:
    """For the second hit. Keys are forgotten by a walk over the requests: at each, the key whose latest one it is."""
    asked, tally = state.asked, state.tally
    tally[REMEMBERED] += asked[k, 0] == ABSENT
    for place in range(rules.requests - 1, 0, -1):
        asked[k, place] = asked[k, place - 1]
    asked[k, 0] = t
    while tally[REMEMBERED] > rules.remembered:
        p = U(tally[FORGOTTEN])
        out = U(key[p])
        if asked[out, 0] == tally[FORGOTTEN]:
            for place in range(rules.requests):
                asked[out, place] = ABSENT
            tally[REMEMBERED] -= 1
        tally[FORGOTTEN] += 1


@inlined
def admits(state: State, rules: Rules, time: Array, k: Any, now: float) -> bool:
    """Whether a response may be taken in, as far as that does not depend on what would go."""
    admitted = True
    if rules.admission == SECOND_HIT:
        earliest = state.asked[k, rules.requests - 1]
        admitted = earliest != ABSENT and now - time[U(earliest)] <= rules.window_seconds
    return admitted


@inlined
def better(state: State, rules: Rules, k: Any, price: float, size: Any, victim: Any, first: bool) -> bool:
    """Whether it may although that entry would go for it. first: of those that would; rules of admission look only at
    that one. Under GDSF what is worth less than what would go for it goes itself, and the cache ages by it."""
    wins = True
    if rules.eviction == GDSF and state.value[k] < state.value[victim]:
        state.cache_age[0] = max(state.cache_age[0], state.value[k])
        wins = False
    elif first and rules.admission == TINYLFU:
        wins = frequency(state, k) > frequency(state, victim)
    elif first and rules.admission == COST_AWARE:
        goes = frequency(state, victim) * state.price[victim] / max(state.entry[victim, SIZE], 1)
        wins = frequency(state, k) * price / max(size, 1) > goes
    return wins
