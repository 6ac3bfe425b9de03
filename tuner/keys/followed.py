"""A share of the keys in ghost lanes, in bounded memory: where there are too many keys, every other one goes."""

from __future__ import annotations

from dataclasses import dataclass

from envs.ghost_lanes import GhostLanes, Terms
from envs.journal import Batch, places

ENOUGH = 0.9  # of the most keys: how many may be left where some had to go


@dataclass(frozen=True)
class Bounds:
    """keys: that are followed at most. requests: of these in an interval; beyond either the share is halved, and never
    grows again: a key that was not followed has no past. horizon_seconds: when a key that nobody asks for and nothing
    holds is forgotten."""

    keys: int
    requests: int
    horizon_seconds: float


class Followed:
    """lanes: over the keys whose place is below `rate`; open and close them. name: of whom follows, for notes."""

    def __init__(self, terms: Terms, rate: float, bounds: Bounds, name: str) -> None:
        self.lanes, self.rate = GhostLanes(terms), rate
        self._bounds, self._name = bounds, name
        self._notes: list[str] = []

    def feed(self, requests: Batch) -> None:
        """More requests of all keys, as the lanes want them."""
        chosen = requests if self.rate >= 1.0 else requests.of(places(requests.id) < self.rate)
        if len(chosen):
            self.lanes.feed(self._bounded(chosen))

    def limit(self, asked: int) -> None:
        """After an interval in which so many requests were followed."""
        while asked > self._bounds.requests:
            self._halve(f"they were asked for {asked:,} times in an interval")
            asked //= 2

    def tend(self, now_seconds: float) -> None:
        """Housekeeping, which now and then takes a while: for when nobody waits."""
        self.lanes.tend(now_seconds - self._bounds.horizon_seconds)

    def told(self) -> tuple[str, ...]:
        """Notes since the last call."""
        notes, self._notes = tuple(self._notes), []
        return notes

    def _bounded(self, batch: Batch) -> Batch:
        """Takes out keys where there would be too many."""
        journal, most = self.lanes.journal, self._bounds.keys
        if journal.keys + len(batch) <= most or journal.keys + journal.new_keys(batch.id) <= most:
            return batch
        self.lanes.clear(float(batch.time[-1]) - self._bounds.horizon_seconds)
        while journal.keys + journal.new_keys(batch.id) > ENOUGH * most:
            self._halve(f"there are more than {most:,}")
            batch = batch.of(places(batch.id) < self.rate)
        return batch

    def _halve(self, why: str) -> None:
        self.rate /= 2.0
        self.lanes.thin(self.rate, 0.5)
        self._notes.append(f"The keys that {self._name} follow were halved, to a share of {self.rate:.3g}: {why}.")
