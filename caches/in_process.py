"""A live in-process cache: by bytes, with a lifetime. Plain Python, one owner, no locks.

Least recently used, unless a LivePolicy says who goes and who is taken in; caches.policies.live.cache makes one with
such a policy, and `change_policy` changes it.

The rules, which the shadow caches keep to the letter (tests/contracts holds them to the same counts):
- an entry whose age has reached `ttl_seconds` is gone, before anything else happens at that time. Age runs from the
  write, or from the last touch, as `expiry` says;
- a change of `ttl_seconds` governs entries already written: a shorter one removes at once what is too old, a longer
  one extends what is still here;
- an entry may carry a lifetime of its own, which can only shorten: it is checked when the entry is looked up;
- an entry keeps the size that it was written with until it is written again;
- a response larger than the whole cache is refused and nothing is evicted for it.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from caches.errors import InputError
from caches.policies.live.judge import Offer
from caches.policies.live.order import Why
from caches.policies.live.parted import PartedOrder
from caches.policies.live.policy import LivePolicy
from caches.policies.settings import Admission, AdmitAll, Eviction, Lru
from caches.stats import CacheStats, Expiry

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@dataclass
class Entry(Generic[V]):
    value: V
    size_bytes: int
    written_seconds: float
    touched_seconds: float
    ttl_seconds: float | None
    cost: float = 1.0


class InProcessCache(Generic[K, V]):
    """`now_seconds` comes from the caller and never goes back.

    most_swept: entries that one call removes for their age at most, for a cache that must never keep its callers
    waiting; what is left is too old to be served and goes with the next calls. None for all at once, as in the shadow.
    policy: None where all is taken in and the least recently used goes, which costs least.
    """

    def __init__(
        self,
        capacity_bytes: int,
        ttl_seconds: float,
        expiry: Expiry = Expiry.SINCE_WRITE,
        most_swept: int | None = None,
        policy: LivePolicy[K] | None = None,
    ) -> None:
        _check(capacity_bytes, ttl_seconds)
        self.capacity_bytes, self.ttl_seconds, self.expiry = capacity_bytes, ttl_seconds, expiry
        self._most_swept, self._policy = most_swept, policy
        self._by_touch: OrderedDict[K, Entry[V]] | PartedOrder[K, Entry[V]] = OrderedDict()
        self._by_write: OrderedDict[K, Entry[V]] = OrderedDict()
        self._counts: Counter[str] = Counter()
        self._used_bytes = 0

    def get(self, key: K, now_seconds: float, size_bytes: int | None = None) -> V | None:
        """The value, or None on a miss. Touches the entry and counts a hit or a miss.

        size_bytes is the size of the response where the caller knows it before a miss; it only counts bytes.
        """
        self._sweep(now_seconds)
        if self._policy is not None:
            self._policy.asked(key, len(self._by_touch), now_seconds)
        entry = self._by_touch.get(key)
        if entry is not None and now_seconds - self._born(entry) >= self._lifetime(entry):
            self._remove(key, "expirations")
            entry = None
        if entry is None:
            self._counts["misses"] += 1
            self._counts["miss_bytes"] += size_bytes or 0
            return None
        entry.touched_seconds = now_seconds
        if self._policy is not None:
            self._policy.used(key, entry, self.capacity_bytes, now_seconds)
        self._by_touch.move_to_end(key)
        self._counts["hits"] += 1
        self._counts["hit_bytes"] += entry.size_bytes
        return entry.value

    def put(
        self,
        key: K,
        value: V,
        size_bytes: int,
        now_seconds: float,
        ttl_seconds: float | None = None,
        written_seconds: float | None = None,
        cost: float = 1.0,
    ) -> bool:
        """Stores after a miss or over what is there; returns whether it was taken (False: larger than the cache).

        written_seconds: before now where the value was written elsewhere. Such an entry goes when it is looked up too
        old or when those put before it are. cost: of a miss, in GPU seconds; for policies that go by it.
        """
        written = now_seconds if written_seconds is None else written_seconds
        return self._take(key, Entry(value, size_bytes, written, now_seconds, ttl_seconds, cost), now_seconds)

    def _take(self, key: K, entry: Entry[V], now_seconds: float, *, welcome: bool = False) -> bool:
        """welcome: no rule of admission judges it."""
        self._sweep(now_seconds)
        if self._policy is not None:
            return self._take_under(self._policy, key, entry, now_seconds, welcome)
        if key in self._by_touch:
            self._remove(key, None)
        if entry.size_bytes > self.capacity_bytes:
            self._counts["refusals"] += 1
            return False
        self._by_touch[key] = self._by_write[key] = entry
        self._used_bytes += entry.size_bytes
        self._make_room()
        return True

    def _take_under(self, policy: LivePolicy[K], key: K, entry: Entry[V], now: float, welcome: bool) -> bool:
        """Room is made first: what is taken in never makes room for itself."""
        too_large, here = entry.size_bytes > self.capacity_bytes, key in self._by_touch
        if here:
            policy.taken_out(key, Why.GONE if too_large else Why.REWRITTEN, self.capacity_bytes)
            self._drop(key)
        judged = welcome or here
        if too_large or not (judged or policy.admits(key, now)):
            self._counts["refusals"] += 1
            return False
        policy.offered(key)
        if not self._room_for(policy, Offer(key, entry.size_bytes, entry.cost), judged):
            self._counts["refusals"] += 1
            return False
        policy.taken_in(key, entry, self.capacity_bytes, now)
        self._by_touch[key] = self._by_write[key] = entry
        self._used_bytes += entry.size_bytes
        return True

    def _room_for(self, policy: LivePolicy[K], comes: Offer[K], judged: bool) -> bool:
        """Evicts until it fits; whether it may. A rule of admission compares it with the first that goes."""
        kept_out, compared = not judged, not judged
        while self._used_bytes + comes.size_bytes > self.capacity_bytes:
            first = self._first_to_go(self.capacity_bytes, comes.size_bytes)
            if kept_out and policy.keeps_out(comes, first):
                return False
            if compared:
                goes = self._by_touch[first]
                if not policy.better(comes, Offer(first, goes.size_bytes, goes.cost)):
                    return False
                compared = False
            self._remove(first, "evictions")
        return True

    def write(
        self,
        key: K,
        value: V,
        size_bytes: int,
        now_seconds: float,
        ttl_seconds: float | None = None,
        cost: float = 1.0,
    ) -> bool:
        """`put` on the client's own behalf rather than after a miss; counted as a write."""
        self._counts["writes"] += 1
        return self.put(key, value, size_bytes, now_seconds, ttl_seconds, cost=cost)

    def delete(self, key: K, now_seconds: float) -> bool:
        """Removes an entry; returns whether there was one."""
        self._sweep(now_seconds)
        self._counts["deletes"] += 1
        if key not in self._by_touch:
            return False
        self._remove(key, None)
        return True

    def could_miss(self, key: K, now_seconds: float, until_seconds: float) -> bool:
        """Whether the entry is absent, or too old at `until_seconds` if nothing renews it. Touches nothing."""
        self._sweep(now_seconds)
        entry = self._by_touch.get(key)
        if entry is None:
            return True
        return until_seconds - self._born(entry) >= self._lifetime(entry)

    def warm(
        self,
        key: K,
        value: V,
        size_bytes: int,
        now_seconds: float,
        ttl_seconds: float | None = None,
        written_seconds: float | None = None,
        cost: float = 1.0,
    ) -> bool:
        """Stores ahead of any request; counted as a warm-up when taken."""
        written = now_seconds if written_seconds is None else written_seconds
        entry = Entry(value, size_bytes, written, now_seconds, ttl_seconds, cost)
        taken = self._take(key, entry, now_seconds, welcome=True)
        if taken:
            self._counts["warmups"] += 1
        return taken

    def apply(self, capacity_bytes: int, ttl_seconds: float, now_seconds: float) -> None:
        """Changes both settings now: removes what is too old under the new lifetime, then what does not fit."""
        _check(capacity_bytes, ttl_seconds)
        self.capacity_bytes, self.ttl_seconds = capacity_bytes, ttl_seconds
        self._sweep(now_seconds)
        self._make_room()

    def shrink(self, capacity_bytes: int, most: int, now_seconds: float) -> bool:
        """A step towards a smaller capacity: evicts at most so many entries, and binds at what is left. Returns whether
        it is reached and nothing too old is left."""
        _check(capacity_bytes, self.ttl_seconds)
        if not self._sweep(now_seconds):
            return False
        before = len(self._by_touch)
        while self._used_bytes > capacity_bytes and before - len(self._by_touch) < most:
            self._remove(self._first_to_go(capacity_bytes, 0), "evictions")
        self.capacity_bytes = max(capacity_bytes, self._used_bytes)
        return self._used_bytes <= capacity_bytes

    @property
    def eviction(self) -> Eviction:
        """The policy that decides now."""
        return Lru() if self._policy is None else self._policy.eviction

    @property
    def eviction_aim(self) -> Eviction:
        """The policy that is to decide; another one while a change is under way."""
        return Lru() if self._policy is None else self._policy.aim

    @property
    def admission(self) -> Admission:
        return AdmitAll() if self._policy is None else self._policy.admission

    def change_policy(self, eviction: Eviction, now_seconds: float, most: int | None = None) -> bool:
        """Another eviction policy, which is told of what is held, least recently touched first, as if just taken in.
        Nothing is evicted or counted for it. most: entries in one call, if not all; `tend_policy` goes on then. The
        one that decides still, asked for again, goes on deciding. Returns whether it decides now."""
        self._sweep(now_seconds)
        policy: LivePolicy[K] = self._policy or LivePolicy(Lru(), AdmitAll())
        if eviction == policy.eviction:
            policy.give_up_change()
        elif eviction != policy.aim:
            policy.begin_change(eviction, now_seconds)
            if eviction == Lru():  # whose order is that of touches, which is there
                policy.take_over()
            elif most is None or len(self._by_touch) <= most:
                for key, entry in self._by_touch.items():
                    policy.enter(key, entry, self.capacity_bytes)
                policy.take_over()
            elif not isinstance(self._by_touch, PartedOrder):  # else it is made one first
                self._begin_telling(policy, self._by_touch)
        self._policy = None if policy.plain else policy
        return eviction == policy.eviction

    def tend_policy(self, most: int) -> bool:
        """A step of a change of the eviction policy, over at most so many entries. Returns whether there is nothing
        more to do."""
        policy, held = self._policy, self._by_touch
        if not isinstance(held, PartedOrder):
            return True
        if policy is not None and policy.change is not None and policy.change.unknown is held.unseen:
            for _ in range(min(most, len(held.unseen))):
                key, entry = held.see_next()
                policy.enter(key, entry, self.capacity_bytes)
            if not held.unseen:
                policy.take_over()
            return False
        whole = held.joined(most)  # what a change before, done or given up, has left
        if whole is None:
            return False
        self._by_touch = whole
        if policy is None or policy.change is None:
            return True
        self._begin_telling(policy, whole)
        return False

    def _begin_telling(self, policy: LivePolicy[K], held: OrderedDict[K, Entry[V]]) -> None:
        self._by_touch = parted = PartedOrder(held)
        policy.tell_next(parted.unseen)

    def stats(self) -> CacheStats:
        return CacheStats(**self._counts, entries=len(self._by_touch), used_bytes=self._used_bytes)

    @property
    def used_bytes(self) -> int:
        """As `stats` says it."""
        return self._used_bytes

    def pop(self, key: K) -> Entry[V] | None:
        """Takes an entry out to hand it over to another cache, however old. Counts nothing."""
        entry = self._by_touch.get(key)
        if entry is not None:
            self._remove(key, None)
        return entry

    def adopt(self, key: K, entry: Entry[V], now_seconds: float) -> bool:
        """Takes in what another cache let go of, with its write time and its own lifetime, as touched now. Returns
        whether it was taken: what is too old here is counted as expired, what is larger than the cache as refused."""
        if now_seconds - entry.written_seconds >= self._lifetime(entry):
            self._counts["expirations"] += 1
            return False
        return self._take(key, replace(entry, touched_seconds=now_seconds), now_seconds, welcome=True)

    def peek(self, key: K) -> V | None:
        """What is held under this key after the last call, however old. Touches and counts nothing."""
        entry = self._by_touch.get(key)
        return None if entry is None else entry.value

    def items(self) -> list[tuple[K, V]]:
        """What is held after the last call, least recently touched first."""
        return [(key, entry.value) for key, entry in self._by_touch.items()]

    def by_touch(self) -> list[K]:
        """Keys held after the last call, least recently touched first."""
        return list(self._by_touch)

    def resident(self) -> set[K]:
        """Keys held after the last call; nothing is removed for age here."""
        return set(self._by_touch)

    def _born(self, entry: Entry[V]) -> float:
        return entry.written_seconds if self.expiry is Expiry.SINCE_WRITE else entry.touched_seconds

    def _lifetime(self, entry: Entry[V]) -> float:
        return self.ttl_seconds if entry.ttl_seconds is None else min(self.ttl_seconds, entry.ttl_seconds)

    def _sweep(self, now_seconds: float) -> bool:
        """Whether nothing is left that is too old, as far as the order tells."""
        order = self._by_write if self.expiry is Expiry.SINCE_WRITE else self._by_touch
        before = len(order)
        while order:
            key, entry = next(iter(order.items()))
            if now_seconds - self._born(entry) < self.ttl_seconds:
                return True
            if self._most_swept is not None and before - len(order) >= self._most_swept:
                return False
            self._remove(key, "expirations")
        return True

    def _make_room(self) -> None:
        while self._used_bytes > self.capacity_bytes:
            self._remove(self._first_to_go(self.capacity_bytes, 0), "evictions")

    def _first_to_go(self, capacity_bytes: int, more_bytes: int) -> K:
        """There must be an entry."""
        oldest = next(iter(self._by_touch))
        return oldest if self._policy is None else self._policy.first_to_go(oldest, capacity_bytes, more_bytes)

    def _remove(self, key: K, counted_as: str | None) -> None:
        if self._policy is not None:
            why = Why.EVICTED if counted_as == "evictions" else Why.GONE
            self._policy.taken_out(key, why, self.capacity_bytes)
        self._drop(key)
        if counted_as is not None:
            self._counts[counted_as] += 1

    def _drop(self, key: K) -> None:
        entry = self._by_touch.pop(key)
        del self._by_write[key]
        self._used_bytes -= entry.size_bytes


def _check(capacity_bytes: int, ttl_seconds: float) -> None:
    if capacity_bytes < 0:
        raise InputError(f"capacity_bytes: got {capacity_bytes}, expected 0 or more")
    if not ttl_seconds > 0:
        raise InputError(f"ttl_seconds: got {ttl_seconds}, expected above 0")
