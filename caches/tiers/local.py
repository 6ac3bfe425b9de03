"""What tiers in this process's own memory have in common: everything about capacity, lifetime and names."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from dataclasses import replace
from typing import Generic, Protocol, TypeVar

from caches.in_process import InProcessCache
from caches.keys.request_key import RequestKey
from caches.knobs import KnobSettings, KnobSpace
from caches.stats import CacheStats
from caches.tiers.limits import within
from caches.tiers.selection import Labelled, Selection

LOOKED_AT = 2_000  # entries between two turns of the event loop; they take about a millisecond


class Kept(Protocol):
    """An entry. stored_by: what an invalidation selects it by."""

    @property
    def stored_by(self) -> Labelled: ...


E = TypeVar("E", bound=Kept)


class LocalTier(Generic[E]):
    """The part of the seam that follows from a live in-process cache. One event loop's; no locks.

    cache: at the defaults of the space. most_removed: entries in one call, beside those that a new one pushes out; a
    thousand take about a millisecond. policies: as of `within`.
    """

    def __init__(
        self,
        name: str,
        space: KnobSpace,
        cache: InProcessCache[bytes, E],
        most_removed: int,
        policies: Collection[str] = (),
    ) -> None:
        self.name, self._space, self._cache, self._most = name, space, cache, most_removed
        self.policies = tuple(policies)
        self._aim = within(space.default(), space)
        self._now = float("-inf")

    @property
    def cache(self) -> InProcessCache[bytes, E]:
        """For whoever makes one tier of several."""
        return self._cache

    async def holds(self, key: RequestKey, now_seconds: float) -> bool:
        now = self._clock(now_seconds)
        return not self._cache.could_miss(key.id, now, now)

    async def delete(self, key: RequestKey) -> bool:
        return self._cache.delete(key.id, self._now)

    async def clear(self, selection: Selection) -> int:
        return sum([self._cache.delete(name, self._now) async for name in self._selected(selection)])

    async def count(self, selection: Selection) -> int:
        return sum([1 async for _ in self._selected(selection)])

    async def _selected(self, selection: Selection) -> AsyncIterator[bytes]:
        """Of what is held now, what is selected and there when its turn comes."""
        for place, name in enumerate(self._cache.resident(), 1):
            entry = self._cache.peek(name)
            if entry is not None and selection.takes(entry.stored_by):
                yield name
            if place % LOOKED_AT == 0:
                await asyncio.sleep(0)

    async def apply(self, settings: KnobSettings, now_seconds: float) -> KnobSettings:
        self._aim = within(settings, self._space, self.policies)
        binding = min(self._cache.capacity_bytes, self._cache.stats().used_bytes)  # until `tend` has made room
        size = max(int(self._aim.cache_size), binding)
        self._cache.apply(size, self._aim.ttl_seconds, self._clock(now_seconds))
        return self._aim

    async def settings(self) -> KnobSettings:
        return replace(self._aim, cache_size=float(self._cache.capacity_bytes), ttl_seconds=self._cache.ttl_seconds)

    async def tend(self, now_seconds: float) -> bool:
        return not self._cache.shrink(int(self._aim.cache_size), self._most, self._clock(now_seconds))

    async def stats(self) -> CacheStats:
        return self._cache.stats()

    def _clock(self, now_seconds: float) -> float:
        """Clocks of machines may be set back; an entry's age is not."""
        self._now = max(self._now, now_seconds)
        return self._now
