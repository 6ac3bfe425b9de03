"""Kernels of ghost caches under any eviction and admission policy: a stretch of one lane, and what a policy remembers
when requests and keys are taken out.

Of requests a policy points at those that the second hit remembers; everything else is numbers of keys and of uses. The
order of all of these stays, so a lane decides as if nothing had been taken out. Only a sketch goes by the numbers of
keys themselves: where these change, other keys share its counters than before.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numba.extending import overload
from numpy.typing import NDArray

from caches.policies import kernel as policy_kernel
from caches.policies.circles import unlink
from caches.policies.compiled import inlined
from caches.policies.heap import LATEST, WRITTEN_AT, push
from caches.policies.hooks import GONE, NAMED, NEW, OVERWRITTEN, offered, taken_in, taken_out
from caches.policies.numbers import BLOCK
from caches.policies.rules import GDSF, LFU, LRU_K, S3_FIFO, SIEVE, Rules
from caches.policies.s3_fifo import GHOST
from caches.policies.sketch import frequency, hashed
from caches.policies.state import (
    BLOCKS,
    FORGOTTEN,
    HAND,
    HELD,
    IN_HEAP,
    NAMES,
    REMEMBERED,
    SEQUENCE,
    THIRD_BYTES,
    State,
    state_at,
)
from caches.shadow import kernel
from caches.shadow.kernel import ABSENT, FRESH, SIZE, TOUCHED, USED, WRITTEN, Limits, Moment, Record
from envs.lanes import Scene, state_of
from envs.policy_lanes import PolicyLanes, bring_under, rules_now

Array = NDArray[Any]
U = np.uint64

Stretch = tuple[Moment, Array, int]  # where it begins, candidates of a warm-up, the request that ends it

MOST_USES = 1 << 30  # that are numbered before they are numbered anew; their numbers are int32


def advance_lane(scene: Scene, lanes: Any, lane: int, limits: Limits, stretch: Stretch, record: Record) -> int:
    """A lane through a stretch, as `advance` of its kernel says; for compiled functions."""
    raise NotImplementedError


@overload(advance_lane)
def _advance_lane(scene: Any, lanes: Any, lane: Any, limits: Any, stretch: Any, record: Any) -> Any:  # noqa: ARG001, the form that Numba wants
    """Which kernel is settled when it is compiled: a lane of least recently used pays nothing for the others."""

    def plain(scene: Any, lanes: Any, lane: Any, limits: Any, stretch: Any, record: Any) -> Any:
        moment, candidates, stop = stretch
        return kernel.advance(scene.requests, state_of(lanes, lane), limits, moment, candidates, stop, record)

    def under_rules(scene: Any, lanes: Any, lane: Any, limits: Any, stretch: Any, record: Any) -> Any:
        moment, candidates, stop = stretch
        state = state_at(lanes, lane)
        rules = rules_now(lanes, lane)
        return policy_kernel.advance(scene.requests, state, limits, moment, candidates, stop, record, rules, scene.gpu)

    return under_rules if lanes.instance_class is PolicyLanes else plain


def begin_lane(lanes: Any, lane: int, settings: Array, now: float) -> None:
    """Brings a lane under the policy that settings name, see envs.policy_lanes; for compiled functions."""
    raise NotImplementedError


@overload(begin_lane)
def _begin_lane(lanes: Any, lane: Any, settings: Any, now: Any) -> Any:  # noqa: ARG001, the form that Numba wants
    def plain(lanes: Any, lane: Any, settings: Any, now: Any) -> Any:  # noqa: ARG001
        return None

    def under_rules(lanes: Any, lane: Any, settings: Any, now: Any) -> Any:
        bring_under(lanes, lane, settings, now)

    return under_rules if lanes.instance_class is PolicyLanes else plain


@njit(cache=True)
def mark_remembered(lanes: Any, keys: int, rows: Array, held: Array) -> None:
    """As envs.ghost_kernels.mark: requests that the second hit remembers, keys whose names S3-FIFO or LRU-K does."""
    for lane in range(lanes.cursor.shape[0]):
        state, rules = state_at(lanes, lane), rules_now(lanes, lane)
        name = GHOST if rules.eviction == S3_FIFO else NAMED
        if rules.eviction == S3_FIFO or rules.eviction == LRU_K:
            for k in range(keys):
                held[k] |= state.queue[k] == name
        for k in range(min(keys, state.asked.shape[0])):
            for place in range(state.asked.shape[1]):
                if state.asked[k, place] != ABSENT:
                    rows[state.asked[k, place]] = True


@njit(cache=True)
def take_out(lanes: Any, keys: int, key_to: Array) -> None:
    """Entries and names of keys that go, before these are numbered anew. They leave no name, and no cache ages by
    them: it is as if nobody had asked for them."""
    for lane in range(lanes.cursor.shape[0]):
        state, rules = state_at(lanes, lane), rules_now(lanes, lane)
        for k in range(keys):
            if key_to[k] == ABSENT:
                if state.entry[k, TOUCHED] != ABSENT:
                    _leave(state, rules, k, OVERWRITTEN)
                elif rules.eviction == S3_FIFO and state.queue[k] == GHOST:
                    unlink(state.older, state.newer, k)
                    state.tally[THIRD_BYTES] -= state.entry[k, SIZE]
                elif rules.eviction == LRU_K and state.queue[k] == NAMED:
                    unlink(state.older, state.newer, k)
                    state.tally[NAMES] -= 1
                if state.asked.shape[0] > 0 and state.asked[k, 0] != ABSENT:
                    state.tally[REMEMBERED] -= 1


@njit(cache=True)
def renumber_remembered(lanes: Any, keys: int, row_to: Array, key_to: Array) -> None:
    """As envs.ghost_kernels.renumber, which comes before, for all that only a policy has."""
    some_go = (key_to == ABSENT).any()
    for lane in range(lanes.cursor.shape[0]):
        state, rules = state_at(lanes, lane), rules_now(lanes, lane)
        if some_go:
            _move_keys(state, rules, keys, key_to)
        asked = state.asked[:keys]
        for k in range(asked.shape[0]):
            for place in range(asked.shape[1]):
                if asked[k, place] != ABSENT:
                    asked[k, place] = row_to[asked[k, place]]
        state.tally[FORGOTTEN] = row_to[state.tally[FORGOTTEN]]
        if some_go or state.tally[SEQUENCE] > MOST_USES:
            _number_uses(state, rules, keys)


@njit(cache=True)
def hand_over_remembered(lanes: Any, key: Array, sides: tuple[Array, Array], capacity: Array, time: Array) -> None:
    """As envs.ghost_kernels.hand_over, in the order of `key`. An entry that arrives is new to the taker, but for a name
    that it remembers; no rule of admission judges it, and it counts as used when it was touched last. sides: giver and
    taker of each. capacity: int64, of each taker. time: of requests."""
    giver, taker = sides
    for i in range(key.size):
        k, gives, takes = key[i], state_at(lanes, giver[i]), state_at(lanes, taker[i])
        rules = rules_now(lanes, taker[i])
        touched, written, size = gives.entry[k, TOUCHED], gives.entry[k, WRITTEN], gives.entry[k, SIZE]
        if touched != ABSENT:
            price = gives.price[k] if gives.price.size > 0 else 1.0
            _leave(gives, rules_now(lanes, giver[i]), k, GONE)
            if touched >= 0 and written >= 0 and takes.entry[k, TOUCHED] == ABSENT:
                standing = offered(takes, rules, k, NEW, price, size)
                takes.entry[k, TOUCHED], takes.entry[k, WRITTEN], takes.entry[k, SIZE] = touched, written, size
                takes.cursor[USED] += size
                takes.cursor[FRESH] = min(takes.cursor[FRESH], written)
                takes.tally[HELD] += 1
                taken_in(takes, rules, k, standing, capacity[i], time[touched])


@inlined
def _leave(state: State, rules: Rules, k: int, why: int) -> None:
    """why: any but EVICTED, for which it matters how much fits."""
    state.cursor[USED] -= state.entry[k, SIZE]
    state.entry[k, TOUCHED] = ABSENT
    state.entry[k, WRITTEN] = ABSENT
    state.tally[HELD] -= 1
    taken_out(state, rules, k, why, 0)


@njit(cache=True)
def _move_keys(state: State, rules: Rules, keys: int, key_to: Array) -> None:
    room = state.entry.shape[0]
    for links in (state.older, state.newer):
        for place in range(links.size):
            if links[place] >= 0 and links[place] < keys:  # not where a circle begins
                links[place] = key_to[links[place]]
        _move(links[:room], keys, key_to, 0)
    if rules.eviction == SIEVE and state.tally[HAND] < room:
        state.tally[HAND] = key_to[state.tally[HAND]]
    for numbers in (state.queue, state.uses):
        _move(numbers, keys, key_to, 0)
    for figures in (state.weight, state.value, state.price):
        _move(figures, keys, key_to, 0)
    _move(state.used_at, keys, key_to, 0)
    for positions in (state.history, state.asked):
        _move(positions, keys, key_to, ABSENT)
    if state.sketch.size > 0:
        _move_sketch(state, keys, key_to)


@njit(cache=True)
def _move(array: Array, keys: int, key_to: Array, none: int) -> None:
    """Rows of keys to their new numbers, which are no greater; `none` for those that are free then."""
    known = 0
    for k in range(min(keys, array.shape[0])):
        if key_to[k] != ABSENT:
            array[known] = array[k]
            known += 1
    array[known:keys] = none


@njit(cache=True)
def _move_sketch(state: State, keys: int, key_to: Array) -> None:
    """What it says of each key that stays is written down anew, in as many blocks. No frequency gets less by that, and
    none more unless each of its counters is one of a key that was asked for more often, too."""
    fresh = np.zeros_like(state.sketch)
    for k in range(keys):
        if key_to[k] != ABSENT:
            often, bits = frequency(state, k), hashed(key_to[k])
            block = (bits & U(state.tally[BLOCKS] - 1)) * U(BLOCK)
            for row in range(4):
                at = block + U(4 * row) + (bits >> U(32 + 2 * row) & U(3))
                fresh[at] = max(np.int64(fresh[at]), often)
    state.sketch[:] = fresh


@njit(cache=True)
def _number_uses(state: State, rules: Rules, keys: int) -> None:
    """Uses from 1 on again, and a heap of what is held, each entry with what it is worth now: the order is the same,
    since slots are put where they belong before one of them counts (`caches/policies/heap.py`). Only uses more than
    MOST_USES ago become equal to each other."""
    used_at, history, by_heap = state.used_at, state.history, rules.eviction in (LRU_K, LFU, GDSF)
    first = state.tally[SEQUENCE]
    for k in range(min(keys, used_at.shape[0])):
        if state.entry[k, TOUCHED] != ABSENT:
            first = min(first, np.int64(used_at[k, LATEST]))
    for k in range(min(keys, history.shape[0])):
        for place in range(history.shape[1]):
            if _remembers(state, k) and history[k, place] != ABSENT:
                first = min(first, np.int64(history[k, place]))
    back = max(first - 1, state.tally[SEQUENCE] - MOST_USES, 0)
    state.tally[SEQUENCE] -= back
    state.tally[IN_HEAP] = 0
    for k in range(min(keys, history.shape[0])):
        for place in range(history.shape[1]):
            known = _remembers(state, k) and history[k, place] != ABSENT
            history[k, place] = max(history[k, place] - back, 1) if known else ABSENT
    for k in range(min(keys, used_at.shape[0])):
        held = state.entry[k, TOUCHED] != ABSENT
        used_at[k, LATEST] = max(used_at[k, LATEST] - back, 1) if held else 0
        used_at[k, WRITTEN_AT] = used_at[k, LATEST]
        if held and by_heap:
            push(state, rules, k)


@inlined
def _remembers(state: State, k: int) -> bool:
    """Of LRU-K: whether the uses of a key count, as those of an entry or of a name."""
    return bool(state.entry[k, TOUCHED] != ABSENT or state.queue[k] == NAMED)
