"""What a policy remembers of the blocks of a prefix cache, whether they are in it or not, and what it learns from that.

A use is a request that asks for a block. The blocks of one request that fall into one class (caches.policies.
prefix_density; elsewhere there is one class) are used as a group, and groups are remembered in order: when there are
more than PrefixRules.remembered, the oldest is forgotten, and every block whose latest use it was is new again.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from caches.policies import prefix_density as density
from caches.policies.prefix_settings import GDSF, HIT_DENSITY, LFU, LRU_K, PrefixRules

Array = NDArray[Any]
NOBODY = -1  # Notes.group
LEAST = 1e-300  # of a weight, whose logarithm is taken

# Notes.tally: evictable blocks, ends of uses so far, groups so far and the first that is remembered, requests so far
LEAVES, ENDED, GROUPS, OLDEST_GROUP, REQUESTS = range(5)


class Notes(NamedTuple):
    """Of one cache. By node: group (int32), of the latest use; seen (float64), when that was or ended; times (int32),
    uses as far as remembered; weight, value (float64), what LFU and GDSF make of them; recent (int64, (nodes, k)),
    numbers of the latest uses' ends, latest first, 0 for none; children (int32), in the upper tier; leaf and spot
    (int32), the evictable blocks in any order, and where each of them stands there, -1 for the others.

    tally: int64 (5,). age: float64 (1,), of GDSF. By group, in a ring: kind (int32), its class; since (float64), when
    its use was or ended; waiting (int32), blocks that were not used again. returned, lost, worth: float64
    (classes, BINS), see caches.policies.prefix_density.densities.
    """

    group: Array
    seen: Array
    times: Array
    weight: Array
    value: Array
    recent: Array
    children: Array
    leaf: Array
    spot: Array
    tally: Array
    age: Array
    kind: Array
    since: Array
    waiting: Array
    returned: Array
    lost: Array
    worth: Array


def empty_notes(nodes: int, rules: PrefixRules) -> Notes:
    """Of a cache that has seen nothing. Memory: 44 bytes per node and 8 per use that LRU-K counts, 16 per group that is
    remembered."""
    learned = (density.CLASSES if rules.eviction == HIT_DENSITY else 0, density.BINS)
    return Notes(
        np.full(nodes, NOBODY, np.int32),
        np.zeros(nodes),
        np.zeros(nodes, np.int32),
        np.zeros(nodes),
        np.zeros(nodes),
        np.zeros((nodes, max(rules.k, 1)), np.int64),
        np.zeros(nodes, np.int32),
        np.zeros(nodes, np.int32),
        np.full(nodes, -1, np.int32),
        np.zeros(5, np.int64),
        np.zeros(1),
        np.zeros(rules.remembered, np.int32),
        np.zeros(rules.remembered),
        np.zeros(rules.remembered, np.int32),
        np.zeros(learned),
        np.zeros(learned),
        np.zeros(learned),
    )


@njit(cache=True)
def remembered(notes: Notes, block: int) -> bool:
    return bool(notes.group[block] != NOBODY and notes.group[block] >= notes.tally[OLDEST_GROUP])


@njit(cache=True)
def take_note(notes: Notes, rules: PrefixRules, chain: Array, now: float) -> None:
    """A request asks for the blocks of a chain."""
    if rules.eviction == HIT_DENSITY and notes.tally[REQUESTS] % rules.every == 0 and notes.tally[REQUESTS] > 0:
        estimate(notes, rules, now)
    notes.tally[REQUESTS] += 1
    known = 0
    while known < chain.size and remembered(notes, chain[known]):
        known += 1
    goes_on = known > 0 and notes.times[chain[known - 1]] == 1
    limits = (rules.length, rules.fresh)
    first, first_known = notes.tally[GROUPS], notes.tally[OLDEST_GROUP]
    for place in range(chain.size):
        block, kind, gap = chain[place], 0, 0.0
        again = notes.group[block] != NOBODY and notes.group[block] >= first_known
        if again:
            gap = max(now - notes.seen[block], 0.0)
            _came_back(notes, rules, block, gap)
        notes.times[block] = notes.times[block] + 1 if again else 1
        if rules.eviction == HIT_DENSITY:
            times = notes.times[block]
            size = density.size_level(times, place, chain.size, known, goes_on, limits)
            kind = density.class_of(density.uses_level(times), size, density.gap_level(times, gap))
        notes.group[block] = _group(notes, rules, first, kind, now)
        notes.seen[block] = now
        _weigh(notes, rules, block, place, again, now)


@njit(cache=True)
def _came_back(notes: Notes, rules: PrefixRules, block: int, gap: float) -> None:
    """A block is used again, unless its group was forgotten while this request was being looked at."""
    if rules.eviction == HIT_DENSITY and notes.group[block] >= notes.tally[OLDEST_GROUP]:
        place = notes.group[block] % rules.remembered
        notes.waiting[place] -= 1
        notes.returned[notes.kind[place], density.bin_of(gap)] += 1.0


@njit(cache=True)
def _group(notes: Notes, rules: PrefixRules, first: int, kind: int, now: float) -> int:
    """The request's group for a class, of those from `first` on; a new one where there is none."""
    for group in range(max(first, notes.tally[OLDEST_GROUP]), notes.tally[GROUPS]):
        if notes.kind[group % rules.remembered] == kind:
            notes.waiting[group % rules.remembered] += 1
            return group
    group = int(notes.tally[GROUPS])
    if group - notes.tally[OLDEST_GROUP] == rules.remembered:
        oldest = notes.tally[OLDEST_GROUP] % rules.remembered
        if rules.eviction == HIT_DENSITY:
            _survived(notes.lost, notes, oldest, now)
        notes.tally[OLDEST_GROUP] += 1
    place = group % rules.remembered
    notes.kind[place], notes.since[place], notes.waiting[place] = kind, now, 1
    notes.tally[GROUPS] += 1
    return group


@njit(cache=True)
def _survived(lost: Array, notes: Notes, place: int, now: float) -> None:
    """Counts the blocks of a group that wait still, as lost behind the last bin that they were in as a whole."""
    reached = density.bin_of(max(now - notes.since[place], 0.0))
    if reached > 0 and notes.waiting[place] > 0:
        lost[notes.kind[place], reached - 1] += notes.waiting[place]


@njit(cache=True)
def estimate(notes: Notes, rules: PrefixRules, now: float) -> None:
    """Densities from all that is known, after which what is over fades."""
    lost = notes.lost.copy()
    for group in range(notes.tally[OLDEST_GROUP], notes.tally[GROUPS]):
        _survived(lost, notes, group % rules.remembered, now)
    worth, fade = density.densities(notes.returned, lost, rules.strength), 0.5 ** (rules.every / rules.half_life)
    for kind in range(worth.shape[0]):
        for b in range(worth.shape[1]):
            notes.worth[kind, b] = worth[kind, b]
            notes.returned[kind, b] *= fade
            notes.lost[kind, b] *= fade


@njit(cache=True)
def _weigh(notes: Notes, rules: PrefixRules, block: int, place: int, again: bool, now: float) -> None:
    if rules.eviction == LFU:
        faded = notes.weight[block] * math.exp(-rules.fading * (now - notes.value[block])) if again else 0.0
        notes.weight[block], notes.value[block] = faded + 1.0, now
    elif rules.eviction == GDSF:
        notes.weight[block] = notes.times[block] * (1.0 + rules.block_cost * place)
    elif rules.eviction == LRU_K and not again:
        notes.recent[block, :] = 0


@njit(cache=True)
def is_free(notes: Notes, rules: PrefixRules, block: int, now: float, used: bool) -> None:
    """Nobody uses a resident block any more. used: because a request ended, not a warm-up."""
    notes.tally[ENDED] += 1
    if rules.eviction == GDSF:
        notes.value[block] = notes.age[0] + notes.weight[block]
    if used:
        for place in range(rules.k - 1, 0, -1):
            notes.recent[block, place] = notes.recent[block, place - 1]
        if remembered(notes, block):
            notes.seen[block] = now
            notes.since[notes.group[block] % rules.remembered] = now
    notes.recent[block, 0] = notes.tally[ENDED]


@njit(inline="always")
def value_of(notes: Notes, rules: PrefixRules, block: int, now: float) -> Any:
    """Of a resident block that nobody uses; the lowest goes first, of equals the one whose use ended first."""
    value = 0.0
    if rules.eviction == LRU_K:
        value = np.float64(notes.recent[block, rules.k - 1])
    elif rules.eviction == LFU:
        value = math.log(max(notes.weight[block], LEAST)) + rules.fading * notes.value[block]
    elif rules.eviction == GDSF:
        value = notes.value[block]
    elif rules.eviction == HIT_DENSITY:
        group = notes.group[block]
        if group != NOBODY and group >= notes.tally[OLDEST_GROUP]:
            kind = notes.kind[group % rules.remembered]
            value = notes.worth[kind, density.bin_of(max(now - notes.seen[block], 0.0))]
    return value


@njit(cache=True)
def notes_at(lanes: Any, lane: int) -> Notes:
    """Of the cache of a lane; what is written to it is written there. lanes: Notes of lanes, or what has its fields."""
    return Notes(
        lanes.group[lane],
        lanes.seen[lane],
        lanes.times[lane],
        lanes.weight[lane],
        lanes.value[lane],
        lanes.recent[lane],
        lanes.children[lane],
        lanes.leaf[lane],
        lanes.spot[lane],
        lanes.tally[lane],
        lanes.age[lane],
        lanes.kind[lane],
        lanes.since[lane],
        lanes.waiting[lane],
        lanes.returned[lane],
        lanes.lost[lane],
        lanes.worth[lane],
    )
