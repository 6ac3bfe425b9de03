"""The tier in this process's own memory as two arms: what caches/split.py says, behind the seam of a tier.

The seam speaks of the whole cache. What is applied through it counts for all keys, so for both arms; what differs
between them is for `aim` and `binding`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields, replace

from caches.keys.request_key import RequestKey
from caches.knobs import KnobSettings, KnobSpace
from caches.policies.catalog import EVICTIONS
from caches.policies.settings import Admission, AdmitAll, Eviction, Lru
from caches.split import TURNS, SplitCache
from caches.stats import CacheStats
from caches.target import Arm, Plan, Split
from caches.tiers.limits import within
from caches.tiers.memory import MemoryTier
from caches.tiers.selection import Selection
from caches.tiers.tier import Answer, Found

COUNTS = tuple(field.name for field in fields(CacheStats))


class SplitTier:
    """Two memory tiers. One event loop's; no locks.

    picker: which arm the id of a key belongs to, under a split. Without one being aimed at, all keys are the control
    arm's. entry_overhead_bytes, most_removed, eviction, admission, policies: as of a MemoryTier, but for the first for
    each arm by itself. retention: as of a RetainingTier.
    """

    def __init__(
        self,
        space: KnobSpace,
        picker: Callable[[Split], Callable[[bytes], Arm]],
        name: str = "memory",
        entry_overhead_bytes: int = 512,
        most_removed: int = 1_000,
        retention: float = 1.0,
        eviction: Eviction = Lru(),
        admission: Admission = AdmitAll(),
        policies: Collection[str] = tuple(EVICTIONS),
    ) -> None:
        self.name, self.space, self._most = name, space, most_removed
        self.made_with, self.policies = eviction, tuple(policies)
        self._tiers = {
            arm: MemoryTier(space, arm.value, entry_overhead_bytes, most_removed, eviction, admission) for arm in Arm
        }
        begin = within(space.default(), space)
        caches = {arm: tier.cache for arm, tier in self._tiers.items()}
        self._split = SplitCache(caches, Plan(Split(), begin, begin), picker, retention)
        self._now = float("-inf")
        self._drawn: tuple[RequestKey, bytes, Arm] | None = None  # the last one, its id and its arm

    @property
    def tiers(self) -> tuple[MemoryTier, ...]:
        """One for each arm."""
        return tuple(self._tiers.values())

    # --- arms ------------------------------------------------------------------------------------------------------

    @property
    def plan(self) -> Plan:
        """What is aimed at."""
        return self._split.plan

    @property
    def eviction_policy(self) -> str | None:
        """The name of the one that decides now in the arm that `settings` speaks of; None of one without a name."""
        return self._tiers[self._first].eviction_policy

    def aim(self, plan: Plan, now_seconds: float) -> Plan:
        """Aims at a plan and returns what was taken: its settings within the tier's floors and ceilings. Lifetimes and
        the split count at once; capacities, eviction policies, and entries of keys that changed sides, follow with
        `tend`. Raises InputError, having changed nothing, where it names a policy that is not offered."""
        control, treatment = (within(one, self.space, self.policies) for one in (plan.control, plan.treatment))
        taken = Plan(plan.split, control, treatment)
        self._split.aim(taken, self._clock(now_seconds), self._most)
        self._drawn = None
        return taken

    def binding(self) -> Mapping[Arm, KnobSettings]:
        """What binds now, stated for the whole cache; of arms with a share of the keys."""
        return self._split.binding()

    def arm_of(self, key: RequestKey) -> Arm:
        """For any thread."""
        return self._split.arm_of(key.id)

    def drawn(self, key: RequestKey) -> Arm:
        """As `arm_of`, for the event loop: of the key that was drawn last, mostly by a lookup, it is known."""
        return self._draw(key)[2]

    def arm_stats(self) -> Mapping[Arm, CacheStats]:
        """Both, at one moment."""
        return {arm: tier.cache.stats() for arm, tier in self._tiers.items()}

    # --- the seam --------------------------------------------------------------------------------------------------

    async def lookup(self, key: RequestKey, now_seconds: float) -> Found | None:
        """A hit has the lifetime of its arm, which need not be that of `settings`."""
        tier, now = self._place(key, now_seconds)
        cache = tier.cache
        entry = cache.get(self._draw(key)[1], now)
        if entry is None:
            return None
        return Found(entry.answer, 1.0, entry.stored_by.tags, cache.ttl_seconds / self._split.retention)

    async def batch_lookup(self, keys: Sequence[RequestKey], now_seconds: float) -> list[Found | None]:
        return [await self.lookup(key, now_seconds) for key in keys]

    async def holds(self, key: RequestKey, now_seconds: float) -> bool:
        tier, now = self._place(key, now_seconds)
        return await tier.holds(key, now)

    async def store(self, key: RequestKey, answer: Answer, now_seconds: float) -> bool:
        tier, now = self._place(key, now_seconds)
        return await tier.store(key, answer, now)

    async def warm(self, key: RequestKey, answer: Answer, now_seconds: float) -> bool:
        tier, now = self._place(key, now_seconds)
        return await tier.warm(key, answer, now)

    async def delete(self, key: RequestKey) -> bool:
        tier, now = self._place(key, self._now)
        return tier.cache.delete(key.id, now)

    async def clear(self, selection: Selection) -> int:
        """Nothing that changes sides meanwhile escapes it: such an entry is let go of where it is asked for."""
        with self._split.still():
            return sum([await tier.clear(selection) for tier in self._tiers.values()])

    async def count(self, selection: Selection) -> int:
        return sum([await tier.count(selection) for tier in self._tiers.values()])

    async def apply(self, settings: KnobSettings, now_seconds: float) -> KnobSettings:
        taken = within(settings, self.space, self.policies)
        return self.aim(Plan(self.plan.split, taken, taken), now_seconds).control

    async def settings(self) -> KnobSettings:
        """The capacity of both arms together; the rest of the control arm, or of the treatment arm where that has all
        keys."""
        return replace(self.binding()[self._first], cache_size=float(self._split.capacity_bytes))

    async def tend(self, now_seconds: float) -> bool:
        """While keys change sides, or a policy, several steps, and requests are served between them."""
        now = self._clock(now_seconds)
        for _ in range(TURNS - 1):
            if not (self._split.moving or self._split.changing):
                break
            self._split.tend(self._most, now)
            await asyncio.sleep(0)
        return self._split.tend(self._most, now)

    async def stats(self) -> CacheStats:
        every = self.arm_stats().values()
        return CacheStats(*(sum(getattr(one, name) for one in every) for name in COUNTS))

    async def close(self) -> None:
        """Nothing is held but memory."""

    @property
    def _first(self) -> Arm:
        return Arm.CONTROL if self.plan.split.share(Arm.CONTROL) > 0.0 else Arm.TREATMENT

    def _place(self, key: RequestKey, now_seconds: float) -> tuple[MemoryTier, float]:
        now, (_, name, arm) = self._clock(now_seconds), self._draw(key)
        if self._split.moving:
            self._split.place(name, now)
        return self._tiers[arm], now

    def _draw(self, key: RequestKey) -> tuple[RequestKey, bytes, Arm]:
        drawn = self._drawn
        if drawn is None or drawn[0] is not key:
            name = key.id
            drawn = self._drawn = key, name, self._split.arm_of(name)
        return drawn

    def _clock(self, now_seconds: float) -> float:
        """Clocks of machines may be set back; an entry's age is not."""
        self._now = max(self._now, now_seconds)
        return self._now
