"""A shared tier in Redis with a byte budget kept by an index of its own: exact least recently used, and the same limits
for every process that uses it, whatever else the server holds."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from redis.exceptions import ResponseError

from caches.keys.request_key import RequestKey
from caches.knobs import KnobSettings, KnobSpace
from caches.stats import CacheStats
from caches.tiers import redis_scripts
from caches.tiers.limits import within
from caches.tiers.redis_connection import Connection, evaluated, reached
from caches.tiers.redis_entry import condition, packed, unpacked
from caches.tiers.selection import Selection, label_bytes
from caches.tiers.tier import Answer, Found

KEPT_SECONDS = 30 * 86_400  # a shard that nothing was stored in for so long goes as a whole
KEYS = ("settings", "body", "size", "own", "written", "touch", "meta", "note", "left")
SCAN = 1_000
AT_ONCE = 32  # lookups on their way, each on a connection of its own
AT_ONCE_IN_SCRIPT = 128  # entries of an invalidation, for which others wait about a millisecond


class _Forgotten(Exception):
    """A shard has no settings."""


@dataclass(frozen=True)
class RedisIndexOptions:
    """prefix: of all keys. shards: parts with an equal share of the capacity, each on one node of a cluster; one on a
    single server, so that the order of touches is exact. entry_overhead_bytes: of memory that an entry takes beside
    its body and labels (`label_bytes`), as measured on a server. most_removed: entries in one call of `tend` and
    shard."""

    prefix: str = "setpoint"
    shards: int = 1
    entry_overhead_bytes: int = 640
    most_removed: int = 1_000


class RedisIndexTier:
    """Settings lie in Redis: whoever applies them applies them for all."""

    def __init__(
        self,
        connection: Connection,
        space: KnobSpace,
        name: str = "redis",
        options: RedisIndexOptions = RedisIndexOptions(),
    ) -> None:
        self.name, self._redis, self._space, self._options = name, connection, space, options
        self._counts: Counter[str] = Counter()
        self._applied = self._shared_out(within(space.default(), space))

    async def lookup(self, key: RequestKey, now_seconds: float) -> Found | None:
        entry, expired = await self._run(redis_scripts.LOOKUP, self._shard(key), key.id, now_seconds)
        found = None if entry is None else unpacked(entry)
        self._counts.update(expirations=expired, hits=int(found is not None), misses=int(found is None))
        if found is not None:
            self._counts.update(hit_bytes=found.answer.size_bytes)
        elif entry is not None:  # of another form
            await self._run(redis_scripts.DELETE, self._shard(key), key.id)
        return found

    async def batch_lookup(self, keys: Sequence[RequestKey], now_seconds: float) -> list[Found | None]:
        found: list[Found | None] = []
        for first in range(0, len(keys), AT_ONCE):
            found += await asyncio.gather(*(self.lookup(key, now_seconds) for key in keys[first : first + AT_ONCE]))
        return found

    async def holds(self, key: RequestKey, now_seconds: float) -> bool:
        return bool(await self._run(redis_scripts.HOLDS, self._shard(key), key.id, now_seconds))

    async def store(self, key: RequestKey, answer: Answer, now_seconds: float) -> bool:
        return await self._keep(key, answer, now_seconds, self.entry_bytes(key, answer))

    def entry_bytes(self, key: RequestKey, answer: Answer) -> int:
        """What an entry counts for."""
        return answer.size_bytes + label_bytes(key) + self._options.entry_overhead_bytes

    async def _keep(self, key: RequestKey, answer: Answer, now: float, size: int, note: bytes = b"") -> bool:
        """note: see redis_scripts."""
        own = "" if answer.ttl_seconds is None else answer.ttl_seconds
        taken, evicted = await self._run(
            *(redis_scripts.STORE, self._shard(key), key.id, now, answer.written_seconds),
            *(own, size, packed(key, answer), KEPT_SECONDS, note),
        )
        self._counts.update(evictions=evicted, refusals=int(taken == 0))
        return bool(taken == 1)

    async def warm(self, key: RequestKey, answer: Answer, now_seconds: float) -> bool:
        taken = await self.store(key, answer, now_seconds)
        self._counts.update(warmups=int(taken))
        return taken

    async def delete(self, key: RequestKey) -> bool:
        self._counts.update(deletes=1)
        return bool(await self._run(redis_scripts.DELETE, self._shard(key), key.id))

    async def clear(self, selection: Selection) -> int:
        gone = 0
        async for shard, ids in self._of_partition(selection):
            step = await self._run(redis_scripts.CLEAR, shard, condition(selection), 1, *ids)
            self._counts.update(deletes=step)  # at once: what comes after may fail
            gone += step
        return gone

    async def count(self, selection: Selection) -> int:
        if selection.whole:
            return sum([len(ids) async for _, ids in self._of_partition(selection)])
        return sum(
            [
                await self._run(redis_scripts.CLEAR, shard, condition(selection), 0, *ids)
                async for shard, ids in self._of_partition(selection)
            ]
        )

    async def _of_partition(self, selection: Selection) -> AsyncIterator[tuple[int, list[bytes]]]:
        """The ids of a partition, shard by shard, a few at a time. While a shard grows or shrinks, an id may come
        twice; none that is there all the time is left out."""
        start = selection.partition.prefix
        for shard in range(self._options.shards):
            cursor: Any = None
            found: Any  # its names are bytes; their type says str too
            while cursor != 0:
                async with reached(self.name):
                    cursor, found = await self._redis.hscan(self._key(shard, "size"), cursor or 0, count=SCAN)
                ids = [name for name in found if name.startswith(start)]
                for first in range(0, len(ids), AT_ONCE_IN_SCRIPT):
                    yield shard, ids[first : first + AT_ONCE_IN_SCRIPT]

    async def apply(self, settings: KnobSettings, now_seconds: float) -> KnobSettings:
        taken = self._shared_out(within(settings, self._space))
        for shard in range(self._options.shards):
            await self._set(shard, taken, only_first=False)
        self._applied = taken
        return taken

    async def settings(self) -> KnobSettings:
        found = [await self._run(redis_scripts.READ, shard) for shard in range(self._options.shards)]
        size = sum(float(one[0]) for one in found)
        return KnobSettings(size, float(found[0][1]), float(found[0][2]))

    async def tend(self, now_seconds: float) -> bool:
        more = False
        for shard in range(self._options.shards):
            left, expired, evicted = await self._run(redis_scripts.TEND, shard, now_seconds, self._options.most_removed)
            self._counts.update(expirations=expired, evictions=evicted)
            more = more or bool(left)
        return more

    async def stats(self) -> CacheStats:
        found = [await self._run(redis_scripts.READ, shard) for shard in range(self._options.shards)]
        entries, used = (sum(int(one[place]) for one in found) for place in (3, 4))
        return CacheStats(**self._counts, entries=entries, used_bytes=used)

    async def close(self) -> None:
        await self._redis.aclose()

    def _shard(self, key: RequestKey) -> int:
        return int.from_bytes(hashlib.blake2b(key.id, digest_size=8).digest()) % self._options.shards

    def _key(self, shard: int, name: str) -> str:
        return f"{self._options.prefix}:{{{self._options.prefix}:{shard}}}:{name}"

    async def _run(self, script: str, shard: int, *arguments: Any) -> Any:
        """One of the scripts. A shard without settings, new or emptied by somebody, first gets those that were applied
        last, unless another process was faster."""
        try:
            return await self._call(script, shard, *arguments)
        except _Forgotten:
            await self._set(shard, self._applied, only_first=True)
            return await self._call(script, shard, *arguments)

    def _shared_out(self, settings: KnobSettings) -> KnobSettings:
        """With a capacity that all shards can have an equal part of."""
        return replace(settings, cache_size=settings.cache_size // self._options.shards * self._options.shards)

    async def _set(self, shard: int, settings: KnobSettings, *, only_first: bool) -> None:
        size = int(settings.cache_size) // self._options.shards
        await self._call(redis_scripts.APPLY, shard, size, settings.ttl_seconds, settings.warmup_ratio, int(only_first))

    async def _call(self, script: str, shard: int, *arguments: Any) -> Any:
        keys = [self._key(shard, name) for name in KEYS]
        async with reached(self.name):
            try:
                return await evaluated(self._redis, script, len(keys), *keys, *arguments)
            except ResponseError as error:
                if str(error).startswith(redis_scripts.FORGOTTEN):
                    raise _Forgotten from error
                raise
