"""The entry of the lowest value, where values only grow while an entry stays: a heap that learns of it late.

A slot holds the value that an entry had once and the number of its latest use then; equal values go by that number.
A use changes only what the entry is worth now. When the lowest slot turns out to be out of date, it is put where it
belongs now, until the lowest one is right: no other can be worth less, since theirs can only have grown. Slots of
entries that left are dropped when they come up, or all at once when there is no room. So a hit takes no walk
through the heap, and the order is the exact one.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from caches.policies.compiled import UNCOUNTED, inlined
from caches.policies.rules import LFU, LRU_K, Rules
from caches.policies.state import IN_HEAP, State
from caches.shadow.kernel import ABSENT, TOUCHED

Array = NDArray[Any]

LATEST, WRITTEN_AT = 0, 1  # State.used_at


@inlined
def worth(state: State, rules: Rules, key: Any) -> Any:
    """An entry's value now, under a policy that has a heap."""
    if rules.eviction == LRU_K:
        last = state.history[key, rules.k - 1]
        return -1.0 if last == ABSENT else np.float64(last)
    if rules.eviction == LFU:
        return math.log(state.weight[key]) + rules.fading * state.value[key]
    return state.value[key]


@inlined
def _before(value: float, at: int, other_value: float, other_at: int) -> bool:
    return value < other_value or (value == other_value and at < other_at)


@inlined
def _sink(values: Array, ats: Array, keys: Array, size: Any, start: int) -> None:
    """Puts the slot at `start` where it belongs among those below it."""
    value, at, key, place = values[start], ats[start], keys[start], start
    child = 2 * place + 1
    while child < size:
        if child + 1 < size and _before(values[child + 1], ats[child + 1], values[child], ats[child]):
            child += 1
        if not _before(values[child], ats[child], value, at):
            break
        values[place], ats[place], keys[place] = values[child], ats[child], keys[child]
        place = child
        child = 2 * place + 1
    values[place], ats[place], keys[place] = value, at, key


@inlined
def _left(state: State, key: Any, at: Any) -> Any:
    """Whether the entry that a slot was made for is gone."""
    return state.entry[key, TOUCHED] == ABSENT or at < state.used_at[key, WRITTEN_AT]


@njit(cache=True, **UNCOUNTED)  # type: ignore[untyped-decorator]
def _compact(state: State) -> None:
    """Drops the slots of entries that left."""
    values, ats, keys, size = state.heap_value, state.heap_at, state.heap_key, 0
    for place in range(state.tally[IN_HEAP]):
        if not _left(state, keys[place], ats[place]):
            values[size], ats[size], keys[size] = values[place], ats[place], keys[place]
            size += 1
    state.tally[IN_HEAP] = size
    for place in range(size // 2 - 1, -1, -1):
        _sink(values, ats, keys, size, place)


@inlined
def push(state: State, rules: Rules, key: Any) -> None:
    """A slot for an entry that was just taken in."""
    if state.tally[IN_HEAP] == state.heap_key.size:
        _compact(state)
    values, ats, keys = state.heap_value, state.heap_at, state.heap_key
    value, at, place = worth(state, rules, key), state.used_at[key, LATEST], state.tally[IN_HEAP]
    state.tally[IN_HEAP] += 1
    while place > 0:
        above = (place - 1) >> 1
        if not _before(value, at, values[above], ats[above]):
            break
        values[place], ats[place], keys[place] = values[above], ats[above], keys[above]
        place = above
    values[place], ats[place], keys[place] = value, at, key


@inlined
def lowest(state: State, rules: Rules) -> Any:
    """The entry that is worth least; its slot is then the first. There must be one."""
    values, ats, keys = state.heap_value, state.heap_at, state.heap_key
    while True:
        key, at = keys[0], ats[0]
        if _left(state, key, at):
            last = state.tally[IN_HEAP] - 1
            state.tally[IN_HEAP] = last
            values[0], ats[0], keys[0] = values[last], ats[last], keys[last]
        elif at != state.used_at[key, LATEST]:
            values[0], ats[0] = worth(state, rules, key), state.used_at[key, LATEST]
        else:
            break
        _sink(values, ats, keys, state.tally[IN_HEAP], 0)
    return key
