"""Schedules in the shadow cache: what a trace would have hit, and how much of that would have been outdated.

A live entry's lifetime is asked for at each lookup. Here it stands in the trace's column of own lifetimes, which the
kernel reads at each lookup from the request that wrote the entry; so between two stretches of time the whole column is
set anew, and a replay hits what a stack with the same schedule would. Stretches are as long as the load is counted
over.

Facts of entries that do not change (quality, sampling) come as a share of the base for each request; load and measured
change are those of a namespace, and are learnt on the way from what was replayed before.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caches.errors import InputError
from caches.freshness.change_rate import Look
from caches.freshness.evidence import Evidence
from caches.freshness.lifetime import Bounded, Context, EntryFacts
from caches.keys.request_key import Partition
from caches.shadow import kernel
from caches.shadow.cache import ShadowCache, requests_of

Array = NDArray[Any]


@dataclass(frozen=True)
class Changes:
    """When answers change. key: int, ascending; seconds: ascending within a key. Shapes alike."""

    key: Array
    seconds: Array

    def between(self, key: Array, first_seconds: Array, last_seconds: Array) -> Array:
        """Of each request: whether its key changed after the first time, up to the last one; times from 0 on."""
        line, last = self._line
        ends = [key * (last + 1.0) + np.minimum(seconds, last) for seconds in (first_seconds, last_seconds)]
        before, after = (np.searchsorted(line, end, side="right") for end in ends)
        return np.asarray(after > before)

    @cached_property
    def _line(self) -> tuple[Array, float]:
        """Keys and times as one ascending number, and the last time: later ones say nothing more."""
        last = float(np.max(self.seconds, initial=0.0))
        return self.key * (last + 1.0) + self.seconds, last


@dataclass(frozen=True)
class Asking:
    """Hits that the backend is asked about: a share of them, and so many a second at most."""

    share: float = 0.0
    per_second: float = math.inf


@dataclass(frozen=True)
class Arrived:
    """Requests, in order of arrival, from 0 s on. key: dense. namespace: int of each, from 0. size_bytes: of the
    answer. failed: whether the backend would fail at that time; None for never. share: of the base that each entry may
    live, for what does not change; None for 1."""

    seconds: Array
    key: Array
    num_keys: int
    namespace: Array
    size_bytes: Array | None = None
    failed: Array | None = None
    share: Array | None = None


@dataclass(frozen=True)
class Replayed:
    """hit, stale, asked_again: of each request, bool; the others only where hit. asked_again: whether the backend was
    asked about it. lifetime_seconds: shape (stretches, namespaces)."""

    hit: Array
    stale: Array
    asked_again: Array
    lifetime_seconds: Array


@dataclass(frozen=True)
class Rules:
    """bounded: of each namespace. longest_share of their bounds is how long the cache keeps what it has.
    every_seconds: a stretch, and what load is counted over."""

    base_ttl_seconds: float
    bounded: Sequence[Bounded]
    every_seconds: float
    asking: Asking = Asking()
    seed: int = 0


def replayed(arrived: Arrived, changes: Changes, capacity_bytes: float, rules: Rules) -> Replayed:
    """Raises InputError for a stretch that is not above 0."""
    if not rules.every_seconds > 0.0:
        raise InputError(f"every_seconds: got {rules.every_seconds}, expected above 0")
    return _Replay(arrived, changes, capacity_bytes, rules).whole()


class _Replay:
    def __init__(self, arrived: Arrived, changes: Changes, capacity_bytes: float, rules: Rules) -> None:
        self._arrived, self._changes, self._rules = arrived, changes, rules
        own = np.full(len(arrived.key), np.inf, np.float32)
        self._requests = requests_of(arrived.key, arrived.seconds, arrived.size_bytes, own)
        keep = max(one.bounds.longest_share for one in rules.bounded) * rules.base_ttl_seconds
        self._cache = ShadowCache(self._requests, arrived.num_keys, capacity_bytes, keep)
        share = np.ones(len(own)) if arrived.share is None else arrived.share
        rows = [np.flatnonzero(arrived.namespace == number) for number in range(len(rules.bounded))]
        self._of = [(mine, share[mine]) for mine in rows]
        self._wished: list[float | None] = [None] * len(rows)
        self._evidence, self._random = Evidence(), random.Random(rules.seed)
        self._partitions = [Partition("replay", f"n{number}") for number in range(len(rules.bounded))]
        self._contexts = [Context(0.0) for _ in rules.bounded]
        self._asked, self._room = np.zeros(len(own), bool), 1.0

    def whole(self) -> Replayed:
        seconds, every = self._arrived.seconds, self._rules.every_seconds
        begin = float(seconds[0])
        stretches = int((float(seconds[-1]) - begin) // every) + 1
        edges = np.searchsorted(seconds, begin + every * np.arange(1, stretches + 1), side="left")
        edges[-1] = len(seconds)
        hit, stale = np.zeros(len(seconds), bool), np.zeros(len(seconds), bool)
        lifetimes, first = np.empty((stretches, len(self._contexts))), 0
        for place, stop in enumerate(edges.tolist()):
            lifetimes[place] = self._set_lifetimes()
            outcomes = self._cache.run_recording(stop)
            rows = slice(first, stop)
            hit[rows] = outcomes.outcome == kernel.HIT
            written = seconds[rows] - np.where(hit[rows], outcomes.age_seconds, 0.0)
            stale[rows] = hit[rows] & self._changes.between(self._arrived.key[rows], written, seconds[rows])
            self._ask_again(first, hit[rows], stale[rows], outcomes.age_seconds)
            self._learn(rows, hit[rows])
            first = stop
        return Replayed(hit, stale, self._asked, lifetimes)

    def _set_lifetimes(self) -> list[float]:
        """Of all entries, whenever they were or will be written."""
        base, now = self._rules.base_ttl_seconds, []
        for number, (bounded, context) in enumerate(zip(self._rules.bounded, self._contexts, strict=True)):
            wished = bounded.schedule.lifetime(EntryFacts(0.0, base), context)
            if wished != self._wished[number]:
                rows, share = self._of[number]
                self._requests.ttl[rows] = _within(bounded, share * wished, base)
                self._wished[number] = wished
            now.append(bounded.bounds.within(wished, base))
        return now

    def _learn(self, rows: slice, hit: Array) -> None:
        namespace = self._arrived.namespace[rows]
        failed = np.zeros(len(hit), bool) if self._arrived.failed is None else self._arrived.failed[rows]
        for number, partition in enumerate(self._partitions):
            mine = namespace == number
            calls = int((mine & ~hit).sum())
            errors = float((mine & ~hit & failed).sum()) / calls if calls else None
            rate = self._evidence.rate(partition)
            self._contexts[number] = Context(
                now_seconds=0.0,
                qps=float(mine.sum()) / self._rules.every_seconds,
                error_rate=errors,
                change_rate=None if rate is None else rate.high,
                longest_age_seconds=None if rate is None else rate.longest_age_seconds,
            )

    def _ask_again(self, first: int, hit: Array, stale: Array, age: Array) -> None:
        """Evenly over the hits of a stretch, within what its seconds allow."""
        due: set[Partition] = set()
        asking = self._rules.asking
        self._room = min(self._room, 1.0) + asking.per_second * self._rules.every_seconds
        for row in np.flatnonzero(hit & (age > 0.0)).tolist() if asking.share > 0.0 else ():
            if self._random.random() >= asking.share or self._room < 1.0:
                continue
            self._room -= 1.0
            self._asked[first + row] = True
            partition = self._partitions[int(self._arrived.namespace[first + row])]
            if self._evidence.record(partition, Look(float(age[row]), bool(stale[row]))):
                due.add(partition)
        for partition in due:
            self._evidence.estimate(partition)


def _within(bounded: Bounded, wished: Array, base_ttl_seconds: float) -> Array:
    """Bounds.within, of many."""
    bounds = bounded.bounds
    shared = np.maximum(wished, bounds.shortest_share * base_ttl_seconds)
    return np.minimum(shared, min(bounds.longest_share * base_ttl_seconds, bounds.longest_seconds))
