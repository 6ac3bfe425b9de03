"""What decides, in a live cache, which entry goes and which is taken in; and how another eviction policy takes over.

docs/eviction.md has the rule: what is held enters the new policy's queues in the order in which it was last touched, as
if each had just been taken in at the time of the change. Where that takes several steps, the old policy decides until
the new one knows every entry. Meanwhile the new one is told what happens to those it knows, which are also those that
are asked for or written in between.
"""

from __future__ import annotations

from collections.abc import Container, Hashable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from caches.policies.live.judge import Judge, Offer
from caches.policies.live.making import judge_of, order_of, shared_sketch_of
from caches.policies.live.order import Order, Standing, Why
from caches.policies.live.sketch import Sketch
from caches.policies.settings import Admission, AdmitAll, Eviction, Lru

K = TypeVar("K", bound=Hashable)


class Weighed(Protocol):
    """What a policy has to know of an entry. cost: of a miss, in GPU seconds."""

    @property
    def size_bytes(self) -> int: ...

    @property
    def cost(self) -> float: ...


class Ranking(Generic[K]):
    """An eviction policy and its order, with what it goes by. order: None for that of touches, which the cache has."""

    def __init__(self, eviction: Eviction, shared: Sketch | None) -> None:
        self.eviction = eviction
        self.order: Order[K] | None
        self.order, self.sketch = order_of(eviction, shared)
        self._standing = Standing.NEW

    def used(self, key: K, capacity_bytes: int, now_seconds: float) -> None:
        if self.order is not None:
            self.order.used(key, capacity_bytes, now_seconds)

    def taken_out(self, key: K, why: Why, capacity_bytes: int) -> None:
        """What is written over is offered at once."""
        self._standing = Standing.REWRITTEN if why is Why.REWRITTEN else Standing.NEW
        if self.order is not None:
            self.order.taken_out(key, why, capacity_bytes)

    def offered(self, key: K) -> Standing:
        """Before room is made. How the entry is to be taken in then."""
        standing, self._standing = self._standing, Standing.NEW
        return Standing.RETURNING if self.order is not None and self.order.came_back(key) else standing

    def taken_in(self, key: K, entry: Weighed, standing: Standing, capacity_bytes: int, now_seconds: float) -> None:
        if self.order is not None:
            self.order.taken_in(key, entry.size_bytes, entry.cost, standing, capacity_bytes, now_seconds)


@dataclass
class Change(Generic[K]):
    """unknown: what the next one has not been told of, while it is told; None before that."""

    next: Ranking[K]
    at_seconds: float
    unknown: Container[K] | None = None

    def knows(self, key: K) -> bool:
        return self.unknown is not None and key not in self.unknown


class LivePolicy(Generic[K]):
    """One owner, no locks. The owner tells of every request and of every entry that it takes in or out."""

    def __init__(self, eviction: Eviction, admission: Admission) -> None:
        self.admission, self._shared = admission, shared_sketch_of(admission)
        self._judge: Judge[K] | None = judge_of(admission, self._shared)
        self._ranking: Ranking[K] = Ranking(eviction, self._shared)
        self.change: Change[K] | None = None
        self._standings = Standing.NEW, Standing.NEW
        self._sketches = self._all_sketches()

    @property
    def eviction(self) -> Eviction:
        """The one that decides."""
        return self._ranking.eviction

    @property
    def aim(self) -> Eviction:
        """The one that is to decide."""
        return self.eviction if self.change is None else self.change.next.eviction

    @property
    def plain(self) -> bool:
        """Whether a cache does the same without it."""
        return self.aim == self.eviction == Lru() and isinstance(self.admission, AdmitAll)

    # --- what happens ----------------------------------------------------------------------------------------------

    def asked(self, key: K, held: int, now_seconds: float) -> None:
        """One more request for a key, whether it hits or misses. held: entries now."""
        if self._judge is not None:
            self._judge.asked(key, now_seconds)
        for sketch in self._sketches:
            sketch.count(key, held)

    def used(self, key: K, entry: Weighed, capacity_bytes: int, now_seconds: float) -> None:
        """A hit, before the entry counts as touched."""
        self._ranking.used(key, capacity_bytes, now_seconds)
        if self.change is not None and self.change.unknown is not None:
            if not self.change.knows(key):
                self.enter(key, entry, capacity_bytes)
            self.change.next.used(key, capacity_bytes, now_seconds)

    def taken_out(self, key: K, why: Why, capacity_bytes: int) -> None:
        """Before the owner takes it out."""
        self._ranking.taken_out(key, why, capacity_bytes)
        if self.change is not None and self.change.knows(key):
            self.change.next.taken_out(key, why, capacity_bytes)

    def admits(self, key: K, now_seconds: float) -> bool:
        """Whether it may be taken in, as far as that does not depend on what would go."""
        return self._judge is None or self._judge.admits(key, now_seconds)

    def offered(self, key: K) -> None:
        """Of what is about to be taken in, before room is made."""
        next_standing = Standing.NEW if self.change is None else self.change.next.offered(key)
        self._standings = self._ranking.offered(key), next_standing

    def taken_in(self, key: K, entry: Weighed, capacity_bytes: int, now_seconds: float) -> None:
        """After `offered`, and before the owner takes it in."""
        standing, next_standing = self._standings
        self._ranking.taken_in(key, entry, standing, capacity_bytes, now_seconds)
        if self.change is not None and self.change.unknown is not None:
            self.change.next.taken_in(key, entry, next_standing, capacity_bytes, now_seconds)

    # --- who goes --------------------------------------------------------------------------------------------------

    def first_to_go(self, oldest: K, capacity_bytes: int, more_bytes: int) -> K:
        """The entry that makes room. oldest: the least recently touched one."""
        order = self._ranking.order
        return oldest if order is None else order.first_to_go(capacity_bytes, more_bytes)

    def keeps_out(self, comes: Offer[K], first: K) -> bool:
        """Whether the eviction policy itself would rather not take it in than let that entry go."""
        order = self._ranking.order
        return order is not None and order.keeps_out(comes.key, comes.size_bytes, comes.cost, first)

    def better(self, comes: Offer[K], goes: Offer[K]) -> bool:
        return self._judge is None or self._judge.better(comes, goes)

    # --- another eviction policy -----------------------------------------------------------------------------------

    def begin_change(self, eviction: Eviction, now_seconds: float) -> None:
        """Over any that is under way."""
        self.change = Change(Ranking(eviction, self._shared), now_seconds)
        self._sketches = self._all_sketches()

    def give_up_change(self) -> None:
        self.change = None
        self._sketches = self._all_sketches()

    def tell_next(self, unknown: Container[K]) -> None:
        """From now on, of all but these, which are to be entered one by one."""
        assert self.change is not None
        self.change.unknown = unknown

    def enter(self, key: K, entry: Weighed, capacity_bytes: int) -> None:
        """An entry that the next one is told of, as if just taken in."""
        assert self.change is not None
        ranking, at_seconds = self.change.next, self.change.at_seconds
        ranking.taken_in(key, entry, ranking.offered(key), capacity_bytes, at_seconds)

    def take_over(self) -> None:
        """The next one knows every entry, and decides from now on."""
        assert self.change is not None
        self._ranking, self.change = self.change.next, None
        self._sketches = self._all_sketches()

    def _all_sketches(self) -> tuple[Sketch, ...]:
        """Each once: a new one is counted into from the begin of a change."""
        theirs = (self._shared, self._ranking.sketch, None if self.change is None else self.change.next.sketch)
        return tuple({id(sketch): sketch for sketch in theirs if sketch is not None}.values())
