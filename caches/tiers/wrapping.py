"""A tier around another one, to which all goes on that a subclass does not do its own way."""

from __future__ import annotations

from collections.abc import Sequence

from caches.keys.request_key import RequestKey
from caches.knobs import KnobSettings
from caches.stats import CacheStats
from caches.tiers.selection import Selection
from caches.tiers.tier import Answer, Found, Tier


class WrappingTier:
    """kept: the tier inside, of which this one has the name."""

    def __init__(self, kept: Tier) -> None:
        self.name, self._kept = kept.name, kept

    async def lookup(self, key: RequestKey, now_seconds: float) -> Found | None:
        return await self._kept.lookup(key, now_seconds)

    async def batch_lookup(self, keys: Sequence[RequestKey], now_seconds: float) -> list[Found | None]:
        return await self._kept.batch_lookup(keys, now_seconds)

    async def holds(self, key: RequestKey, now_seconds: float) -> bool:
        return await self._kept.holds(key, now_seconds)

    async def store(self, key: RequestKey, answer: Answer, now_seconds: float) -> bool:
        return await self._kept.store(key, answer, now_seconds)

    async def warm(self, key: RequestKey, answer: Answer, now_seconds: float) -> bool:
        return await self._kept.warm(key, answer, now_seconds)

    async def delete(self, key: RequestKey) -> bool:
        return await self._kept.delete(key)

    async def clear(self, selection: Selection) -> int:
        return await self._kept.clear(selection)

    async def count(self, selection: Selection) -> int:
        return await self._kept.count(selection)

    async def apply(self, settings: KnobSettings, now_seconds: float) -> KnobSettings:
        return await self._kept.apply(settings, now_seconds)

    async def settings(self) -> KnobSettings:
        return await self._kept.settings()

    async def tend(self, now_seconds: float) -> bool:
        return await self._kept.tend(now_seconds)

    async def stats(self) -> CacheStats:
        return await self._kept.stats()

    async def close(self) -> None:
        await self._kept.close()
