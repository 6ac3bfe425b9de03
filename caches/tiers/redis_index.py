"""A shared tier in Redis with a byte budget kept by an index of its own: exact least recently used, and the same limits
for every process that uses it, whatever else the server holds."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from redis.exceptions import ResponseError

from caches.keys.request_key import Partition, RequestKey
from caches.knobs import KnobSettings, KnobSpace
from caches.stats import CacheStats
from caches.tiers import redis_scripts
from caches.tiers.limits import within
from caches.tiers.redis_connection import Connection, evaluated, reached
from caches.tiers.redis_entry import packed, unpacked
from caches.tiers.tier import Answer, Found

KEPT_SECONDS = 30 * 86_400  # a shard that nothing was stored in for so long goes as a whole
KEYS = ("settings", "body", "size", "own", "written", "touch", "meta")
SCAN = 1_000
AT_ONCE = 32  # lookups on their way, each on a connection of its own


class _Forgotten(Exception):
    """A shard has no settings."""


@dataclass(frozen=True)
class RedisIndexOptions:
    """prefix: of all keys. shards: parts with an equal share of the capacity, each on one node of a cluster; one on a
    single server, so that the order of touches is exact. entry_overhead_bytes: of memory that an entry takes beside
    its body, as measured on a server. most_removed: entries in one call of `tend` and shard."""

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
        hit = entry is not None
        self._counts.update(expirations=expired, hits=int(hit), misses=int(not hit))
        if not hit:
            return None
        answer = unpacked(entry)
        self._counts.update(hit_bytes=answer.size_bytes)
        return Found(answer)

    async def batch_lookup(self, keys: Sequence[RequestKey], now_seconds: float) -> list[Found | None]:
        found: list[Found | None] = []
        for first in range(0, len(keys), AT_ONCE):
            found += await asyncio.gather(*(self.lookup(key, now_seconds) for key in keys[first : first + AT_ONCE]))
        return found

    async def holds(self, key: RequestKey, now_seconds: float) -> bool:
        return bool(await self._run(redis_scripts.HOLDS, self._shard(key), key.id, now_seconds))

    async def store(self, key: RequestKey, answer: Answer, now_seconds: float) -> bool:
        own = "" if answer.ttl_seconds is None else answer.ttl_seconds
        size = answer.size_bytes + self._options.entry_overhead_bytes
        taken, evicted = await self._run(
            *(redis_scripts.STORE, self._shard(key), key.id, now_seconds, answer.written_seconds),
            *(own, size, packed(answer), KEPT_SECONDS),
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

    async def clear(self, partition: Partition) -> int:
        start, gone = partition.prefix, 0
        for shard in range(self._options.shards):
            async with reached(self.name):
                names = [name async for name, _ in self._redis.hscan_iter(self._key(shard, "size"), count=SCAN)]
            mine = [name for name in names if name.startswith(start)]
            for first in range(0, len(mine), SCAN):
                gone += int(await self._run(redis_scripts.DELETE, shard, *mine[first : first + SCAN]))
        self._counts.update(deletes=gone)
        return gone

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
