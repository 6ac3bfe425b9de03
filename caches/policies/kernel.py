"""The replay kernel for any eviction and admission policy: one cache, any settings at any time, warm-up included.

It counts, records and goes by ages as caches.shadow.kernel, which stays for least recently used without a rule of
admission: that needs no queues and is several times as fast. The rules that are added:

- room is made before a response is taken in, so it never makes room for itself;
- a rule of admission judges what would be taken in, after a miss or as a write; not what replaces an entry that is
  there, and not warm-ups. What it turns down counts as refused;
- an entry that is written over keeps the standing that its uses gave it, and being written is not a use; one that
  expired, was deleted or was evicted begins anew, but for the names that S3-FIFO and LRU-K remember.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from caches.policies.compiled import UNCOUNTED, inlined
from caches.policies.hooks import (
    EVICTED,
    GONE,
    NEW,
    OVERWRITTEN,
    REWRITTEN,
    first_to_go,
    offered,
    taken_in,
    taken_out,
    used,
)
from caches.policies.judging import admits, asked, better
from caches.policies.rules import Rules
from caches.policies.state import HELD, State
from caches.shadow.kernel import (
    ABSENT,
    AHEAD,
    DELETES,
    EVICTIONS,
    EXPIRATIONS,
    FRESH,
    FRESH_WARM,
    HIT,
    HIT_BYTES,
    HITS,
    LISTED,
    MISS,
    MISS_BYTES,
    MISSES,
    OTHER,
    READ,
    REFUSALS,
    SIZE,
    TOUCHED,
    USED,
    WARMUPS,
    WRITE,
    WRITES,
    WRITTEN,
    Limits,
    Moment,
    Record,
    Requests,
)
from caches.shadow.prefetch import prefetch

Array = NDArray[Any]
U = np.uint64  # for indices: Numba tests a signed one for being negative


@inlined
def _remove(state: State, rules: Rules, k: Any, why: int, capacity: int) -> Any:
    """The size of the entry that is taken out."""
    state.entry[k, TOUCHED] = ABSENT
    state.entry[k, WRITTEN] = ABSENT
    state.tally[HELD] -= 1
    taken_out(state, rules, k, why, capacity)
    return state.entry[k, SIZE]


@njit(cache=True, **UNCOUNTED)  # type: ignore[untyped-decorator]
def advance(
    requests: Requests,
    state: State,
    limits: Limits,
    moment: Moment,
    candidates: Array,
    stop: int,
    record: Record,
    rules: Rules,
    cost: Array,
) -> int:
    """As caches.shadow.kernel.advance, whose arguments come first and mean the same, and so does what is returned.

    state: made for these rules by `empty_state`, or a lane of `empty_states`. rules: from `rules_of`; for one state the
    same on every call, but for what docs/eviction.md says. cost: float32 (n,), GPU seconds of each request on a miss,
    or no rows: then every miss costs 1. Only the policies gdsf and cost-aware look at it.
    """
    key, time, size, own_ttl, operation = requests
    entry, cursor, counts = state.entry, state.cursor, state.counts
    warm_at, warm_key, warm_time = state.warm_at, state.warm_key, state.warm_time
    capacity, ttl, since_touch = limits
    at, moment_now, until = moment
    fetched, outcome, age = record
    queue = U(TOUCHED if since_touch else WRITTEN)
    fresh, fresh_warm, used_bytes, listed = cursor[FRESH], cursor[FRESH_WARM], cursor[USED], cursor[LISTED]
    has_own_ttl, has_operations, recording = own_ttl.size > 0, operation.size > 0, outcome.size > 0
    taken, oldest_born, first = 0, -np.inf, at - candidates.size
    for t in range(first - 1, stop):
        now = time[U(t)] if t >= at else moment_now
        here = max(t, at)
        if t + AHEAD < stop and t >= at:
            prefetch(entry, U(key[U(t + AHEAD)]))
        while now - oldest_born >= ttl:  # something may be too old: walk the queue of ages
            warm_next = fresh_warm < listed and warm_at[U(fresh_warm)] <= fresh
            none_left = not warm_next and fresh >= here
            oldest_born = now if none_left else warm_time[U(fresh_warm)] if warm_next else time[U(fresh)]
            if none_left or not now - oldest_born >= ttl:
                break
            k = U(warm_key[U(fresh_warm)] if warm_next else key[U(fresh)])
            if entry[k, queue] == (-2 - fresh_warm if warm_next else fresh):
                counts[EXPIRATIONS] += 1
                used_bytes -= _remove(state, rules, k, GONE, capacity)
            if warm_next:
                fresh_warm += 1
            else:
                fresh += 1

        code, source, standing, leaves = ABSENT, np.int64(t), NEW, False  # what to insert or remove, if anything
        judged, what, k = True, HIT, U(0)
        if t >= at:
            k = U(key[U(t)])
            here_now = entry[k, TOUCHED] != ABSENT
            if has_operations and operation[U(t)] != READ:
                leaves, judged = here_now, here_now
                if operation[U(t)] == WRITE:
                    code, standing = t, REWRITTEN if here_now else NEW
                what = OTHER
                counts[WRITES if operation[U(t)] == WRITE else DELETES] += 1
            else:
                asked(state, rules, key, k, t)
                born = entry[k, queue]
                if has_own_ttl and here_now and entry[k, WRITTEN] >= 0:
                    born_at = time[U(born)] if born >= 0 else warm_time[U(-2 - born)]
                    leaves = now - born_at >= own_ttl[entry[k, WRITTEN]]
                    counts[EXPIRATIONS] += leaves
                    here_now = not leaves
                if here_now:
                    counts[HITS] += 1
                    counts[HIT_BYTES] += entry[k, SIZE]
                    if recording:
                        born = entry[k, WRITTEN]
                        age[U(t - at)] = now - (time[U(born)] if born >= 0 else warm_time[U(-2 - born)])
                    entry[k, TOUCHED] = t
                    used(state, rules, k, capacity, now)
                else:
                    code, judged, what = t, False, MISS
                    counts[MISSES] += 1
                    counts[MISS_BYTES] += size[U(t)]
            if recording:
                outcome[U(t - at)] = what
        elif t >= first:
            source = np.int64(candidates[t - first])
            k = U(key[U(source)])
            leaves = entry[k, TOUCHED] != ABSENT
            if leaves:
                lifetime, born, written = ttl, entry[k, queue], entry[k, WRITTEN]
                if has_own_ttl and written >= 0 and own_ttl[written] < ttl:
                    lifetime = np.float64(own_ttl[written])
                leaves = until - (time[U(born)] if born >= 0 else warm_time[U(-2 - born)]) >= lifetime
                standing = REWRITTEN
            code = -2 - listed if leaves or standing == NEW else ABSENT

        if leaves:
            rewritten = standing == REWRITTEN and size[U(source)] <= capacity
            used_bytes -= _remove(state, rules, k, OVERWRITTEN if rewritten else GONE, capacity)
        s, price, gone = np.int64(0), 1.0, 0
        if code != ABSENT:
            s, price = np.int64(size[U(source)]), np.float64(cost[U(source)]) if cost.size > 0 else 1.0
            if s > capacity or not (judged or admits(state, rules, time, k, now)):
                counts[REFUSALS] += 1
                code, s = ABSENT, np.int64(0)
            else:
                standing = offered(state, rules, k, standing, price, s)
        while used_bytes + s > capacity:
            victim = U(first_to_go(state, rules, capacity, s))
            if not (judged or better(state, rules, k, price, s, victim, gone == 0)):
                counts[REFUSALS] += 1
                code = ABSENT
                break
            gone += 1
            counts[EVICTIONS] += 1
            used_bytes -= _remove(state, rules, victim, EVICTED, capacity)
        if code != ABSENT:
            entry[k, TOUCHED] = code
            entry[k, WRITTEN] = code
            entry[k, SIZE] = s
            used_bytes += s
            state.tally[HELD] += 1
            taken_in(state, rules, k, standing, capacity, now)
            if code < 0:
                fetched[taken] = source
                warm_at[listed], warm_key[listed], warm_time[listed] = at, k, now
                taken += 1
                listed += 1
    cursor[FRESH], cursor[FRESH_WARM], cursor[USED], cursor[LISTED] = fresh, fresh_warm, used_bytes, listed
    counts[WARMUPS] += taken
    return taken
