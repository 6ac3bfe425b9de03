"""One in-process cache as two isolated ones, an arm each, and what happens when keys change sides.

Each key belongs to one arm and is only ever looked for there. An arm with a share s of the keys has s times the
capacity that its settings state for the whole cache, and one without a share holds nothing.

When the split changes, entries of keys that changed sides are handed over: each when it is asked for, the rest in
bounded steps of `tend`, least recently touched first. They keep write time and own lifetime, and count as touched when
they arrive. So an arm that grows does not start cold.

Capacity moves with them: an arm that is to shrink binds at what it still holds, and one that is to grow has what is
left of the sum that both aim at. So together they never have more than that sum, or than they had before where it is
smaller now. What must go for space goes after the hand-over, in bounded steps as well.

Each arm has its own eviction policy, that which the caches were made with unless its settings name one. Another one
takes over as InProcessCache.change_policy says, in bounded steps too.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from caches.in_process import InProcessCache
from caches.knobs import KnobSettings
from caches.policies.catalog import eviction_called
from caches.policies.live.making import name_of
from caches.policies.settings import Eviction
from caches.target import Arm, Plan, Split

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

LOOKED_AT = 500  # keys in one step, to see whether they changed sides; they take a millisecond or two
TURNS = 4  # such steps, in one call of whoever tends, while keys change sides
OTHER = {Arm.CONTROL: Arm.TREATMENT, Arm.TREATMENT: Arm.CONTROL}


@dataclass
class _Scan(Generic[K]):
    """Keys of an arm that are still to be looked at from `done` on."""

    keys: list[K]
    done: int = 0

    @property
    def share_done(self) -> float:
        return self.done / len(self.keys)


class SplitCache(Generic[K, V]):
    """One owner, no locks; time as for the caches, which age from the write.

    caches: one for each arm, empty. picker: which arm a key belongs to, under a split. retention: how many times its
    lifetime an entry is kept, for who says of each how long it may be served.
    """

    def __init__(
        self,
        caches: Mapping[Arm, InProcessCache[K, V]],
        plan: Plan,
        picker: Callable[[Split], Callable[[K], Arm]],
        retention: float = 1.0,
    ) -> None:
        self.caches, self.plan, self._picker, self.retention = dict(caches), plan, picker, retention
        self._pick, self._targets = picker(plan.split), _capacities(plan)
        self._made_with = {arm: cache.eviction for arm, cache in caches.items()}
        self._scans: dict[Arm, _Scan[K]] = {}
        self._still = 0
        for arm, cache in self.caches.items():
            cache.capacity_bytes = self._targets[arm]
            cache.ttl_seconds = retention * plan.settings(arm).ttl_seconds
            cache.change_policy(self._eviction(plan, arm), 0.0)  # of nothing, so at once

    @property
    def moving(self) -> bool:
        """Whether an arm may still hold entries of the other's keys."""
        return bool(self._scans)

    @property
    def changing(self) -> bool:
        """Whether an arm is still under another eviction policy than it is to be."""
        return any(cache.eviction != cache.eviction_aim for cache in self.caches.values())

    def arm_of(self, key: K) -> Arm:
        return self._pick(key)

    def place(self, key: K, now_seconds: float) -> Arm:
        """The arm that a key belongs to; what the other one has of it is handed over first."""
        arm = self._pick(key)
        if self._scans:
            self._hand_over(key, OTHER[arm], now_seconds)
        return arm

    def aim(self, plan: Plan, now_seconds: float, most: int | None = None) -> None:
        """Lifetimes count at once, capacities as far as what is held allows; the same plan again changes nothing. most:
        entries of an arm that are few enough for another eviction policy at once; None for any number."""
        evictions = {arm: self._eviction(plan, arm) for arm in self.caches}  # or an error, before anything changes
        if plan.split != self.plan.split:
            self._pick = self._picker(plan.split)
            self._scans = {
                arm: _Scan(keys)
                for arm, cache in self.caches.items()
                if plan.split.share(arm) < 1.0 and (keys := cache.by_touch())
            }
        self.plan, self._targets = plan, _capacities(plan)
        for arm, cache in self.caches.items():
            cache.apply(cache.capacity_bytes, self.retention * plan.settings(arm).ttl_seconds, now_seconds)
            cache.change_policy(evictions[arm], now_seconds, most)
        self._bind()

    def tend(self, most: int, now_seconds: float) -> bool:
        """A step of housekeeping, which hands over, evicts and removes for age at most so many entries of each arm, and
        tells another eviction policy of as many. Returns whether there is more to do."""
        self._scan(most, now_seconds)
        done = not self._scans
        for arm, cache in self.caches.items():
            done = cache.tend_policy(most) and done
            aim = cache.capacity_bytes if self._scans else min(cache.capacity_bytes, self._targets[arm])
            done = cache.shrink(aim, most, now_seconds) and done
        self._bind()
        return not done or any(cache.capacity_bytes != self._targets[arm] for arm, cache in self.caches.items())

    def binding(self) -> dict[Arm, KnobSettings]:
        """What binds now, stated for the whole cache; of arms with a share."""
        return {arm: self._binding(arm) for arm in self.caches if self.plan.split.share(arm) > 0.0}

    @property
    def capacity_bytes(self) -> int:
        """What binds for both together."""
        return sum(cache.capacity_bytes for cache in self.caches.values())

    @contextmanager
    def still(self) -> Iterator[None]:
        """Meanwhile nothing is handed over, so that whoever goes through both arms misses nothing: what is asked for
        and still lies with the other arm is let go of."""
        self._still += 1
        try:
            yield
        finally:
            self._still -= 1

    def _binding(self, arm: Arm) -> KnobSettings:
        settings, cache = self.plan.settings(arm), self.caches[arm]
        if cache.eviction != self._eviction(self.plan, arm):
            settings = replace(settings, eviction_policy=name_of(cache.eviction))
        capacity = cache.capacity_bytes
        if capacity == self._targets[arm]:
            return settings
        return replace(settings, cache_size=capacity / self.plan.split.share(arm))

    def _eviction(self, plan: Plan, arm: Arm) -> Eviction:
        name = plan.settings(arm).eviction_policy
        return self._made_with[arm] if name is None else eviction_called(name)

    def _scan(self, most: int, now: float) -> None:
        """From the arm that is less far, so that arms which exchange keys make room for each other."""
        moved = looked = 0
        while self._scans and not self._still and moved < most and looked < LOOKED_AT:
            arm = min(self._scans, key=lambda one: self._scans[one].share_done)
            scan = self._scans[arm]
            key = scan.keys[scan.done]
            if self._pick(key) is not arm:
                moved += self._hand_over(key, arm, now)
            looked, scan.done = looked + 1, scan.done + 1
            if scan.done == len(scan.keys):
                del self._scans[arm]

    def _hand_over(self, key: K, giver: Arm, now: float) -> bool:
        """From an arm whose key it is not any more; whether there was an entry."""
        entry = self.caches[giver].pop(key)
        if entry is None:
            return False
        if not self._still:
            self._bind()
            self.caches[OTHER[giver]].adopt(key, entry, now)
        return True

    def _bind(self) -> None:
        """Capacities as near to the aim as what is held allows."""
        for arm, cache in self.caches.items():
            cache.capacity_bytes = max(min(cache.capacity_bytes, self._targets[arm]), cache.used_bytes)
        room = sum(self._targets.values()) - self.capacity_bytes
        for arm, cache in self.caches.items():
            more = min(self._targets[arm] - cache.capacity_bytes, room)
            if more > 0:
                cache.capacity_bytes += more
                room -= more


def _capacities(plan: Plan) -> dict[Arm, int]:
    """In whole bytes; of one size for both arms, all of it."""
    share = plan.split.treatment
    control = int(plan.control.cache_size) - int(share * plan.control.cache_size)
    return {Arm.CONTROL: control if share < 1.0 else 0, Arm.TREATMENT: int(share * plan.treatment.cache_size)}
