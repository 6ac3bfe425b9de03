"""Kernels of ghost caches that go on for ever: one interval of many lanes, and taking out what no lane needs any more.

Why nothing changes when requests are taken out. A position means something to a cache only while it is the last touch
or the write of an entry that is held (`caches/shadow/kernel.py`). Where a queue stands, and which warm-up came before
which request, are matters of order. So requests that no entry points at may go, and the others be numbered anew in
their order: the same entries expire and are evicted in the same order at the same times.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from caches.shadow import kernel
from caches.shadow.kernel import (
    ABSENT,
    FRESH,
    FRESH_WARM,
    HIT,
    LISTED,
    MISS,
    OLDEST,
    OLDEST_WARM,
    SIZE,
    TOUCHED,
    USED,
    WRITTEN,
)
from envs.ghost_policy_kernels import advance_lane, begin_lane
from envs.interval import COLUMN
from envs.lanes import Lanes, Scene, account, open_slots, serve_misses
from envs.reward import stale_share

Array = NDArray[Any]
U = np.uint64

# of a lane in an interval so far, as envs.lanes.account wants it
WARMUPS, WARM_COMPUTE, MISSED, COMPUTE, TOKENS, HIT_TOKENS, STALE = range(7)
WAITED, BUSY, SLOW, HELD = range(7, 11)
SUMS = 11
# of each group of keys: USD of misses, warm-ups and slow requests; USD of outdated answers; hits and misses
BACKEND_USD, STALE_USD, HITS, MISSES = range(4)
TALLIES = 4
SLOW_USD = COLUMN["slow_usd"]


class Running(NamedTuple):
    """Lanes in an interval that is not over. which: int64, their numbers. settings: float64 (which, 3), or (which, 4)
    with the number of an eviction policy behind. before: int64 (which, kernel.COUNTS), their counts when it began.
    sums: float64 (which, SUMS). tallies: float64 (which, groups, TALLIES)."""

    which: Array
    settings: Array
    before: Array
    sums: Array
    tallies: Array


@njit(cache=True, nogil=True)
def begin(scene: Scene, lanes: Any, running: Running, group: Array) -> None:
    """Brings the settings into force, and warms up. scene: its first edge is where the interval begins. lanes: Lanes,
    or PolicyLanes, whose fields of the same names are all that money goes by. group: uint8, by request."""
    at, now = scene.edges[0], scene.start
    for i in range(running.which.size):
        one = _alone(lanes, running.which[i])
        settings, sums = running.settings[i], running.sums[i]
        running.before[i] = one.counts[0]
        begin_lane(lanes, running.which[i], settings, now)
        open_slots(scene, one, 0, now, settings)
        wanted = int(np.round(settings[2] * scene.candidate_count[0]))
        taken = advance_lane(
            scene,
            lanes,
            running.which[i],
            kernel.Limits(int(settings[0]), settings[1], scene.since_touch),
            (kernel.Moment(at, now, now + scene.seconds), scene.candidates[0, :wanted], at),
            kernel.Record(one.fetched[0], one.outcome[0, :0], one.age[0, :0]),
        )
        sums[WARMUPS] = taken
        for w in range(taken):
            t = one.fetched[0, w]
            sums[WARM_COMPUTE] += scene.gpu[t]
            usd = scene.gpu[t] * scene.tariff.gpu_second * scene.tariff.warmup_factor
            running.tallies[i, group[t], BACKEND_USD] += usd


@njit(cache=True, nogil=True)
def feed(scene: Scene, lanes: Any, running: Running, group: Array, now: float) -> None:
    """More requests of the interval, those between the scene's edges. now: when the last one before them came, or the
    interval began."""
    at, stop = scene.edges[0], scene.edges[1]
    for i in range(running.which.size):
        one = _alone(lanes, running.which[i])
        settings, sums = running.settings[i], running.sums[i]
        advance_lane(
            scene,
            lanes,
            running.which[i],
            kernel.Limits(int(settings[0]), settings[1], scene.since_touch),
            (kernel.Moment(at, now, now), scene.candidates[0, :0], stop),
            kernel.Record(one.fetched[0], one.outcome[0], one.age[0]),
        )
        before, known = (sums[WAITED], sums[BUSY], int(sums[SLOW]), sums[HELD]), int(sums[MISSED])
        _count(scene, one, group, sums, running.tallies[i])
        served = serve_misses(scene, one, 0, (known, int(sums[MISSED])), before)
        sums[WAITED], sums[BUSY], sums[SLOW], sums[HELD] = served


@njit(cache=True, nogil=True)
def finish(scene: Scene, lanes: Any, running: Running, rows: Array) -> None:
    """What the interval came to: (which, STATS), written to `rows`. Slow requests count as spread over the misses."""
    for i in range(running.which.size):
        one, sums, tallies = _alone(lanes, running.which[i]), running.sums[i], running.tallies[i]
        misses = int(sums[MISSED])
        counted = (
            int(sums[WARMUPS]),
            sums[WARM_COMPUTE],
            misses,
            sums[COMPUTE],
            sums[TOKENS],
            sums[HIT_TOKENS],
            sums[STALE],
        )
        served = (sums[WAITED], sums[BUSY], int(sums[SLOW]), sums[HELD])
        account(scene, one, 0, running.settings[i], running.before[i], counted, served, rows[i])
        if misses > 0:
            for g in range(tallies.shape[0]):
                tallies[g, BACKEND_USD] += rows[i, SLOW_USD] * tallies[g, MISSES] / misses


@njit(cache=True)
def _alone(lanes: Any, lane: int) -> Lanes:
    """One lane with the scratch that all share, but for what only a policy has."""
    own = slice(lane, lane + 1)
    return Lanes(
        lanes.entry[own],
        lanes.cursor[own],
        lanes.counts[own],
        lanes.warm_at[own],
        lanes.warm_key[own],
        lanes.warm_time[own],
        lanes.slots[own],
        lanes.slots_used[own],
        lanes.fetched,
        lanes.outcome,
        lanes.age,
        lanes.missed[own],
        lanes.ttft[own],
        lanes.latency[own],
    )


@njit(cache=True)
def _count(scene: Scene, lane: Lanes, group: Array, sums: Array, tallies: Array) -> None:
    """As envs.lanes tallies an interval, in the same order, and by group of keys."""
    start, stop = scene.edges[0], scene.edges[1]
    outcome, age, missed = lane.outcome[0], lane.age[0], lane.missed[0]
    prompt, output, gpu, tariff = scene.load.prompt, scene.load.output, scene.gpu, scene.tariff
    misses, compute, tokens = int(sums[MISSED]), sums[COMPUTE], sums[TOKENS]
    hit_tokens, stale = sums[HIT_TOKENS], sums[STALE]
    for t in range(start, stop):
        g = U(group[U(t)])
        if outcome[U(t - start)] == MISS:
            tokens += float(prompt[U(t)] + output[U(t)])
            compute += gpu[U(t)]
            missed[U(misses)] = t
            misses += 1
            tallies[g, MISSES] += 1.0
            tallies[g, BACKEND_USD] += gpu[U(t)] * tariff.gpu_second
        elif outcome[U(t - start)] == HIT:
            tokens += float(prompt[U(t)] + output[U(t)])
            hit_tokens += float(prompt[U(t)] + output[U(t)])
            share = stale_share(age[U(t - start)], tariff.answer_lifetime_seconds)
            stale += share
            tallies[g, HITS] += 1.0
            tallies[g, STALE_USD] += share * tariff.stale_answer
    sums[MISSED], sums[COMPUTE], sums[TOKENS], sums[HIT_TOKENS], sums[STALE] = (
        misses,
        compute,
        tokens,
        hit_tokens,
        stale,
    )


@njit(cache=True)
def mark(entry: Array, keys: int, rows: Array, held: Array) -> None:
    """Sets rows (bool, by request) that some entry points at, and keys (bool, by key) that some lane holds."""
    for lane in range(entry.shape[0]):
        for k in range(keys):
            touched, written = entry[lane, k, TOUCHED], entry[lane, k, WRITTEN]
            if touched != ABSENT:
                held[k] = True
                if touched >= 0:
                    rows[touched] = True
                if written >= 0:
                    rows[written] = True


@njit(cache=True)
def renumber(lanes: Any, keys: int, row_to: Array, key_to: Array) -> None:
    """After requests and keys were taken out, as `envs.journal.Journal.keep` says; `keys` there were before. Entries of
    keys that are gone go without a trace, and so do warm-ups that no entry points at."""
    for lane in range(lanes.cursor.shape[0]):
        warm = (lanes.warm_at[lane], lanes.warm_key[lane], lanes.warm_time[lane])
        _renumber(lanes.entry[lane], lanes.cursor[lane], warm, keys, row_to, key_to)


@njit(cache=True)
def _renumber(
    entry: Array, cursor: Array, warm: tuple[Array, Array, Array], keys: int, row_to: Array, key_to: Array
) -> None:
    warm_at, warm_key, warm_time = warm
    listed = cursor[LISTED]
    warm_to = np.zeros(listed + 1, np.int32)
    for k in range(keys):
        if key_to[k] == ABSENT:
            if entry[k, TOUCHED] != ABSENT:
                cursor[USED] -= entry[k, SIZE]
        else:
            for column in (TOUCHED, WRITTEN):
                if entry[k, column] < ABSENT:
                    warm_to[-1 - entry[k, column]] = 1  # one further on: the sum below says how many come before
    for w in range(listed):
        if warm_to[w + 1] == 1:
            there = warm_to[w]
            warm_at[there], warm_time[there] = row_to[warm_at[w]], warm_time[w]
            warm_key[there] = key_to[warm_key[w]]
        warm_to[w + 1] += warm_to[w]
    known = 0
    for k in range(keys):
        n = key_to[k]
        if n != ABSENT:
            known += 1
            for column in (TOUCHED, WRITTEN):
                code = entry[k, column]
                if code >= 0:
                    code = row_to[code]
                elif code < ABSENT:
                    code = -2 - warm_to[-2 - code]
                entry[n, column] = code
            entry[n, SIZE] = entry[k, SIZE]
    entry[known:keys] = ABSENT
    cursor[OLDEST], cursor[FRESH] = row_to[cursor[OLDEST]], row_to[cursor[FRESH]]
    cursor[OLDEST_WARM], cursor[FRESH_WARM] = warm_to[cursor[OLDEST_WARM]], warm_to[cursor[FRESH_WARM]]
    cursor[LISTED] = warm_to[listed]


@njit(cache=True)
def occupied(entry: Array, which: Array, group: Array, held: Array) -> None:
    """Bytes that each group of keys takes in the lanes `which`, added to `held` (which, groups). group: uint8, by
    key."""
    for i in range(which.size):
        for k in range(group.size):
            if entry[which[i], k, TOUCHED] != ABSENT:
                held[i, group[k]] += entry[which[i], k, SIZE]


@njit(cache=True)
def hand_over(entry: Array, cursor: Array, key: Array, giver: Array, taker: Array) -> None:
    """Entries of keys that go from one lane to another, shape (n,) each, with the places in both queues that they have,
    for which the taker's queues begin further back where need be. One that was fetched ahead, and has its place by
    that, is lost: only the giver's list knows of it."""
    for i in range(key.size):
        k, a, b = key[i], giver[i], taker[i]
        touched, written = entry[a, k, TOUCHED], entry[a, k, WRITTEN]
        if touched != ABSENT:
            cursor[a, USED] -= entry[a, k, SIZE]
            if touched >= 0 and written >= 0 and entry[b, k, TOUCHED] == ABSENT:
                entry[b, k] = entry[a, k]
                cursor[b, USED] += entry[a, k, SIZE]
                cursor[b, OLDEST] = min(cursor[b, OLDEST], touched)
                cursor[b, FRESH] = min(cursor[b, FRESH], written)
            entry[a, k] = ABSENT
