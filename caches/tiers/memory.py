"""The tier in this process's own memory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from caches.in_process import InProcessCache
from caches.keys.request_key import Partition, RequestKey
from caches.knobs import KnobSettings, KnobSpace
from caches.policies.catalog import EVICTIONS, eviction_called
from caches.policies.live.cache import live_cache
from caches.policies.live.making import name_of
from caches.policies.settings import Admission, AdmitAll, Eviction, Lru
from caches.tiers.limits import within
from caches.tiers.local import LocalTier
from caches.tiers.selection import label_bytes
from caches.tiers.tier import Answer, Found


class _Labels(NamedTuple):
    partition: Partition
    model: str
    tags: frozenset[str]


_labels = lru_cache(4_096)(_Labels)  # entries of the same labels share one object


class _Entry(NamedTuple):
    stored_by: _Labels
    answer: Answer


class MemoryTier(LocalTier[_Entry]):
    """Entries are not copied: a body is bytes. entry_overhead_bytes: counted for each entry beside its body and labels
    (`label_bytes`). Policies that go by the cost of a miss take what the backend took for the answer.

    policies: names of those that the eviction policy can be changed to. A change goes through the entries in steps of
    `tend`, most_removed at a time; where there are no more than that, it is done when it is asked for.
    """

    def __init__(
        self,
        space: KnobSpace,
        name: str = "memory",
        entry_overhead_bytes: int = 512,
        most_removed: int = 1_000,
        eviction: Eviction = Lru(),
        admission: Admission = AdmitAll(),
        policies: Collection[str] = tuple(EVICTIONS),
    ) -> None:
        begin = within(space.default(), space)
        cache: InProcessCache[bytes, _Entry] = live_cache(
            int(begin.cache_size),
            begin.ttl_seconds,
            most_swept=most_removed,
            eviction=eviction,
            admission=admission,
        )
        super().__init__(name, space, cache, most_removed, policies)
        self._overhead, self.made_with = entry_overhead_bytes, eviction

    @property
    def eviction_policy(self) -> str | None:
        """The name of the one that decides now; None of one without a name."""
        return name_of(self._cache.eviction)

    async def apply(self, settings: KnobSettings, now_seconds: float) -> KnobSettings:
        taken = await super().apply(settings, now_seconds)
        self._cache.change_policy(self._aimed_at, self._clock(now_seconds), self._most)
        return taken

    async def settings(self) -> KnobSettings:
        told = await super().settings()
        reached = self._cache.eviction == self._aimed_at
        return told if reached else replace(told, eviction_policy=self.eviction_policy)

    async def tend(self, now_seconds: float) -> bool:
        changed = self._cache.tend_policy(self._most)
        return await super().tend(now_seconds) or not changed

    @property
    def _aimed_at(self) -> Eviction:
        name = self._aim.eviction_policy
        return self.made_with if name is None else eviction_called(name)

    async def lookup(self, key: RequestKey, now_seconds: float) -> Found | None:
        entry = self._cache.get(key.id, self._clock(now_seconds))
        return None if entry is None else Found(entry.answer, tags=entry.stored_by.tags)

    async def batch_lookup(self, keys: Sequence[RequestKey], now_seconds: float) -> list[Found | None]:
        return [await self.lookup(key, now_seconds) for key in keys]

    async def store(self, key: RequestKey, answer: Answer, now_seconds: float) -> bool:
        return self._keep(self._cache.put, key, answer, now_seconds)

    async def warm(self, key: RequestKey, answer: Answer, now_seconds: float) -> bool:
        return self._keep(self._cache.warm, key, answer, now_seconds)

    async def close(self) -> None:
        """Nothing is held but memory."""

    def _keep(self, keep: Callable[..., bool], key: RequestKey, answer: Answer, now_seconds: float) -> bool:
        now, size = self._clock(now_seconds), answer.size_bytes + label_bytes(key) + self._overhead
        if answer.outlived(self._cache.ttl_seconds, now):
            return False
        entry = _Entry(_labels(key.partition, key.model, key.tags), answer)
        cost = answer.compute_seconds
        return keep(key.id, entry, size, now, answer.ttl_seconds, answer.written_seconds, cost)
