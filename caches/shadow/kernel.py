"""The replay kernel: one cache, any settings at any time, warm-up included.

A key's entry is three numbers: where it was last touched, where it was written, and its size. The order of touches and
the order of writes are the trace itself (plus the list of warm-ups), so a queue is a position that walks forward:
walking past position p means something only if p still is the last touch (or the write) of the key requested there.
Nothing is linked or hashed, and a cache's state is a few arrays that can be copied.

Age is compared as `time - born >= ttl`, in this form everywhere, so that equal inputs expire at equal times.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from caches.shadow.prefetch import prefetch

Array = NDArray[Any]

ABSENT = -1  # in State.entry[:, TOUCHED]; warm-up number w is written as -2 - w, request t as t
TOUCHED, WRITTEN, SIZE = 0, 1, 2

# State.cursor: where the two queues stand (requests, warm-ups), bytes held, warm-ups listed so far
OLDEST, OLDEST_WARM, FRESH, FRESH_WARM, USED, LISTED = range(6)
CURSORS = 6

# State.counts, in the order of caches.stats.CacheStats
HITS, MISSES, HIT_BYTES, MISS_BYTES, EXPIRATIONS, EVICTIONS, REFUSALS, WARMUPS, WRITES, DELETES = range(10)
COUNTS = 10

MISS, HIT, OTHER = 0, 1, 2  # outcome of a request; OTHER: a write or a delete
READ, WRITE, DELETE = 0, 1, 2

U = np.uint64  # for indices: Numba tests a signed one for being negative
AHEAD = 16  # events between asking for an entry and needing it: entries lie all over memory, requests do not


class Requests(NamedTuple):
    """Columns of a trace, shape (n,). `ttl` (float32, NaN for none) and `operation` are empty where all are plain
    reads without a lifetime of their own."""

    key: Array
    time: Array
    size: Array
    ttl: Array
    operation: Array


class State(NamedTuple):
    """One cache. entry: int32 (keys, 3). cursor: int64 (CURSORS,). counts: int64 (COUNTS,). warm_at (the request it
    came before), warm_key: int32, and warm_time: float64, shape (room for warm-ups,)."""

    entry: Array
    cursor: Array
    counts: Array
    warm_at: Array
    warm_key: Array
    warm_time: Array


class Limits(NamedTuple):
    """Settings in force. since_touch: whether a hit renews an entry's age."""

    capacity: int
    ttl: float
    since_touch: bool


class Moment(NamedTuple):
    """Where and when a stretch begins: before request `at`, at time `now`. until: a warm-up is worth fetching when the
    entry would be too old by then. Seconds."""

    at: int
    now: float
    until: float


class Record(NamedTuple):
    """What the kernel writes down; pass empty arrays to go without outcome and age. fetched: int32, at least one row
    per warm-up candidate. outcome (uint8) and age (float32, seconds since the write, set on a hit): a row a request."""

    fetched: Array
    outcome: Array
    age: Array


@njit(cache=True)
def advance(
    requests: Requests,
    state: State,
    limits: Limits,
    moment: Moment,
    candidates: Array,
    stop: int,
    record: Record,
) -> int:
    """Brings the limits into force, then warms up, then replays requests `moment.at` to `stop` - 1.

    candidates: int32, positions of earlier requests, best first; each stands for its key and size. One whose entry
    outlives `moment.until` is skipped at no cost. The caller keeps room for one warm-up per candidate in the state.
    Returns how many were fetched and writes their positions to the front of `record.fetched`.

    One event a turn: the change of limits, a warm-up or a request. Whatever it is, first what is too old goes, then the
    event happens, then what does not fit goes. It is one long loop because Numba counts references wherever arrays are
    handed to a function, which costs several times the work itself.
    """
    key, time, size, own_ttl, operation = requests
    entry, cursor, counts, warm_at, warm_key, warm_time = state
    capacity, ttl, since_touch = limits
    at, moment_now, until = moment
    fetched, outcome, age = record
    queue = U(TOUCHED if since_touch else WRITTEN)
    oldest, oldest_warm, fresh, fresh_warm, used, listed = cursor
    has_own_ttl, has_operations, recording = own_ttl.size > 0, operation.size > 0, outcome.size > 0
    taken, hits, misses, hit_bytes, miss_bytes, expirations, evictions = 0, 0, 0, 0, 0, 0, 0
    oldest_born = -np.inf
    first = at - candidates.size
    for t in range(first - 1, stop):
        now = time[U(t)] if t >= at else moment_now
        here = max(t, at)
        if t + AHEAD < stop and t >= at:
            prefetch(entry, U(key[U(t + AHEAD)]))
        if now - oldest_born >= ttl:  # something may be too old: walk the queue of ages
            while True:
                warm_next = fresh_warm < listed and warm_at[U(fresh_warm)] <= fresh
                if not warm_next and fresh >= here:
                    oldest_born = now
                    break
                oldest_born = warm_time[U(fresh_warm)] if warm_next else time[U(fresh)]
                if not now - oldest_born >= ttl:
                    break
                k = U(warm_key[U(fresh_warm)] if warm_next else key[U(fresh)])
                prefetch(entry, U(key[U(min(fresh + AHEAD, stop - 1))]))
                if entry[k, queue] == (-2 - fresh_warm if warm_next else fresh):
                    used -= entry[k, SIZE]
                    entry[k, TOUCHED] = ABSENT
                    entry[k, WRITTEN] = ABSENT
                    expirations += 1
                if warm_next:
                    fresh_warm += 1
                else:
                    fresh += 1

        code, s = ABSENT, 0  # what to insert, if anything: where it stands in the order, and its size
        if t >= at:
            k = U(key[U(t)])
            here_now = entry[k, TOUCHED] != ABSENT
            if has_operations and operation[U(t)] != READ:
                if here_now:
                    used -= entry[k, SIZE]
                    entry[k, TOUCHED] = ABSENT
                    entry[k, WRITTEN] = ABSENT
                if operation[U(t)] == WRITE:
                    code, s = t, size[U(t)]
                counts[WRITES if operation[U(t)] == WRITE else DELETES] += 1
                if recording:
                    outcome[U(t - at)] = OTHER
            else:
                if has_own_ttl and here_now and entry[k, WRITTEN] >= 0:
                    born = entry[k, queue]
                    if now - (time[U(born)] if born >= 0 else warm_time[U(-2 - born)]) >= own_ttl[entry[k, WRITTEN]]:
                        used -= entry[k, SIZE]
                        entry[k, WRITTEN] = ABSENT
                        here_now = False
                        expirations += 1
                if here_now:
                    hits += 1
                    hit_bytes += entry[k, SIZE]
                    if recording:
                        born = entry[k, WRITTEN]
                        outcome[U(t - at)] = HIT
                        age[U(t - at)] = now - (time[U(born)] if born >= 0 else warm_time[U(-2 - born)])
                    entry[k, TOUCHED] = t
                else:
                    code, s = t, size[U(t)]
                    misses += 1
                    miss_bytes += s
                    if recording:
                        outcome[U(t - at)] = MISS
                    entry[k, TOUCHED] = ABSENT
        elif t >= first:
            source = candidates[t - first]
            k = U(key[U(source)])
            outlives = False
            if entry[k, TOUCHED] != ABSENT:
                lifetime = ttl
                if has_own_ttl and entry[k, WRITTEN] >= 0 and own_ttl[entry[k, WRITTEN]] < ttl:
                    lifetime = np.float64(own_ttl[entry[k, WRITTEN]])
                born = entry[k, queue]
                outlives = until - (time[U(born)] if born >= 0 else warm_time[U(-2 - born)]) < lifetime
                if not outlives:
                    used -= entry[k, SIZE]
                    entry[k, TOUCHED] = ABSENT
                    entry[k, WRITTEN] = ABSENT
            if not outlives:
                code, s = -2 - listed, size[source]
                if s <= capacity:
                    fetched[taken] = source
                    taken += 1
                    warm_at[listed], warm_key[listed], warm_time[listed] = at, k, now
                    listed += 1

        if code != ABSENT:
            if s <= capacity:
                entry[k, TOUCHED] = code
                entry[k, WRITTEN] = code
                entry[k, SIZE] = s
                used += s
            else:
                counts[REFUSALS] += 1
        while used > capacity:
            warm_next = oldest_warm < listed and warm_at[U(oldest_warm)] <= oldest
            k = U(warm_key[U(oldest_warm)] if warm_next else key[U(oldest)])
            prefetch(entry, U(key[U(min(oldest + AHEAD, stop - 1))]))
            if entry[k, TOUCHED] == (-2 - oldest_warm if warm_next else oldest):
                used -= entry[k, SIZE]
                entry[k, TOUCHED] = ABSENT
                entry[k, WRITTEN] = ABSENT
                evictions += 1
            if warm_next:
                oldest_warm += 1
            else:
                oldest += 1
    cursor[:] = (oldest, oldest_warm, fresh, fresh_warm, used, listed)
    counts[WARMUPS] += taken
    counts[HITS] += hits
    counts[MISSES] += misses
    counts[HIT_BYTES] += hit_bytes
    counts[MISS_BYTES] += miss_bytes
    counts[EXPIRATIONS] += expirations
    counts[EVICTIONS] += evictions
    return taken
