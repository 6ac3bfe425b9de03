"""The shadow cache: what would have happened on this trace under these settings, exactly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caches.errors import InputError, Mismatch
from caches.files import written_whole
from caches.policies import kernel as policy_kernel
from caches.policies.changing import change_policy
from caches.policies.rules import ALL, LRU, Rules, rules_from, rules_of
from caches.policies.settings import Admission, AdmitAll, Eviction, Lru
from caches.policies.state import GROWING
from caches.policies.state import State as PolicyState
from caches.policies.state import empty_state as empty_policy_state
from caches.shadow import kernel
from caches.stats import CacheStats, Expiry

Array = NDArray[Any]
NOTHING = np.empty(0, np.uint8)
NO_AGE = np.empty(0, np.float32)
NOTHING_FETCHED = np.empty(0, np.int32)
NO_RECORD = kernel.Record(NOTHING_FETCHED, NOTHING, NO_AGE)


@dataclass(frozen=True)
class Outcomes:
    """What happened to each request of a span. outcome: uint8 of kernel.MISS, HIT, OTHER. age_seconds: float32, time
    since the entry was written; meaningful only where the outcome is a hit."""

    outcome: Array
    age_seconds: Array


def requests_of(
    key: Array,
    time: Array,
    size: Array | None = None,
    ttl: Array | None = None,
    operation: Array | None = None,
) -> kernel.Requests:
    """Columns as the kernel wants them. Without sizes every entry counts 1, so capacity is a number of entries."""
    return kernel.Requests(
        plain(key, np.int32),
        plain(time, np.float64),
        np.ones(len(key), np.int32) if size is None else plain(size, np.int32),
        np.empty(0, np.float32) if ttl is None else plain(ttl, np.float32),
        np.empty(0, np.uint8) if operation is None else plain(operation, np.uint8),
    )


def plain(column: Array, dtype: type) -> Array:
    """A column as the kernels were compiled for: contiguous and writeable, so one that lies on disk is read in."""
    return np.require(column, dtype, ["C_CONTIGUOUS", "WRITEABLE"])


def empty_state(num_keys: int, warmup_room: int = 0) -> kernel.State:
    """A cache that holds nothing, with room to list so many warm-ups."""
    return kernel.State(
        np.full((num_keys, 3), kernel.ABSENT, np.int32),
        np.zeros(kernel.CURSORS, np.int64),
        np.zeros(kernel.COUNTS, np.int64),
        np.zeros(warmup_room, np.int32),
        np.zeros(warmup_room, np.int32),
        np.zeros(warmup_room, np.float64),
    )


def limits_of(capacity_bytes: float, ttl_seconds: float, expiry: Expiry) -> kernel.Limits:
    """Checked settings; ttl_seconds may be infinite. Fractions of a byte are dropped."""
    if not 0 <= capacity_bytes < 2**62:
        raise InputError(f"capacity_bytes: got {capacity_bytes}, expected 0 or more")
    if not ttl_seconds > 0:
        raise InputError(f"ttl_seconds: got {ttl_seconds}, expected above 0")
    return kernel.Limits(int(capacity_bytes), float(ttl_seconds), expiry is Expiry.SINCE_TOUCH)


class ShadowCache:
    """Walks forward over one trace. `position` is the next request to be replayed.

    The rules are those of caches.in_process, with another eviction policy or a rule of admission those of
    caches.policies.kernel. cost: GPU seconds of each request on a miss, float32 (n,); without it a miss costs 1.
    others: policies that it may change to. Memory for least recently used: 12 bytes per key, 16 per warm-up; forking
    copies just that.
    """

    def __init__(
        self,
        requests: kernel.Requests,
        num_keys: int,
        capacity_bytes: float,
        ttl_seconds: float = np.inf,
        expiry: Expiry = Expiry.SINCE_WRITE,
        eviction: Eviction = Lru(),
        admission: Admission = AdmitAll(),
        cost: Array | None = None,
        others: Sequence[Eviction] = (),
    ) -> None:
        self.requests, self.expiry, self.position = requests, expiry, 0
        self.limits = limits_of(capacity_bytes, ttl_seconds, expiry)
        self.cost = NO_AGE if cost is None else plain(cost, np.float32)
        if len(self.cost) not in (0, len(requests.key)):
            raise InputError(f"cost: got {len(self.cost)} rows, expected one for each of {len(requests.key)} requests")
        self.rules = rules_of(eviction, admission)
        self.choices = {other: rules_of(other, admission) for other in (eviction, *others)} if others else {}
        self.state: kernel.State | PolicyState = (
            empty_state(num_keys)
            if _is_plain(self.rules) and not others
            else empty_policy_state(self.rules, num_keys, others=list(self.choices.values()))
        )

    def apply(self, capacity_bytes: float, ttl_seconds: float, now_seconds: float) -> None:
        """Brings new settings into force before the next request: first age, then space."""
        self.limits = limits_of(capacity_bytes, ttl_seconds, self.expiry)
        self._advance(self.position, now_seconds, NO_RECORD)

    def change_policy(self, eviction: Eviction, now_seconds: float) -> None:
        """Another eviction policy before the next request, see caches.policies.changing. Raises InputError for one that
        is not of those that the cache was made for."""
        if eviction not in self.choices:
            raise InputError(f"eviction: got {eviction}, expected of {', '.join(map(str, self.choices)) or 'none'}")
        assert isinstance(self.state, PolicyState)
        self.rules = self.choices[eviction]
        change_policy(self.state, self.rules, self.limits.capacity, now_seconds)

    def run(self, stop: int) -> None:
        """Replays up to, not including, request `stop`."""
        self._advance(stop, self._last_time(), NO_RECORD)

    def run_recording(self, stop: int) -> Outcomes:
        """`run`, and what happened to each request."""
        size = max(stop - self.position, 0)
        outcomes = Outcomes(np.empty(size, np.uint8), np.full(size, np.nan, np.float32))
        record = kernel.Record(NOTHING_FETCHED, outcomes.outcome, outcomes.age_seconds)
        self._advance(stop, self._last_time(), record)
        return outcomes

    def warm(self, candidates: Array, now_seconds: float, until_seconds: float) -> Array:
        """Fetches ahead those candidates (positions of earlier requests, best first) whose entry is absent or would be
        too old at `until_seconds`. Returns the positions fetched."""
        positions = np.ascontiguousarray(candidates, np.int32)
        if len(positions) and not 0 <= positions.min() <= positions.max() < self.position:
            raise InputError(
                f"warm-up candidates: got requests {positions.min()} to {positions.max()}, "
                f"expected from 0 to before {self.position}"
            )
        self._make_warmup_room(len(positions))
        fetched = np.empty(len(positions), np.int32)
        moment = kernel.Moment(self.position, now_seconds, until_seconds)
        record = kernel.Record(fetched, NOTHING, NO_AGE)
        return fetched[: self._replay(moment, positions, self.position, record)]

    def stats(self) -> CacheStats:
        counts = {name: int(value) for name, value in zip(COUNT_NAMES, self.state.counts, strict=True)}
        return CacheStats(**counts, entries=len(self.resident_keys()), used_bytes=int(self.state.cursor[kernel.USED]))

    def resident_keys(self) -> Array:
        """Keys held after the last call, ascending; nothing is removed for age here."""
        return np.flatnonzero(self.state.entry[:, kernel.TOUCHED] != kernel.ABSENT)

    def fork(self) -> ShadowCache:
        """An independent copy that goes on from here over the same trace."""
        twin = ShadowCache.__new__(ShadowCache)
        twin.requests, twin.expiry, twin.position = self.requests, self.expiry, self.position
        twin.limits, twin.rules, twin.choices, twin.cost = self.limits, self.rules, self.choices, self.cost
        twin.state = type(self.state)(*(array.copy() for array in self.state))
        return twin

    def save(self, path: Path) -> None:
        """Writes the state as a plain .npz (no pickle); the trace is not in it."""
        capacity, ttl, since_touch = self.limits
        with written_whole(path) as partial, partial.open("wb") as file:
            np.savez(
                file,
                **self.state._asdict(),
                limits=np.array([ttl]),
                marks=np.array([capacity, int(since_touch), self.position, len(self.requests.key)], np.int64),
                rules=np.array(self.rules, np.float64),
            )

    @staticmethod
    def restore(path: Path, requests: kernel.Requests, cost: Array | None = None) -> ShadowCache:
        """It stays under the policy that it was under. cost: as at the beginning. Raises Mismatch when the state was
        saved on a trace with another number of requests."""
        with np.load(path, allow_pickle=False) as saved:
            rules = rules_from(saved["rules"])
            kind = kernel.State if _is_plain(rules) else PolicyState
            state = kind(*(saved[name] for name in kind._fields))
            capacity, since_touch, position, length = (int(value) for value in saved["marks"])
            ttl = float(saved["limits"][0])
        if length != len(requests.key):
            raise Mismatch(f"{path}: got a state over {length} requests, expected {len(requests.key)}")
        cache = ShadowCache(requests, len(state.entry), capacity, ttl, Expiry(since_touch), cost=cost)
        cache.state, cache.position, cache.rules = state, position, rules
        return cache

    def _advance(self, stop: int, now_seconds: float, record: kernel.Record) -> None:
        if not self.position <= stop <= len(self.requests.key):
            raise InputError(f"stop: got {stop}, expected from {self.position} to {len(self.requests.key)} requests")
        moment = kernel.Moment(self.position, now_seconds, now_seconds)
        self._replay(moment, NOTHING_FETCHED, stop, record)
        self.position = stop

    def _replay(self, moment: kernel.Moment, candidates: Array, stop: int, record: kernel.Record) -> int:
        if isinstance(self.state, kernel.State):
            taken = kernel.advance(self.requests, self.state, self.limits, moment, candidates, stop, record)
        else:
            taken = policy_kernel.advance(
                self.requests, self.state, self.limits, moment, candidates, stop, record, self.rules, self.cost
            )
        return int(taken)

    def _last_time(self) -> float:
        """A time at which nothing more can happen than has: the latest the cache has seen among its requests."""
        return float(self.requests.time[self.position - 1]) if self.position else -np.inf

    def _make_warmup_room(self, more: int) -> None:
        listed, room = int(self.state.cursor[kernel.LISTED]), len(self.state.warm_at)
        if listed + more <= room:
            return
        grown = max(listed + more, 2 * room)
        old = {name: getattr(self.state, name) for name in GROWING}
        longer = {
            name: np.resize(array, grown) if room else np.zeros(grown, array.dtype) for name, array in old.items()
        }
        self.state = self.state._replace(**longer)


def _is_plain(rules: Rules) -> bool:
    """Whether the kernel for least recently used does."""
    return rules.eviction == LRU and rules.admission == ALL


COUNT_NAMES = (
    "hits",
    "misses",
    "hit_bytes",
    "miss_bytes",
    "expirations",
    "evictions",
    "refusals",
    "warmups",
    "writes",
    "deletes",
)
