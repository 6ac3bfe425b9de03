"""The prefix cache: prompts share blocks, only the leading run of resident blocks hits, users pin what they use.

Two tiers: the upper one, whose size and lifetime are tuned, and one below it, which may have no room at all. Blocks
that leave the upper tier for space or age fall to the one below; a hit there brings them up again.

Each tier keeps its blocks in order of their last use, pinned ones apart. A request is done with its deepest block
first, so a parent is never less recent than its child: whichever block goes first, it has no child there, and a tier
may be walked from its oldest block on without looking at the tree. The blocks of a prompt are therefore always, from
the first one on: some in the upper tier, then some in the lower, then none.

Everything counts in blocks. Time never goes back.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from caches.errors import InputError
from caches.shadow.trie import Chains
from caches.stats import PrefixStats

Array = NDArray[Any]

ABSENT, UPPER, LOWER = 0, 1, 2  # ChainState.place
USED_UPPER, USED_LOWER, PINNED = range(3)  # ChainState.cursor
(UPPER_HITS, LOWER_HITS, MISSES, EXPIRATIONS, EVICTIONS, REFUSALS, WARMUPS, DROPS) = range(8)  # ChainState.counts


class ChainState(NamedTuple):
    """One cache. place: uint8 (nodes,). pins: int32 (nodes,). touched: float64 (nodes,), end of the last use.

    older, newer: int32 (nodes + 2,), neighbours in the order of use among a tier's unpinned blocks; the last two
    entries are where the upper and the lower tier's circle begins. cursor: int64 (3,), blocks in each tier and pinned
    ones. counts: int64 (8,).
    """

    place: Array
    pins: Array
    touched: Array
    older: Array
    newer: Array
    cursor: Array
    counts: Array


class Room(NamedTuple):
    """Blocks that fit into each tier."""

    upper: int
    lower: int


def empty_chain_state(nodes: int) -> ChainState:
    """A cache that holds nothing."""
    return ChainState(
        np.zeros(nodes, np.uint8),
        np.zeros(nodes, np.int32),
        np.zeros(nodes, np.float64),
        np.arange(nodes + 2, dtype=np.int32),
        np.arange(nodes + 2, dtype=np.int32),
        np.zeros(3, np.int64),
        np.zeros(8, np.int64),
    )


@njit(inline="always")
def append(older: Array, newer: Array, block: int, circle: int) -> None:
    newest = older[circle]
    newer[newest] = block
    older[block] = newest
    newer[block] = circle
    older[circle] = block


@njit(inline="always")
def unlink(older: Array, newer: Array, block: int) -> None:
    newer[older[block]] = newer[block]
    older[newer[block]] = older[block]


@njit(cache=True)
def drop_from_lower(state: ChainState, room: int) -> None:
    """Forgets the least recent blocks of the lower tier until it holds no more than `room`."""
    circle = state.place.size + 1
    while state.cursor[USED_LOWER] > room:
        block = state.newer[circle]
        unlink(state.older, state.newer, block)
        state.place[block] = ABSENT
        state.cursor[USED_LOWER] -= 1
        state.counts[DROPS] += 1


@njit(cache=True)
def _fall(state: ChainState, lower_room: int) -> None:
    """The least recent unpinned block of the upper tier goes to the top of the lower one. There must be one."""
    upper, lower = state.place.size, state.place.size + 1
    block = state.newer[upper]
    unlink(state.older, state.newer, block)
    state.cursor[USED_UPPER] -= 1
    state.place[block] = LOWER
    append(state.older, state.newer, block, lower)
    state.cursor[USED_LOWER] += 1
    drop_from_lower(state, lower_room)


@njit(cache=True)
def _shrink_upper(state: ChainState, room: Room, used: int) -> None:
    """Evicts unpinned blocks until no more than `used` are left, or only pinned ones."""
    circle = state.place.size
    while state.cursor[USED_UPPER] > used and state.newer[circle] != circle:
        state.counts[EVICTIONS] += 1
        _fall(state, room.lower)


@njit(cache=True)
def resize(state: ChainState, room: Room) -> None:
    """Evicts down to the room. What is pinned stays until it is released."""
    _shrink_upper(state, room, room.upper)
    drop_from_lower(state, room.lower)


@njit(cache=True)
def expire(state: ChainState, room: Room, ttl_seconds: float, now: float) -> None:
    """Blocks of the upper tier unused for ttl_seconds or longer fall, least recent first; pinned ones are in use."""
    circle = state.place.size
    while state.newer[circle] != circle and now - state.touched[state.newer[circle]] >= ttl_seconds:
        state.counts[EXPIRATIONS] += 1
        _fall(state, room.lower)


@njit(cache=True)
def _hold(chains: Chains, state: ChainState, room: Room, t: int, insert: bool) -> tuple[int, int, int]:
    """Pins the leading run of request t's blocks and brings what lies lower up; with `insert`, adds what is missing.

    Returns blocks found in the upper tier, found in the lower one, and pinned. What finds no room, because all that is
    there is in use, stays where it was; always the deepest blocks.
    """
    place, pins, older, newer, cursor = state.place, state.pins, state.older, state.newer, state.cursor
    chain = chains.node[chains.offsets[t] : chains.offsets[t + 1]]
    upper = 0
    while upper < chain.size and place[chain[upper]] == UPPER:
        if pins[chain[upper]] == 0:
            unlink(older, newer, chain[upper])
            cursor[PINNED] += 1
        pins[chain[upper]] += 1
        upper += 1
    found = upper
    while found < chain.size and place[chain[found]] == LOWER:
        unlink(older, newer, chain[found])  # under way: an eviction below must not push it out
        found += 1
    cursor[USED_LOWER] -= found - upper
    held = upper
    for i in range(upper, chain.size if insert else found):
        _shrink_upper(state, room, room.upper - 1)
        if cursor[USED_UPPER] >= room.upper:
            break
        place[chain[i]] = UPPER
        pins[chain[i]] = 1
        cursor[USED_UPPER] += 1
        cursor[PINNED] += 1
        held += 1
    for i in range(found - 1, held - 1, -1):
        append(older, newer, chain[i], place.size + 1)
        cursor[USED_LOWER] += 1
    drop_from_lower(state, room.lower)
    return upper, found - upper, held


@njit(cache=True)
def admit(chains: Chains, state: ChainState, room: Room, t: int) -> tuple[int, int, int]:
    """Request t begins: looks up, inserts what is missing, pins.

    Returns blocks that hit in the upper tier, blocks that hit in the lower one, and blocks pinned (`held`), which
    `release` must be told. Blocks beyond `held` are refused: everything in the upper tier is in use.
    """
    upper, lower, held = _hold(chains, state, room, t, True)
    blocks = chains.offsets[t + 1] - chains.offsets[t]
    state.counts[UPPER_HITS] += upper
    state.counts[LOWER_HITS] += lower
    state.counts[MISSES] += blocks - upper - lower
    state.counts[REFUSALS] += blocks - held
    return upper, lower, held


@njit(cache=True)
def release(chains: Chains, state: ChainState, room: Room, t: int, held: int, now: float) -> None:
    """Request t is done with its first `held` blocks, the deepest first."""
    first = chains.offsets[t]
    circle = state.place.size
    for i in range(first + held - 1, first - 1, -1):
        block = chains.node[i]
        state.pins[block] -= 1
        if state.pins[block] == 0:
            append(state.older, state.newer, block, circle)
            state.touched[block] = now
            state.cursor[PINNED] -= 1
    _shrink_upper(state, room, room.upper)


@njit(cache=True)
def warm(chains: Chains, state: ChainState, room: Room, t: int, now: float) -> int:
    """Brings the resident blocks of request t's prompt up ahead of need, as if it had come again and gone.

    Returns blocks copied from the lower tier. Does nothing where none lies there.
    """
    last = chains.offsets[t + 1]
    some = False
    for i in range(chains.offsets[t], last):
        some = state.place[chains.node[i]] == LOWER
        if state.place[chains.node[i]] != UPPER:
            break
    if not some:
        return 0
    upper, _, held = _hold(chains, state, room, t, False)
    release(chains, state, room, t, held, now)
    state.counts[WARMUPS] += held - upper
    return held - upper


class PrefixCache:
    """One prefix cache over one trace, driven request by request, for questions about the cache alone.

    The caller says when a request arrives and when it is finished, in order of time. Memory: 21 bytes per node.
    """

    def __init__(self, chains: Chains, upper_blocks: int, ttl_seconds: float = np.inf, lower_blocks: int = 0) -> None:
        self.chains = chains
        self.state = empty_chain_state(len(chains.parent))
        self._held: dict[int, int] = {}
        self._lower_blocks, self._now = lower_blocks, -np.inf
        self._set(upper_blocks, ttl_seconds)

    def apply(self, upper_blocks: int, ttl_seconds: float, now_seconds: float) -> None:
        """New settings: first age, then space."""
        self._set(upper_blocks, ttl_seconds)
        self._expire(now_seconds)
        resize(self.state, self.room)

    def arrive(self, t: int, now_seconds: float) -> tuple[int, int]:
        """Request t begins; returns its leading blocks that hit in the upper and in the lower tier."""
        self._check_idle(t)
        self._expire(now_seconds)
        upper, lower, self._held[t] = admit(self.chains, self.state, self.room, t)
        return upper, lower

    def finish(self, t: int, now_seconds: float) -> None:
        """Request t ends: its blocks count as used until now."""
        self._check_running(t)
        self._expire(now_seconds)
        release(self.chains, self.state, self.room, t, self._held.pop(t), now_seconds)

    def warm(self, t: int, now_seconds: float) -> int:
        """Copies what is left of request t's prompt up; returns blocks copied."""
        self._expire(now_seconds)
        return int(warm(self.chains, self.state, self.room, t, now_seconds))

    def run(self, stop: int) -> Array:
        """Requests 0 to stop - 1 one after the other, each finished before the next, all at the time that it is.

        Returns the leading blocks of each that hit, int32 (stop,).
        """
        now = self._now if np.isfinite(self._now) else 0.0
        return _run_in_turn(self.chains, self.state, self.room, stop, now)

    def resident(self, tier: int) -> set[int]:
        """Nodes in a tier (UPPER or LOWER)."""
        return set(np.flatnonzero(self.state.place == tier).tolist())

    def stats(self) -> PrefixStats:
        return PrefixStats(*self.state.counts.tolist(), *self.state.cursor[:PINNED].tolist())

    def _set(self, upper_blocks: int, ttl_seconds: float) -> None:
        if upper_blocks < 0 or self._lower_blocks < 0:
            raise InputError(f"blocks: got {upper_blocks} and {self._lower_blocks} below, expected 0 or more")
        if not ttl_seconds > 0:
            raise InputError(f"ttl_seconds: got {ttl_seconds}, expected above 0")
        self.room, self.ttl_seconds = Room(upper_blocks, self._lower_blocks), ttl_seconds

    def _check_idle(self, t: int) -> None:
        if not 0 <= t < len(self.chains.offsets) - 1 or t in self._held:
            raise InputError(f"request: got {t}, expected one of the trace's that is not running")

    def _check_running(self, t: int) -> None:
        if t not in self._held:
            raise InputError(f"request: got {t}, expected one that is running")

    def _check_time(self, now_seconds: float) -> None:
        if now_seconds < self._now:
            raise InputError(f"now_seconds: got {now_seconds}, expected at least {self._now}: time never goes back")
        self._now = now_seconds

    def _expire(self, now_seconds: float) -> None:
        self._check_time(now_seconds)
        expire(self.state, self.room, self.ttl_seconds, now_seconds)


@njit(cache=True)
def _run_in_turn(chains: Chains, state: ChainState, room: Room, stop: int, now: float) -> Array:
    hits = np.empty(stop, np.int32)
    for t in range(stop):
        upper, lower, held = admit(chains, state, room, t)
        release(chains, state, room, t, held, now)
        hits[t] = upper + lower
    return hits
