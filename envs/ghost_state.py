"""What ghost caches own: the state of each lane, by name, in arrays that grow; and scratch, which they share.

Beside its state a lane has the positions and delays of its misses in the interval that is not over; all other scratch
is that of the lane at work.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caches.policies.rules import Rules, rules_table
from caches.policies.state import empty_states
from caches.shadow import kernel
from envs.ghost_policy_lanes import with_more_keys
from envs.lanes import RESPONSE, Lanes, fork
from envs.policy_lanes import POLICY, PolicyLanes

Array = NDArray[Any]

OF_MISSES = ("missed", "ttft", "latency")
KEYS, WARMUPS = 1 << 12, 1 << 9  # room in each lane to begin with


class GhostState:
    """names: the number of each lane. lanes: Lanes, or PolicyLanes where there are rules. slots: most sequences that
    run at once. rules: that lanes may be under, all with one rule of admission; a lane begins under the first. None of
    them: all are least recently used, and all is taken in."""

    def __init__(self, slots: int, rules: Sequence[Rules] = ()) -> None:
        self.names: dict[Hashable, int] = {}
        self.rules, self._play = tuple(rules), POLICY if rules else RESPONSE
        self.lanes: Any = self._empty(0, KEYS, WARMUPS, slots)

    @property
    def listed(self) -> int:
        """Warm-ups listed in the lane that has most."""
        return int(self.lanes.cursor[:, kernel.LISTED].max(initial=0))

    @property
    def warmup_room(self) -> int:
        return int(self.lanes.warm_at.shape[1])

    def follow(self, wanted: Mapping[Hashable, Hashable | None]) -> None:
        """New ones begin as a copy of the lane that their value names, or empty."""
        new = {name: like for name, like in wanted.items() if name not in self.names}
        gone = [name for name in self.names if name not in wanted]
        free = [lane for lane in range(len(self.lanes.cursor)) if lane not in self.names.values()]
        if len(new) > len(free):
            free += range(len(self.lanes.cursor), len(self.lanes.cursor) + len(new) - len(free))
            self._add_lanes(free[-1] + 1)
        for (name, like), lane in zip(new.items(), free, strict=False):
            self.names[name] = lane
            if like is not None:
                fork(self._play, self.lanes, self.names[like], lane)
        for name in gone:
            self._empty_lane(self.names.pop(name))

    def fit(self, keys: int, chunk: int, requests: int, candidates: int) -> None:
        """Room for keys, for requests at once and in an interval, and for candidates of a warm-up."""
        if keys > self.lanes.entry.shape[1] and self.rules:
            self.lanes = with_more_keys(self.lanes, keys)
        elif keys > self.lanes.entry.shape[1]:
            entry = np.full((len(self.lanes.entry), keys, 3), kernel.ABSENT, np.int32)
            entry[:, : self.lanes.entry.shape[1]] = self.lanes.entry
            self.lanes = self.lanes._replace(entry=entry)
        if chunk > self.lanes.outcome.shape[1]:
            outcome, age = np.zeros((1, 2 * chunk), np.uint8), np.zeros((1, 2 * chunk), np.float32)
            self.lanes = self.lanes._replace(outcome=outcome, age=age)
        if requests >= self.lanes.missed.shape[1]:
            self._make_room(OF_MISSES, 2 * requests + 1)
        if candidates > self.lanes.fetched.shape[1]:
            self.lanes = self.lanes._replace(fetched=np.zeros((1, candidates), np.int32))

    def make_warmup_room(self, wanted: int) -> None:
        if wanted <= self.warmup_room:
            return
        self._make_room(self._play.growing, wanted)

    def _make_room(self, names: tuple[str, ...], wanted: int) -> None:
        longer = {}
        for name in names:
            old = getattr(self.lanes, name)
            longer[name] = np.zeros((len(old), wanted), old.dtype)
            longer[name][:, : old.shape[1]] = old
        self.lanes = self.lanes._replace(**longer)

    def _add_lanes(self, number: int) -> None:
        old = self.lanes
        more = self._empty(number - len(old.cursor), old.entry.shape[1], self.warmup_room, old.slots.shape[1] - 1)
        both = {name: np.concatenate((getattr(old, name), getattr(more, name))) for name in self._play.owned}
        for name in OF_MISSES:
            array = getattr(old, name)
            none = np.zeros((len(more.cursor), array.shape[1]), array.dtype)
            both[name] = np.concatenate((array, none))
        self.lanes = old._replace(**both)

    def _empty_lane(self, lane: int) -> None:
        """So that it holds nothing on to the journal."""
        keys = 1 if self.rules is None else self.lanes.entry.shape[1]  # where it is the same for all keys, one will do
        empty = self._empty(1, keys, self.warmup_room, self.lanes.slots.shape[1] - 1)
        for name in self._play.owned:
            getattr(self.lanes, name)[lane] = getattr(empty, name)[0]

    def _empty(self, lanes: int, keys: int, warmups: int, slots: int) -> Any:
        plain = _empty(lanes, keys, warmups, slots)
        if not self.rules:
            return plain
        caches = empty_states(self.rules[0], keys, lanes, warmups, self.rules[1:])
        current, choices = np.zeros((lanes, 1), np.int64), rules_table(self.rules)
        return PolicyLanes(**(plain._asdict() | caches._asdict()), current=current, choices=choices)


def _empty(lanes: int, keys: int, warmups: int, slots: int) -> Lanes:
    """Caches that hold nothing, before idle backends."""
    heap = np.full((lanes, slots + 1), -np.inf)
    heap[:, slots] = np.inf
    return Lanes(
        entry=np.full((lanes, keys, 3), kernel.ABSENT, np.int32),
        cursor=np.zeros((lanes, kernel.CURSORS), np.int64),
        counts=np.zeros((lanes, kernel.COUNTS), np.int64),
        warm_at=np.zeros((lanes, warmups), np.int32),
        warm_key=np.zeros((lanes, warmups), np.int32),
        warm_time=np.zeros((lanes, warmups), np.float64),
        slots=heap,
        slots_used=np.full(lanes, slots, np.int64),
        fetched=np.zeros((1, 1), np.int32),
        outcome=np.zeros((1, 1), np.uint8),
        age=np.zeros((1, 1), np.float32),
        missed=np.zeros((lanes, 1), np.int32),
        ttft=np.zeros((lanes, 1), np.float32),
        latency=np.zeros((lanes, 1), np.float32),
    )
