"""The memory limit of a Redis server that is ours alone: read, raised, and lowered step by step."""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from caches.errors import InputError
from caches.tiers.redis_connection import reached
from caches.tiers.tier import TierError


@dataclass(frozen=True)
class Usage:
    """keys: in the database. evicted, expired: by the server since `begin`, whoever stored them."""

    keys: int
    used_bytes: int
    evicted: int
    expired: int


class ServerMemory:
    """`maxmemory` counts everything that the server allocates, beside entries also its tables and the buffers of
    connections. empty_bytes: what it needs without entries and connections, after `begin`. bound_bytes: the limit as it
    was read last; infinite where the server has none. policy: lru or lfu, the server's own approximations of them."""

    def __init__(self, connection: Redis, name: str, spare_bytes: int, samples: int, policy: str) -> None:
        self._redis, self._name, self._spare = connection, name, spare_bytes
        self._wanted = {"maxmemory-policy": f"allkeys-{policy}", "maxmemory-samples": str(samples)}
        self.empty_bytes, self.bound_bytes = 0, math.inf
        self._counting = asyncio.Lock()  # an answer that overtakes another would look like a restart
        self._growth = {"evicted_keys": _Growth(), "expired_keys": _Growth()}

    async def begin(self, low_bytes: float) -> None:
        """Raises InputError for a server that lets nobody set its limit, or needs more for itself than the floor."""
        try:
            limit = await self.read()
            async with reached(self._name):  # to what it is: some let nobody set what all may read
                await self._redis.config_set("maxmemory", 0 if limit == math.inf else int(limit))
        except TierError as error:
            if isinstance(error.__cause__, ResponseError):
                raise InputError(
                    f"tier {self._name}: the server refuses CONFIG ({error.__cause__}), expected one that the cache "
                    "may set up; for a managed or shared server use the index mode, which keeps its own byte budget"
                ) from error
            raise
        async with reached(self._name):
            found = await self._redis.info("memory")
        # of a server that is full already this says what it needs apart from that
        parts = ("used_memory_startup", "mem_replication_backlog", "mem_aof_buffer")
        self.empty_bytes = sum(int(found.get(part, 0)) for part in parts)
        least = self.empty_bytes + self._spare
        if low_bytes < least:
            raise InputError(
                f"tier {self._name}, cache_size.low: got {low_bytes:.0f} bytes, expected at least {least}: the empty "
                f"server takes {self.empty_bytes}, and {self._spare} are spare for connections"
            )
        await self.usage()

    async def read(self) -> float:
        """The limit. A server that was restarted or took over from another gets our eviction policy again."""
        async with reached(self._name):
            found = await self._redis.config_get("maxmemory*")
            if "maxmemory" not in found:
                raise ResponseError("CONFIG GET shows no maxmemory")
            for option, value in self._wanted.items():
                if found.get(option) != value:
                    await self._redis.config_set(option, value)
        self.bound_bytes = int(found["maxmemory"] or 0) or math.inf
        return self.bound_bytes

    async def aim(self, aim_bytes: float) -> None:
        """Binds at once as far as nothing has to go for it."""
        held = min(await self.read(), (await self.usage()).used_bytes)
        await self._bind(max(aim_bytes, held))

    async def step(self, aim_bytes: float, share: float) -> bool:
        """Lowers the limit by at most this share of what entries take; returns whether the aim is still ahead."""
        if await self.read() == aim_bytes:
            return False
        held = min(self.bound_bytes, (await self.usage()).used_bytes)
        await self._bind(max(aim_bytes, held - math.ceil(share * max(held - self.empty_bytes, 0))))
        return self.bound_bytes > aim_bytes

    async def _bind(self, size: float) -> None:
        if size != self.bound_bytes:
            async with reached(self._name):
                await self._redis.config_set("maxmemory", int(size))
            self.bound_bytes = float(int(size))

    async def usage(self) -> Usage:
        async with self._counting, reached(self._name), self._redis.pipeline(transaction=False) as asked:
            for question in (("INFO", "memory"), ("INFO", "stats"), ("DBSIZE",)):
                asked.execute_command(*question)
            memory, stats, keys = await asked.execute()
        evicted, expired = (growth.upto(int(stats[name])) for name, growth in self._growth.items())
        return Usage(int(keys), int(memory["used_memory"]), evicted, expired)


class _Growth:
    """Of a counter that begins anew when its server does."""

    def __init__(self) -> None:
        self._last: int | None = None
        self._sum = 0

    def upto(self, count: int) -> int:
        last = count if self._last is None else self._last
        self._sum += count - last if count >= last else count
        self._last = count
        return self._sum
