"""Which block goes: the leaves of the upper tier, and a heap of them that lasts for one event.

While one request is let in, or one change is made, time stands still and no block gets another value. So the leaves are
valued once, when the first has to go, and whoever becomes a leaf by that is added.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from caches.policies.prefix_notes import LEAVES, Notes, value_of
from caches.policies.prefix_settings import PrefixRules

Array = NDArray[Any]
UNMADE = -1  # Heap.size


class Heap(NamedTuple):
    """value (float64), order (int64), block (int32): the leaves, lowest first, then those whose use ended first.
    size: int64 (1,), UNMADE before the first eviction."""

    value: Array
    order: Array
    block: Array
    size: Array


@njit(cache=True)
def new_heap(notes: Notes) -> Heap:
    """With room for all leaves that there are now; nobody becomes one but in place of another."""
    room = notes.tally[LEAVES]
    heap = Heap(np.empty(room, np.float64), np.empty(room, np.int64), np.empty(room, np.int32), np.empty(1, np.int64))
    heap.size[0] = UNMADE
    return heap


@njit(cache=True)
def becomes_leaf(notes: Notes, block: int) -> None:
    place = notes.tally[LEAVES]
    notes.leaf[place], notes.spot[block] = block, place
    notes.tally[LEAVES] += 1


@njit(cache=True)
def no_leaf(notes: Notes, block: int) -> None:
    """Does nothing where it was none."""
    place = notes.spot[block]
    if place >= 0:
        notes.tally[LEAVES] -= 1
        last = notes.leaf[notes.tally[LEAVES]]
        notes.leaf[place], notes.spot[last] = last, place
        notes.spot[block] = -1


@njit(cache=True)
def has_leaf(notes: Notes, rules: PrefixRules, heap: Heap, now: float) -> bool:
    """Whether some block can go; the first of the heap, which is made if it is not yet."""
    if heap.size[0] == UNMADE:
        values, orders, blocks, size = heap.value, heap.order, heap.block, notes.tally[LEAVES]
        for place in range(size):
            block = notes.leaf[place]
            values[place] = value_of(notes, rules, block, now)
            orders[place], blocks[place] = notes.recent[block, 0], block
        for place in range(size // 2 - 1, -1, -1):
            _sink(values, orders, blocks, size, place)
        heap.size[0] = size
    return bool(heap.size[0] > 0)


@njit(cache=True)
def take_lowest(heap: Heap) -> int:
    """Takes the lowest out, which there must be."""
    values, orders, blocks = heap.value, heap.order, heap.block
    lowest, size = blocks[0], heap.size[0] - 1
    heap.size[0] = size
    values[0], orders[0], blocks[0] = values[size], orders[size], blocks[size]
    _sink(values, orders, blocks, size, 0)
    return int(lowest)


@njit(cache=True)
def add(notes: Notes, rules: PrefixRules, heap: Heap, block: int, now: float) -> None:
    """A new leaf."""
    values, orders, blocks = heap.value, heap.order, heap.block
    value, order, place = value_of(notes, rules, block, now), notes.recent[block, 0], heap.size[0]
    heap.size[0] += 1
    while place > 0:
        above = (place - 1) >> 1
        if values[above] < value or (values[above] == value and orders[above] < order):
            break
        values[place], orders[place], blocks[place] = values[above], orders[above], blocks[above]
        place = above
    values[place], orders[place], blocks[place] = value, order, block


@njit(inline="always")
def _sink(values: Array, orders: Array, blocks: Array, size: Any, start: Any) -> None:
    """Puts the block at `start` where it belongs among those below it; nothing where there is none."""
    if start < size:
        value, order, block, place = values[start], orders[start], blocks[start], start
        child = 2 * place + 1
        while child < size:
            other = child + 1
            if other < size and (
                values[other] < values[child] or (values[other] == values[child] and orders[other] < orders[child])
            ):
                child = other
            if not (values[child] < value or (values[child] == value and orders[child] < order)):
                break
            values[place], orders[place], blocks[place] = values[child], orders[child], blocks[child]
            place = child
            child = 2 * place + 1
        values[place], orders[place], blocks[place] = value, order, block
