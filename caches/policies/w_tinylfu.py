"""W-TinyLFU in the replay kernel: a window, a probation and a protected segment, which are its first three circles."""

from __future__ import annotations

from typing import Any

import numpy as np

from caches.policies.circles import append, unlink
from caches.policies.compiled import inlined
from caches.policies.rules import Rules
from caches.policies.sketch import frequency
from caches.policies.state import FIRST_BYTES, SECOND_BYTES, THIRD_BYTES, State
from caches.shadow.kernel import ABSENT, SIZE

WINDOW, PROBATION, PROTECTED = 1, 2, 3  # State.queue


@inlined
def used_in_segment(state: State, rules: Rules, key: Any, capacity: int) -> None:
    """To the newest end of the window or of the protected segment; what that pushes out goes on probation."""
    keys, older, newer = state.entry.shape[0], state.older, state.newer
    unlink(older, newer, key)
    if state.queue[key] == WINDOW:
        append(older, newer, key, keys)
    else:
        if state.queue[key] == PROBATION:
            state.queue[key] = PROTECTED
            state.tally[SECOND_BYTES] -= state.entry[key, SIZE]
            state.tally[THIRD_BYTES] += state.entry[key, SIZE]
        append(older, newer, key, keys + 2)
        room = int((capacity - int(capacity * rules.window)) * rules.protected)
        while state.tally[THIRD_BYTES] > room:
            out = newer[keys + 2]
            unlink(older, newer, out)
            append(older, newer, out, keys + 1)
            state.queue[out] = PROBATION
            state.tally[THIRD_BYTES] -= state.entry[out, SIZE]
            state.tally[SECOND_BYTES] += state.entry[out, SIZE]


@inlined
def out_of_window(state: State, rules: Rules, capacity: int) -> None:
    """What is too much for the window goes on probation while the main part has room."""
    keys, older, newer = state.entry.shape[0], state.older, state.newer
    window = int(capacity * rules.window)
    main = capacity - window
    while state.tally[FIRST_BYTES] > window:
        out = newer[keys]
        size = state.entry[out, SIZE]
        if state.tally[SECOND_BYTES] + state.tally[THIRD_BYTES] + size > main:
            break
        unlink(older, newer, out)
        append(older, newer, out, keys + 1)
        state.queue[out] = PROBATION
        state.tally[FIRST_BYTES] -= size
        state.tally[SECOND_BYTES] += size


@inlined
def first_of_segments(state: State, rules: Rules, capacity: int, more: Any) -> Any:
    """Of W-TinyLFU: what leaves the window for `more`, or what the main part would lose for it."""
    keys, older, newer = state.entry.shape[0], state.older, state.newer
    window = int(capacity * rules.window)
    main = capacity - window
    key = np.int64(ABSENT)
    while key == ABSENT:
        leaving = newer[keys] if state.tally[FIRST_BYTES] + more > window else keys
        losing = newer[keys + 1] if newer[keys + 1] != keys + 1 else newer[keys + 2]
        held = state.tally[SECOND_BYTES] + state.tally[THIRD_BYTES]
        if leaving != keys and held + state.entry[leaving, SIZE] <= main:
            unlink(older, newer, leaving)
            append(older, newer, leaving, keys + 1)
            state.queue[leaving] = PROBATION
            state.tally[FIRST_BYTES] -= state.entry[leaving, SIZE]
            state.tally[SECOND_BYTES] += state.entry[leaving, SIZE]
        elif losing == keys + 2:
            key = np.int64(newer[keys])
        elif leaving == keys or frequency(state, leaving) > frequency(state, losing):
            key = np.int64(losing)
        else:
            key = np.int64(leaving)
    return key
