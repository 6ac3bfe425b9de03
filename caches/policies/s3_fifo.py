"""S3-FIFO in the replay kernel: a small and a main queue and a ghost of names, which are its first three circles."""

from __future__ import annotations

from typing import Any

import numpy as np

from caches.policies.circles import append, unlink
from caches.policies.compiled import inlined
from caches.policies.rules import Rules
from caches.policies.state import FIRST_BYTES, SECOND_BYTES, THIRD_BYTES, State
from caches.shadow.kernel import ABSENT, SIZE

SMALL, MAIN, GHOST = 1, 2, 3  # State.queue; 0 for none
MOST_HITS = 3  # that it counts


@inlined
def into_ghost(state: State, key: Any, room: int) -> None:
    """Of S3-FIFO: remembers a name, and forgets the oldest ones for it."""
    keys, older, newer = state.entry.shape[0], state.older, state.newer
    size = state.entry[key, SIZE]
    state.queue[key] = 0
    if size <= room:
        while state.tally[THIRD_BYTES] + size > room:
            out = newer[keys + 2]
            unlink(older, newer, out)
            state.queue[out] = 0
            state.tally[THIRD_BYTES] -= state.entry[out, SIZE]
        append(older, newer, key, keys + 2)
        state.queue[key] = GHOST
        state.tally[THIRD_BYTES] += size


@inlined
def first_of_queues(state: State, rules: Rules, capacity: int) -> Any:
    """Of S3-FIFO. What was hit goes from the small queue to the main one, or to the newest end of that."""
    keys, older, newer = state.entry.shape[0], state.older, state.newer
    small, main = keys, keys + 1
    key = np.int64(ABSENT)
    if state.tally[SECOND_BYTES] <= capacity - int(capacity * rules.small):
        while newer[small] != small:
            key = np.int64(newer[small])
            if state.uses[key] < rules.uses:
                break
            unlink(older, newer, key)
            append(older, newer, key, main)
            state.queue[key], state.uses[key] = MAIN, 0
            state.tally[FIRST_BYTES] -= state.entry[key, SIZE]
            state.tally[SECOND_BYTES] += state.entry[key, SIZE]
            key = np.int64(ABSENT)
    if key == ABSENT:
        key = np.int64(newer[main])
        while key != main and state.uses[key] > 0:
            unlink(older, newer, key)
            append(older, newer, key, main)
            state.uses[key] -= 1
            key = np.int64(newer[main])
    return key
