"""How often a key was asked for lately, approximately and in little memory: the frequencies of TinyLFU.

A count-min sketch with conservative update (C. Estan, G. Varghese, New directions in traffic measurement and
accounting, SIGCOMM 2002): of a key's counters, one in each of four rows, only the lowest are raised, and the lowest is
the estimate. They stop at MOST. After `sample` requests per entry held all are halved, and so is the count of requests,
so that old requests fade (G. Einziger, R. Friedman, B. Manes, TinyLFU, 2017, section 3.3). A key's counters lie in one
block of 16, so that they are fetched at once; there is at least one block for each entry held, and when blocks double,
each is copied, which changes no estimate. `caches.policies.live.sketch` is the same in plain Python.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from caches.policies.compiled import inlined
from caches.policies.numbers import BLOCK, LEAST_HELD, MOST
from caches.policies.state import ADDED, BLOCKS, HELD, State

U = np.uint64


@inlined
def hashed(key: Any) -> Any:
    """The finalizer of splitmix64, as caches.shadow.sampling.mixed with seed 0 of key + 1."""
    state = (U(key) + U(1)) * U(0x9E3779B97F4A7C15)
    state = (state ^ (state >> U(30))) * U(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> U(27))) * U(0x94D049BB133111EB)
    return state ^ (state >> U(31))


@inlined
def frequency(state: State, key: Any) -> Any:
    """The estimate for a key, at most MOST."""
    bits = hashed(key)
    block = (bits & U(state.tally[BLOCKS] - 1)) * U(BLOCK)
    least = np.int64(MOST)
    for row in range(4):
        at = block + U(4 * row) + (bits >> U(32 + 2 * row) & U(3))
        least = min(least, np.int64(state.sketch[at]))
    return least


@inlined
def count(state: State, key: Any, sample: float) -> None:
    """One more request for a key."""
    if state.tally[HELD] > state.tally[BLOCKS]:
        half = state.tally[BLOCKS] * BLOCK
        for at in range(half):
            state.sketch[half + at] = state.sketch[at]
        state.tally[BLOCKS] *= 2
    bits = hashed(key)
    block = (bits & U(state.tally[BLOCKS] - 1)) * U(BLOCK)
    least = np.int64(MOST)
    for row in range(4):
        at = block + U(4 * row) + (bits >> U(32 + 2 * row) & U(3))
        least = min(least, np.int64(state.sketch[at]))
    if least < MOST:
        for row in range(4):
            at = block + U(4 * row) + (bits >> U(32 + 2 * row) & U(3))
            state.sketch[at] = max(np.int64(state.sketch[at]), least + 1)
    state.tally[ADDED] += 1
    if state.tally[ADDED] >= sample * max(state.tally[HELD], LEAST_HELD):
        for at in range(state.tally[BLOCKS] * BLOCK):
            state.sketch[at] >>= 1
        state.tally[ADDED] //= 2
