"""A shared tier in a Redis server that is the cache's alone: the server's own memory limit is the capacity, and its own
approximation of the eviction policy decides what goes. Faster than the index mode, and less exact."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import orjson
from redis.asyncio import RedisCluster
from redis.exceptions import OutOfMemoryError

from caches.errors import InputError
from caches.keys.request_key import RequestKey
from caches.knobs import KnobSettings, KnobSpace
from caches.stats import CacheStats
from caches.tiers.limits import within
from caches.tiers.redis_clearing import Clearing
from caches.tiers.redis_connection import Connection, evaluated, reached
from caches.tiers.redis_entry import packed, unpacked
from caches.tiers.redis_memory import ServerMemory
from caches.tiers.selection import Selection, label_bytes
from caches.tiers.tier import Answer, Found, TierError

AT_ONCE = 32  # entries in one answer of the server
ALLOCATED = 1.25  # the allocator rounds large bodies up by at most a quarter

# An entry is removed only if it is still the one that was judged. KEYS: its name. ARGV: its first bytes.
_REMOVE = "if redis.call('GETRANGE', KEYS[1], 0, #ARGV[1] - 1) == ARGV[1] then return redis.call('UNLINK', KEYS[1]) end"


@dataclass(frozen=True)
class RedisServerOptions:
    """prefix: of all keys. entry_overhead_bytes: of memory that an entry takes beside its body, as measured on a
    server. spare_bytes: least room of the floor beside the empty server, for the buffers of connections (40 kB each).
    share_removed: of what entries take, given up in one call of `tend` at most. samples: entries that the server
    compares before it evicts one; more are nearer to the exact order and cost more."""

    prefix: str = "setpoint"
    entry_overhead_bytes: int = 250
    spare_bytes: int = 4 << 20
    share_removed: float = 0.05
    samples: int = 10
    policy: Literal["lru", "lfu"] = "lru"


class RedisServerTier:
    """Settings lie in the server: whoever applies them applies them for all. Where it forgets them, or a replica
    without them takes over, the next call sets them again.

    What differs from the seam, because the server decides: the order of touches is known to the second and by samples;
    sizes are the server's memory, buffers and tables included; an entry too old under a lifetime below the knob's
    ceiling leaves when it is asked for, evicted, or as old as the ceiling, not in `tend`. Evictions, and expirations at
    the ceiling, are counted whoever stored the entry; leases on the same server count as entries.
    """

    def __init__(
        self,
        connection: Connection,
        space: KnobSpace,
        name: str = "redis",
        options: RedisServerOptions = RedisServerOptions(),
    ) -> None:
        if isinstance(connection, RedisCluster):
            raise InputError(f"tier {name}: got a cluster, expected one server or Sentinel; the index mode takes both")
        self.name, self._space, self._options = name, space, options
        self._redis: Any = connection  # its answers are bytes; their types say str too
        self._clearing = Clearing(connection, name, self._key(b""))
        self._memory = ServerMemory(connection, name, options.spare_bytes, options.samples, options.policy)
        self._counts: Counter[str] = Counter()
        self._known = within(space.default(), space)
        self._line, self._applied_seconds = b"", -math.inf  # of what is known
        self._begun, self._beginning = False, asyncio.Lock()
        self._settings_key = f"{options.prefix}:settings".encode()

    async def begin(self) -> None:
        """Takes the server over. All other methods do so first; to be called where a mistake in the set-up should show
        at the start. Raises InputError as `ServerMemory.begin`."""
        if self._begun:
            return
        async with self._beginning:
            if not self._begun:
                await self._memory.begin(self._space.cache_size.low)
                found = await self._read()
                taken = within(found, self._space)  # others, or we in an earlier life, may have had other limits
                if taken != found:
                    await self._write(taken, self._applied_seconds)
                await self._memory.aim(taken.cache_size)
                self._begun = True

    async def lookup(self, key: RequestKey, now_seconds: float) -> Found | None:
        return (await self.batch_lookup([key], now_seconds))[0]

    async def holds(self, key: RequestKey, now_seconds: float) -> bool:
        """Whether it is there: also where it is too old under a lifetime that was shortened, since to read when it was
        written is to touch it."""
        await self.begin()
        async with reached(self.name):
            return bool(await self._redis.exists(self._key(key.id)))

    async def batch_lookup(self, keys: Sequence[RequestKey], now_seconds: float) -> list[Found | None]:
        await self.begin()
        found: list[Found | None] = []
        for first in range(0, len(keys), AT_ONCE):
            names = [self._key(key.id) for key in keys[first : first + AT_ONCE]]
            async with reached(self.name):
                line, *entries = await self._redis.mget([self._settings_key, *names])
            await (self._read() if line is None else self._learn(line))
            found += [await self._judge(*pair, now_seconds) for pair in zip(names, entries, strict=True)]
        return found

    async def _judge(self, name: bytes, entry: bytes | None, now_seconds: float) -> Found | None:
        if entry is None:
            self._counts.update(misses=1)
            return None
        found = unpacked(entry)
        if found is None:  # of another form; it goes as all go that nobody asks for
            self._counts.update(misses=1)
            return None
        if found.answer.outlived(self._known.ttl_seconds, now_seconds):
            head = entry[: len(entry) - found.answer.size_bytes]
            async with reached(self.name):
                gone = await evaluated(self._redis, _REMOVE, 1, name, head)
            self._counts.update(misses=1, expirations=int(gone or 0))
            return None
        self._counts.update(hits=1, hit_bytes=found.answer.size_bytes)
        return found

    async def store(self, key: RequestKey, answer: Answer, now_seconds: float) -> bool:
        await self.begin()
        if answer.outlived(self._known.ttl_seconds, now_seconds):
            return False
        name = self._key(key.id)
        needed = ALLOCATED * (answer.size_bytes + label_bytes(key)) + self._options.entry_overhead_bytes
        async with reached(self.name):
            if needed <= self._memory.bound_bytes - self._memory.empty_bytes:
                try:
                    await self._redis.set(name, packed(key, answer), px=self._left_milliseconds(answer, now_seconds))
                    return True
                except OutOfMemoryError:  # buffers of connections take it all just now
                    self._counts.update(refusals=1)
            else:
                self._counts.update(refusals=1)
            await self._redis.unlink(name)
        return False

    async def warm(self, key: RequestKey, answer: Answer, now_seconds: float) -> bool:
        taken = await self.store(key, answer, now_seconds)
        self._counts.update(warmups=int(taken))
        return taken

    async def delete(self, key: RequestKey) -> bool:
        await self.begin()
        self._counts.update(deletes=1)
        async with reached(self.name):
            return bool(await self._redis.unlink(self._key(key.id)))

    async def clear(self, selection: Selection) -> int:
        """As the seam says. By model or tag each entry of the partition is read, which a server before Redis 7.2 takes
        for a touch; the same goes for `count`."""
        await self.begin()
        gone = 0
        async for step in self._clearing.steps(selection, remove=True):
            self._counts.update(deletes=step)  # at once: what comes after may fail
            gone += step
        return gone

    async def count(self, selection: Selection) -> int:
        await self.begin()
        return sum([step async for step in self._clearing.steps(selection, remove=False)])

    async def apply(self, settings: KnobSettings, now_seconds: float) -> KnobSettings:
        await self.begin()
        taken = within(settings, self._space)
        await self._read()
        await self._write(taken, max(now_seconds, self._applied_seconds))
        await self._memory.aim(taken.cache_size)
        return taken

    async def settings(self) -> KnobSettings:
        await self.begin()
        found = await self._read()
        if await self._memory.read() == math.inf:  # it was restarted
            await self._memory.aim(found.cache_size)
        return replace(found, cache_size=self._memory.bound_bytes)

    async def tend(self, now_seconds: float) -> bool:
        await self.begin()
        found = await self._read()
        return await self._memory.step(found.cache_size, self._options.share_removed)

    async def stats(self) -> CacheStats:
        await self.begin()
        await self._read()  # so that one of the keys is the settings
        now = await self._memory.usage()
        counts = self._counts + Counter(evictions=now.evicted, expirations=now.expired)
        return CacheStats(**counts, entries=now.keys - 1, used_bytes=now.used_bytes)

    async def close(self) -> None:
        await self._redis.aclose()

    def _key(self, name: bytes) -> bytes:
        return b"%b:entry:%b" % (self._options.prefix.encode(), name)

    def _left_milliseconds(self, answer: Answer, now_seconds: float) -> int:
        """Until it is too old under any lifetime that may be set: a longer one lets live on what is there. Rounded up:
        by the caller's clock it is gone no later."""
        ceiling = self._space.ttl_seconds.high
        most = ceiling if answer.ttl_seconds is None else min(answer.ttl_seconds, ceiling)
        return max(math.ceil(1000 * (most - (now_seconds - answer.written_seconds))), 1)

    async def _read(self) -> KnobSettings:
        """What was applied last, by whichever process; where the server has it no more, what we knew last."""
        async with reached(self.name):
            line = await self._redis.get(self._settings_key)
            if line is None:  # it was restarted, or turned over within the second in which all touches are the same
                ours = _line_of(self._known, self._applied_seconds)
                await self._redis.set(self._settings_key, ours, nx=True)
                line = await self._redis.get(self._settings_key) or ours
        return await self._learn(line)

    async def _write(self, settings: KnobSettings, applied_seconds: float) -> None:
        line = _line_of(settings, applied_seconds)
        async with reached(self.name):
            await self._redis.set(self._settings_key, line)
        await self._learn(line)

    async def _learn(self, line: bytes) -> KnobSettings:
        """Settings older than ours were set again by a process that had not seen ours; then ours are."""
        if line == self._line:
            return self._known
        try:
            *found, applied = orjson.loads(line)
            known, applied_seconds = KnobSettings(*found), -math.inf if applied is None else float(applied)
        except (ValueError, TypeError, InputError) as error:
            raise TierError(f"tier {self.name}: got settings {line[:80]!r}, expected ours") from error
        if applied_seconds < self._applied_seconds:
            await self._write(self._known, self._applied_seconds)
        else:
            self._known, self._applied_seconds, self._line = known, applied_seconds, line
        return self._known


def _line_of(settings: KnobSettings, applied_seconds: float) -> bytes:
    """When it was applied is null for defaults that nobody has applied."""
    return orjson.dumps([settings.cache_size, settings.ttl_seconds, settings.warmup_ratio, applied_seconds])
