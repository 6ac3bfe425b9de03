"""What a shadow cache under any policy keeps: plain arrays, which can be copied, and stacked lane by lane."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from caches.policies.numbers import BLOCK, FIRST_BLOCKS
from caches.policies.rules import SIEVE, Rules, needs_of
from caches.shadow import kernel

Array = NDArray[Any]

# State.tally. HELD: entries. SEQUENCE: uses so far, which also number themselves. HAND: where Sieve's stands.
# FIRST_BYTES, SECOND_BYTES, THIRD_BYTES: in the first three circles. NAMES: in the ghost circle. IN_HEAP: slots used.
# BLOCKS, ADDED: of the sketch: blocks in use, and requests counted since they were halved. FORGOTTEN, REMEMBERED: of
# the second hit: how far requests are forgotten, and keys that are not. CROWDED: of S3-FIFO: 1 once it evicted.
HELD, SEQUENCE, HAND, FIRST_BYTES, SECOND_BYTES, THIRD_BYTES, NAMES, IN_HEAP = range(8)
BLOCKS, ADDED, FORGOTTEN, REMEMBERED, CROWDED = range(8, 13)
TALLIES = 13


class State(NamedTuple):
    """One cache. The first six as in kernel.State; its cursors of the queue of touches stand still here.

    older, newer: int32 (keys + circles,), neighbours in the policy's queues; the last entries are where each begins.
    queue: uint8 (keys,), which one a key is in, as its policy numbers them. uses: uint8 (keys,), hits, as far as its
    policy counts. tally: int64 (TALLIES,). cache_age: float64 (1,), Gdsf's. weight, value: float64 (keys,), uses and
    what follows from them. price: float64 (keys,), what a miss costs. used_at: int32 (keys, 2), number of the latest
    use and of the write. history: int32 (keys, k or more), numbers of the latest uses, latest first. heap_value
    (float64), heap_at, heap_key (int32): the heap, shape (room,). sketch: uint8 (blocks x BLOCK,). asked: int32 (keys,
    requests), positions of the latest requests, latest first.

    What a policy does not need has no rows.
    """

    entry: Array
    cursor: Array
    counts: Array
    warm_at: Array
    warm_key: Array
    warm_time: Array
    older: Array
    newer: Array
    queue: Array
    uses: Array
    tally: Array
    cache_age: Array
    weight: Array
    value: Array
    price: Array
    used_at: Array
    history: Array
    heap_value: Array
    heap_at: Array
    heap_key: Array
    sketch: Array
    asked: Array


GROWING = ("warm_at", "warm_key", "warm_time")  # those that need more room with every warm-up


def empty_states(rules: Rules, num_keys: int, lanes: int, warmup_room: int = 0, others: Sequence[Rules] = ()) -> State:
    """Caches side by side that hold nothing: every array has a first axis for the lane. `state_at` takes one out.

    others: rules that the caches may come under later (caches.policies.changing).
    """
    needs = needs_of(rules, *others)
    linked = num_keys + needs.circles if needs.circles else 0
    in_heap = num_keys if needs.heap else 0
    room = in_heap + in_heap // 4 + 64 if needs.heap else 0
    blocks = _blocks(num_keys) if needs.sketch else 0
    links = np.tile(np.arange(linked, dtype=np.int32), (lanes, 1))
    tally = np.zeros((lanes, TALLIES), np.int64)
    tally[:, HAND] = num_keys if rules.eviction == SIEVE else 0
    tally[:, BLOCKS] = FIRST_BLOCKS
    return State(
        np.full((lanes, num_keys, 3), kernel.ABSENT, np.int32),
        np.zeros((lanes, kernel.CURSORS), np.int64),
        np.zeros((lanes, kernel.COUNTS), np.int64),
        np.zeros((lanes, warmup_room), np.int32),
        np.zeros((lanes, warmup_room), np.int32),
        np.zeros((lanes, warmup_room), np.float64),
        links,
        links.copy(),
        np.zeros((lanes, num_keys if linked else 0), np.uint8),
        np.zeros((lanes, num_keys if linked else 0), np.uint8),
        tally,
        np.zeros((lanes, 1)),
        np.zeros((lanes, num_keys if needs.weighed else 0)),
        np.zeros((lanes, num_keys if needs.weighed else 0)),
        np.zeros((lanes, num_keys if needs.prices else 0)),
        np.zeros((lanes, num_keys if needs.numbered else 0, 2), np.int32),
        np.full((lanes, num_keys if needs.history else 0, needs.history), kernel.ABSENT, np.int32),
        np.zeros((lanes, room)),
        np.zeros((lanes, room), np.int32),
        np.zeros((lanes, room), np.int32),
        np.zeros((lanes, blocks * BLOCK), np.uint8),
        np.full((lanes, num_keys if needs.asked else 0, needs.asked), kernel.ABSENT, np.int32),
    )


def empty_state(rules: Rules, num_keys: int, warmup_room: int = 0, others: Sequence[Rules] = ()) -> State:
    """One cache that holds nothing, with room to list so many warm-ups. others: as of `empty_states`."""
    return State(*(array[0] for array in empty_states(rules, num_keys, 1, warmup_room, others)))


@njit(cache=True)
def state_at(states: Any, lane: int) -> State:
    """The cache of a lane; what is written to it is written there. states: a State of lanes, or what has its fields."""
    return State(
        states.entry[lane],
        states.cursor[lane],
        states.counts[lane],
        states.warm_at[lane],
        states.warm_key[lane],
        states.warm_time[lane],
        states.older[lane],
        states.newer[lane],
        states.queue[lane],
        states.uses[lane],
        states.tally[lane],
        states.cache_age[lane],
        states.weight[lane],
        states.value[lane],
        states.price[lane],
        states.used_at[lane],
        states.history[lane],
        states.heap_value[lane],
        states.heap_at[lane],
        states.heap_key[lane],
        states.sketch[lane],
        states.asked[lane],
    )


def _blocks(num_keys: int) -> int:
    """As many as entries could ever be held, rounded up to a power of two."""
    blocks = FIRST_BLOCKS
    while blocks < num_keys:
        blocks *= 2
    return blocks
