"""What each policy does when an entry is used, taken in, taken out, or must be found to make room.

One branch per policy, on a number that never changes within a replay. `used`, `taken_in` and `taken_out` keep the
queues and figures of caches.policies.state; `first_to_go` may rearrange them. caches.policies.live has the same for
what runs live, and tests/contracts holds the two together.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from caches.policies.circles import append, unlink
from caches.policies.compiled import inlined
from caches.policies.heap import LATEST, WRITTEN_AT, lowest, push
from caches.policies.lfu_lru import first_of_counts
from caches.policies.rules import GDSF, LFU, LFU_LRU, LRU, LRU_K, S3_FIFO, SIEVE, W_TINYLFU, Rules
from caches.policies.s3_fifo import GHOST, MAIN, MOST_HITS, SMALL, first_of_queues, into_ghost
from caches.policies.state import (
    CROWDED,
    FIRST_BYTES,
    HAND,
    HELD,
    NAMES,
    SEQUENCE,
    THIRD_BYTES,
    State,
)
from caches.policies.w_tinylfu import WINDOW, first_of_segments, out_of_window, used_in_segment
from caches.shadow.kernel import ABSENT, SIZE

NAMED = 1  # of LRU-K: uses are remembered although the entry left
NEW, RETURNING, REWRITTEN = range(3)  # an entry that is taken in: after its key left the ghost circle, over itself
EVICTED, OVERWRITTEN, GONE = range(3)  # an entry that is taken out: for room, to be taken in at once, or else


@inlined
def _numbered(state: State, key: Any) -> None:
    state.tally[SEQUENCE] += 1
    state.used_at[key, LATEST] = state.tally[SEQUENCE]


@inlined
def _into_history(state: State, rules: Rules, key: Any) -> None:
    for place in range(rules.k - 1, 0, -1):
        state.history[key, place] = state.history[key, place - 1]
    state.history[key, 0] = state.tally[SEQUENCE]


@inlined
def used(state: State, rules: Rules, key: Any, capacity: int, now: float) -> None:
    """A hit."""
    keys, eviction = state.entry.shape[0], rules.eviction
    older, newer = state.older, state.newer
    if eviction == SIEVE:
        state.uses[key] = 1
    elif eviction == S3_FIFO:
        state.uses[key] = min(state.uses[key] + 1, MOST_HITS)
    elif eviction == LRU:
        unlink(older, newer, key)
        append(older, newer, key, keys)
    elif eviction == W_TINYLFU:
        used_in_segment(state, rules, key, capacity)
    elif eviction == LFU_LRU:
        _numbered(state, key)
        unlink(older, newer, key)
        state.uses[key] = min(state.uses[key] + 1, rules.most_uses)
        append(older, newer, key, keys + state.uses[key] - 1)
    else:
        _numbered(state, key)
        if eviction == LRU_K:
            _into_history(state, rules, key)
        elif eviction == LFU:
            state.weight[key] = state.weight[key] * math.exp(-rules.fading * (now - state.value[key])) + 1.0
            state.value[key] = now
        else:
            state.weight[key] += 1.0
            worth = state.weight[key] * state.price[key] / max(state.entry[key, SIZE], 1)
            state.value[key] = state.cache_age[0] + worth


@inlined
def offered(state: State, rules: Rules, key: Any, standing: int, price: float, size: Any) -> Any:
    """What is about to be taken in; its standing then. A key leaves the ghost circle, before room is made."""
    if state.price.size > 0:
        state.price[key] = price
    if rules.eviction == S3_FIFO and state.queue[key] == GHOST:
        state.tally[THIRD_BYTES] -= state.entry[key, SIZE]
        standing = RETURNING
    elif rules.eviction == LRU_K and state.queue[key] == NAMED:
        state.tally[NAMES] -= 1
        standing = RETURNING
    elif rules.eviction == GDSF:
        state.weight[key] = state.weight[key] if standing == REWRITTEN else 1.0
        state.value[key] = state.cache_age[0] + state.weight[key] * price / max(size, 1)
    if standing == RETURNING:
        unlink(state.older, state.newer, key)
        state.queue[key] = 0
    return standing


@inlined
def taken_in(state: State, rules: Rules, key: Any, standing: int, capacity: int, now: float) -> None:
    """standing: as `offered` said. Size and price are written already. An entry that is written again keeps
    the uses it had, and the queue it was in."""
    keys, eviction = state.entry.shape[0], rules.eviction
    older, newer = state.older, state.newer
    if eviction == SIEVE:
        append(older, newer, key, keys)
        if standing != REWRITTEN:
            state.uses[key] = 0
    elif eviction == S3_FIFO:
        if standing != REWRITTEN:
            full = state.tally[CROWDED] == 0 and state.tally[FIRST_BYTES] >= int(capacity * rules.small)
            state.uses[key] = 0
            state.queue[key] = MAIN if standing == RETURNING or full else SMALL
        append(older, newer, key, keys + state.queue[key] - 1)
        state.tally[FIRST_BYTES + state.queue[key] - 1] += state.entry[key, SIZE]
    elif eviction == LRU:
        append(older, newer, key, keys)
    elif eviction == W_TINYLFU:
        if standing != REWRITTEN:
            state.queue[key] = WINDOW
        append(older, newer, key, keys + state.queue[key] - 1)
        state.tally[FIRST_BYTES + state.queue[key] - 1] += state.entry[key, SIZE]
        out_of_window(state, rules, capacity)
    else:
        _numbered(state, key)
        state.used_at[key, WRITTEN_AT] = state.tally[SEQUENCE]
        if eviction == LFU_LRU:
            state.uses[key] = state.uses[key] if standing == REWRITTEN else 1
            append(older, newer, key, keys + state.uses[key] - 1)
        else:
            _worth_something(state, rules, key, standing, now)
            push(state, rules, key)


@inlined
def _worth_something(state: State, rules: Rules, key: Any, standing: int, now: float) -> None:
    """The figures of an entry that is taken in, under a policy that has a heap."""
    if rules.eviction == LRU_K:
        if standing == NEW:
            for place in range(rules.k):
                state.history[key, place] = ABSENT
        if standing != REWRITTEN:
            _into_history(state, rules, key)
    elif rules.eviction == LFU and standing != REWRITTEN:
        state.weight[key] = 1.0
        state.value[key] = now


@inlined
def taken_out(state: State, rules: Rules, key: Any, why: int, capacity: int) -> None:
    """why: EVICTED, OVERWRITTEN or GONE. HELD does not count it any more."""
    keys, eviction = state.entry.shape[0], rules.eviction
    older, newer = state.older, state.newer
    if eviction == SIEVE:
        if state.tally[HAND] == key:
            state.tally[HAND] = newer[key]
        unlink(older, newer, key)
    elif eviction == S3_FIFO:
        unlink(older, newer, key)
        state.tally[FIRST_BYTES + state.queue[key] - 1] -= state.entry[key, SIZE]
        if why == EVICTED:
            state.tally[CROWDED] = 1
        if why == EVICTED and state.queue[key] == SMALL:
            into_ghost(state, key, int(capacity * rules.ghost))
        elif why != OVERWRITTEN:
            state.queue[key] = 0
    elif eviction == W_TINYLFU:
        unlink(older, newer, key)
        state.tally[FIRST_BYTES + state.queue[key] - 1] -= state.entry[key, SIZE]
    elif eviction in (LRU, LFU_LRU):
        unlink(older, newer, key)
    elif eviction == LRU_K:
        if why != OVERWRITTEN:
            append(older, newer, key, keys)
            state.queue[key] = NAMED
            state.tally[NAMES] += 1
            while state.tally[NAMES] > rules.kept * state.tally[HELD]:
                out = newer[keys]
                unlink(older, newer, out)
                state.queue[out] = 0
                state.tally[NAMES] -= 1
    elif eviction == GDSF and why == EVICTED:
        # what was taken in unjudged may be worth less than what went before; the heap relies on values that only grow
        state.cache_age[0] = max(state.cache_age[0], state.value[key])


@inlined
def first_to_go(state: State, rules: Rules, capacity: int, more: Any) -> Any:
    """The entry that makes room; there must be one. more: bytes that are to be taken in, 0 for a smaller capacity."""
    keys, eviction, newer = state.entry.shape[0], rules.eviction, state.newer
    if eviction == SIEVE:
        key = np.int64(state.tally[HAND])
        key = np.int64(newer[keys]) if key == keys else key
        while state.uses[key] > 0:
            state.uses[key] = 0
            key = np.int64(newer[key])
            key = np.int64(newer[keys]) if key == keys else key
        state.tally[HAND] = key
    elif eviction == S3_FIFO:
        key = first_of_queues(state, rules, capacity)
    elif eviction == LRU:
        key = np.int64(newer[keys])
    elif eviction == W_TINYLFU:
        key = first_of_segments(state, rules, capacity, more)
    elif eviction == LFU_LRU:
        key = first_of_counts(state, rules)
    else:
        key = np.int64(lowest(state, rules))
    return key
