"""What must hold of the queues and figures of ghost lanes under a policy at any time, by walking all of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from caches.policies.heap import LATEST, WRITTEN_AT
from caches.policies.hooks import NAMED
from caches.policies.rules import GDSF, LFU, LFU_LRU, LRU, LRU_K, S3_FIFO, SIEVE, W_TINYLFU, Rules, rules_from
from caches.policies.s3_fifo import GHOST
from caches.policies.state import FIRST_BYTES, HAND, HELD, IN_HEAP, NAMES, REMEMBERED, SEQUENCE, State
from caches.shadow.kernel import ABSENT, SIZE, TOUCHED, USED
from envs.ghost_lanes import GhostLanes


def audit(ghosts: GhostLanes) -> None:
    lanes, known = ghosts._state.lanes, ghosts.journal.keys
    for lane in ghosts._state.names.values():
        state = State(*(getattr(lanes, name)[lane] for name in State._fields))
        held = set(np.flatnonzero(state.entry[:, TOUCHED] != ABSENT).tolist())
        assert all(k < known for k in held)
        assert state.tally[HELD] == len(held)
        assert state.cursor[USED] == sum(int(state.entry[k, SIZE]) for k in held)
        rules = rules_from(lanes.choices[lanes.current[lane, 0]])
        _audit_circles(state, rules, held, known)
        _audit_uses(state, rules, held)
        if state.asked.size:
            assert state.tally[REMEMBERED] == (state.asked[:known, 0] != ABSENT).sum()
            assert (state.asked[known:] == ABSENT).all()


def _audit_circles(state: State, rules: Rules, held: set[int], known: int) -> None:
    keys = len(state.entry)
    circles = [_members(state, circle) for circle in range(keys, len(state.older))]
    members = [k for circle in circles for k in circle]
    assert len(set(members)) == len(members)
    assert all(k < known for k in members)
    names = set[int]()
    if rules.eviction == S3_FIFO:
        names = set(np.flatnonzero(state.queue == GHOST).tolist())
        assert set(circles[2]) == names
    elif rules.eviction == LRU_K:
        names = set(np.flatnonzero(state.queue == NAMED).tolist())
        assert len(names) == state.tally[NAMES]
    assert not names & held
    queued = rules.eviction in (LRU, LFU_LRU, S3_FIFO, SIEVE, W_TINYLFU) and circles
    assert set(members) == (names | held if queued else names)
    if rules.eviction in (S3_FIFO, W_TINYLFU):
        sizes = [sum(int(state.entry[k, SIZE]) for k in circle) for circle in circles[:3]]
        assert state.tally[FIRST_BYTES : FIRST_BYTES + 3].tolist() == sizes
    if rules.eviction == SIEVE:
        assert state.tally[HAND] == keys or int(state.tally[HAND]) in held


def _members(state: State, circle: int) -> list[int]:
    """Oldest first, and the same the other way round."""
    found, key = [], int(state.newer[circle])
    while key != circle:
        found.append(key)
        assert len(found) <= circle, "it never ends"
        assert state.older[state.newer[key]] == key
        key = int(state.newer[key])
    assert state.older[circle] == (found[-1] if found else circle)
    return found


def _audit_uses(state: State, rules: Rules, held: set[int]) -> None:
    last = state.tally[SEQUENCE]
    if rules.eviction in (LRU_K, LFU, GDSF, LFU_LRU):  # others leave what was there
        for uses in (state.used_at, state.history):
            assert not uses.size or ABSENT <= uses.min() <= uses.max() <= last
    if rules.eviction in (LRU_K, LFU, GDSF):
        slots = range(state.tally[IN_HEAP])
        inside = {int(state.heap_key[i]) for i in slots if _counts(state, i)}
        assert inside == held
        below: list[Any] = [(state.heap_value[i], state.heap_at[i]) for i in slots]
        assert all(below[(i - 1) // 2] <= below[i] for i in slots if i)


def _counts(state: State, slot: int) -> bool:
    key = state.heap_key[slot]
    used = state.used_at[key]
    return bool(state.entry[key, TOUCHED] != ABSENT and used[WRITTEN_AT] <= state.heap_at[slot] <= used[LATEST])
