"""The prefix cache of caches.shadow.chain under other eviction policies: the same rules but for who goes first.

Everything there holds here: tiers, pins, lifetimes, warm-ups, counts. Lifetimes and the lower tier still follow the
order of last use, which is kept as there. For space, the leaf of the lowest value goes (see caches.policies.
prefix_victims), and an admission may refuse a block for which room could be made; what comes behind it stays out too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from caches.policies.prefix_notes import NOBODY, Notes, is_free, take_note, value_of
from caches.policies.prefix_settings import GDSF, KNOWN, WORTHY, PrefixRules
from caches.policies.prefix_victims import Heap, add, becomes_leaf, has_leaf, new_heap, no_leaf, take_lowest
from caches.shadow.chain import (
    ABSENT,
    EVICTIONS,
    EXPIRATIONS,
    LOWER,
    LOWER_HITS,
    MISSES,
    PINNED,
    REFUSALS,
    UPPER,
    UPPER_HITS,
    USED_LOWER,
    USED_UPPER,
    WARMUPS,
    ChainState,
    Room,
    append,
    drop_from_lower,
    unlink,
)
from caches.shadow.trie import Chains

Array = NDArray[Any]


@njit(cache=True)
def _fall(parent: Array, state: ChainState, notes: Notes, block: int, lower_room: int) -> int:
    """A leaf of the upper tier goes to the top of the lower one. Returns the block before it where that becomes a leaf,
    NOBODY elsewhere."""
    unlink(state.older, state.newer, block)
    no_leaf(notes, block)
    state.cursor[USED_UPPER] -= 1
    state.place[block] = LOWER
    append(state.older, state.newer, block, state.place.size + 1)
    state.cursor[USED_LOWER] += 1
    drop_from_lower(state, lower_room)
    above = parent[block]
    if above < 0:
        return NOBODY
    notes.children[above] -= 1
    if notes.children[above] > 0 or state.pins[above] > 0:
        return NOBODY
    becomes_leaf(notes, above)
    return int(above)


@njit(cache=True)
def _shrink(
    chains: Chains, cache: tuple[ChainState, Notes, PrefixRules], room: Room, used: int, heap: Heap, now: float
) -> None:
    """Evicts unpinned blocks of the upper tier until no more than `used` are left, or only pinned ones."""
    state, notes, rules = cache
    while state.cursor[USED_UPPER] > used and has_leaf(notes, rules, heap, now):
        if rules.eviction == GDSF:
            notes.age[0] = heap.value[0]
        state.counts[EVICTIONS] += 1
        above = _fall(chains.parent, state, notes, take_lowest(heap), room.lower)
        if above != NOBODY:
            add(notes, rules, heap, above, now)


@njit(cache=True)
def resize(chains: Chains, state: ChainState, notes: Notes, rules: PrefixRules, room: Room, now: float) -> None:
    """As caches.shadow.chain.resize."""
    _shrink(chains, (state, notes, rules), room, room.upper, new_heap(notes), now)
    drop_from_lower(state, room.lower)


@njit(cache=True)
def expire(chains: Chains, state: ChainState, notes: Notes, room: Room, ttl_seconds: float, now: float) -> None:
    """As caches.shadow.chain.expire."""
    circle = state.place.size
    while state.newer[circle] != circle and now - state.touched[state.newer[circle]] >= ttl_seconds:
        state.counts[EXPIRATIONS] += 1
        _fall(chains.parent, state, notes, state.newer[circle], room.lower)


@njit(cache=True)
def _welcome(notes: Notes, rules: PrefixRules, heap: Heap, block: int, full: bool, now: float) -> bool:
    """Whether a block that is missing may come in; `full` if another would have to go for it."""
    if rules.admission == KNOWN:
        return bool(notes.times[block] > 1)
    if rules.admission == WORTHY and full and has_leaf(notes, rules, heap, now):
        return bool(value_of(notes, rules, block, now) >= heap.value[0])
    return True


@njit(cache=True)
def _hold(
    chains: Chains, cache: tuple[ChainState, Notes, PrefixRules], room: Room, t: int, insert: bool, now: float
) -> tuple[int, int, int]:
    """As caches.shadow.chain._hold."""
    state, notes, rules = cache
    place, pins, older, newer, cursor = state.place, state.pins, state.older, state.newer, state.cursor
    chain = chains.node[chains.offsets[t] : chains.offsets[t + 1]]
    upper = 0
    while upper < chain.size and place[chain[upper]] == UPPER:
        block = chain[upper]
        if pins[block] == 0:
            unlink(older, newer, block)
            no_leaf(notes, block)
            cursor[PINNED] += 1
        pins[block] += 1
        upper += 1
    found = upper
    while found < chain.size and place[chain[found]] == LOWER:
        unlink(older, newer, chain[found])
        found += 1
    cursor[USED_LOWER] -= found - upper
    held, heap = upper, new_heap(notes)
    for i in range(upper, chain.size if insert else found):
        block, full = chain[i], cursor[USED_UPPER] >= room.upper
        if i >= found and not _welcome(notes, rules, heap, block, full, now):
            break
        _shrink(chains, cache, room, room.upper - 1, heap, now)
        if cursor[USED_UPPER] >= room.upper:
            break
        place[block], pins[block], notes.children[block] = UPPER, 1, 0
        if i > 0:
            notes.children[chain[i - 1]] += 1
        cursor[USED_UPPER] += 1
        cursor[PINNED] += 1
        held += 1
    for i in range(found - 1, held - 1, -1):
        append(older, newer, chain[i], place.size + 1)
        cursor[USED_LOWER] += 1
    drop_from_lower(state, room.lower)
    return upper, found - upper, held


@njit(cache=True)
def admit(
    chains: Chains, cache: tuple[ChainState, Notes, PrefixRules], room: Room, t: int, now: float
) -> tuple[int, int, int]:
    """As caches.shadow.chain.admit."""
    state, notes, rules = cache
    take_note(notes, rules, chains.node[chains.offsets[t] : chains.offsets[t + 1]], now)
    upper, lower, held = _hold(chains, cache, room, t, True, now)
    blocks = chains.offsets[t + 1] - chains.offsets[t]
    state.counts[UPPER_HITS] += upper
    state.counts[LOWER_HITS] += lower
    state.counts[MISSES] += blocks - upper - lower
    state.counts[REFUSALS] += blocks - held
    return upper, lower, held


@njit(cache=True)
def _let_go(
    chains: Chains,
    cache: tuple[ChainState, Notes, PrefixRules],
    room: Room,
    span: tuple[int, int],
    now: float,
    used: bool,
) -> None:
    """span: of chains.node. used: a request ends, not a warm-up."""
    state, notes, rules = cache
    for i in range(span[1] - 1, span[0] - 1, -1):
        block = chains.node[i]
        state.pins[block] -= 1
        if state.pins[block] == 0:
            append(state.older, state.newer, block, state.place.size)
            state.touched[block] = now
            state.cursor[PINNED] -= 1
            is_free(notes, rules, block, now, used)
            if notes.children[block] == 0:
                becomes_leaf(notes, block)
    if state.cursor[USED_UPPER] > room.upper:
        _shrink(chains, cache, room, room.upper, new_heap(notes), now)


@njit(cache=True)
def release(
    chains: Chains, cache: tuple[ChainState, Notes, PrefixRules], room: Room, t: int, held: int, now: float
) -> None:
    """As caches.shadow.chain.release."""
    first = chains.offsets[t]
    _let_go(chains, cache, room, (first, first + held), now, True)


@njit(cache=True)
def warm(chains: Chains, cache: tuple[ChainState, Notes, PrefixRules], room: Room, t: int, now: float) -> int:
    """As caches.shadow.chain.warm."""
    state = cache[0]
    first, last = chains.offsets[t], chains.offsets[t + 1]
    i = first
    while i < last and state.place[chains.node[i]] == UPPER:
        i += 1
    if i == last or state.place[chains.node[i]] == ABSENT:
        return 0
    upper, _, held = _hold(chains, cache, room, t, False, now)
    _let_go(chains, cache, room, (first, first + held), now, False)
    state.counts[WARMUPS] += held - upper
    return int(held - upper)


@njit(cache=True, nogil=True)
def run_in_turn(chains: Chains, cache: tuple[ChainState, Notes, PrefixRules], room: Room, time: Array) -> Array:
    """All requests one after the other, each finished when it begins, at `time` (seconds, (requests,)). Returns the
    leading blocks of each that hit, int32 (requests,)."""
    hits = np.empty(time.size, np.int32)
    for t in range(time.size):
        upper, lower, held = admit(chains, cache, room, t, time[t])
        release(chains, cache, room, t, held, time[t])
        hits[t] = upper + lower
    return hits
