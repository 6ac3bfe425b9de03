"""The tier in this process's own memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from caches.in_process import InProcessCache
from caches.keys.request_key import Partition, RequestKey
from caches.knobs import KnobSettings, KnobSpace
from caches.stats import CacheStats
from caches.tiers.limits import within
from caches.tiers.tier import Answer, Found


class MemoryTier:
    """One event loop's; no locks. Entries are not copied: a body is bytes.

    entry_overhead_bytes: counted for each entry beside its body. most_removed: entries in one call, beside those that a
    new one pushes out; a thousand take about a millisecond.
    """

    def __init__(
        self, space: KnobSpace, name: str = "memory", entry_overhead_bytes: int = 512, most_removed: int = 1_000
    ) -> None:
        self.name, self._space, self._overhead, self._most = name, space, entry_overhead_bytes, most_removed
        self._aim = within(space.default(), space)
        self._cache: InProcessCache[bytes, tuple[Partition, Answer]] = InProcessCache(
            int(self._aim.cache_size), self._aim.ttl_seconds, most_swept=most_removed
        )
        self._now = float("-inf")

    async def lookup(self, key: RequestKey, now_seconds: float) -> Found | None:
        held = self._cache.get(key.id, self._clock(now_seconds))
        return None if held is None else Found(held[1])

    async def batch_lookup(self, keys: Sequence[RequestKey], now_seconds: float) -> list[Found | None]:
        return [await self.lookup(key, now_seconds) for key in keys]

    async def holds(self, key: RequestKey, now_seconds: float) -> bool:
        now = self._clock(now_seconds)
        return not self._cache.could_miss(key.id, now, now)

    async def store(self, key: RequestKey, answer: Answer, now_seconds: float) -> bool:
        return self._keep(self._cache.put, key, answer, now_seconds)

    async def warm(self, key: RequestKey, answer: Answer, now_seconds: float) -> bool:
        return self._keep(self._cache.warm, key, answer, now_seconds)

    def _keep(self, keep: Callable[..., bool], key: RequestKey, answer: Answer, now_seconds: float) -> bool:
        now, size = self._clock(now_seconds), answer.size_bytes + self._overhead
        if answer.outlived(self._cache.ttl_seconds, now):
            return False
        return keep(key.id, (key.partition, answer), size, now, answer.ttl_seconds, answer.written_seconds)

    async def delete(self, key: RequestKey) -> bool:
        return self._cache.delete(key.id, self._now)

    async def clear(self, partition: Partition) -> int:
        gone = [name for name, (owner, _) in self._cache.items() if owner == partition]
        return sum(self._cache.delete(name, self._now) for name in gone)

    async def apply(self, settings: KnobSettings, now_seconds: float) -> KnobSettings:
        self._aim = within(settings, self._space)
        now, held = self._clock(now_seconds), self._cache.stats().used_bytes
        self._cache.apply(
            max(int(self._aim.cache_size), min(self._cache.capacity_bytes, held)), self._aim.ttl_seconds, now
        )
        return self._aim

    async def settings(self) -> KnobSettings:
        return replace(self._aim, cache_size=float(self._cache.capacity_bytes), ttl_seconds=self._cache.ttl_seconds)

    async def tend(self, now_seconds: float) -> bool:
        return not self._cache.shrink(int(self._aim.cache_size), self._most, self._clock(now_seconds))

    async def stats(self) -> CacheStats:
        return self._cache.stats()

    async def close(self) -> None:
        """Nothing is held but memory."""

    def _clock(self, now_seconds: float) -> float:
        """Clocks of machines may be set back; an entry's age is not."""
        self._now = max(self._now, now_seconds)
        return self._now
