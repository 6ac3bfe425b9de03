"""A tier in a file: what was stored is there after a restart, without a server. Several processes can share it."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from caches.keys.request_key import RequestKey
from caches.knobs import KnobSettings, KnobSpace
from caches.stats import CacheStats
from caches.tiers import disk_file, disk_reads, disk_writes
from caches.tiers.disk_reads import Absence
from caches.tiers.disk_touches import Touches
from caches.tiers.disk_worker import DiskWorker
from caches.tiers.limits import within
from caches.tiers.selection import Selection, label_bytes
from caches.tiers.tier import Answer, Found, TierError


@dataclass(frozen=True)
class DiskOptions:
    """entry_overhead_bytes: counted for each entry beside its body and labels (`label_bytes`). most_removed: entries in
    one call of `tend`. most_cut_pages: of 4,096 bytes, by which the file shrinks in one call of `tend`. busy_seconds:
    how long a call waits for another process that writes."""

    entry_overhead_bytes: int = 768
    most_removed: int = 1_000
    most_cut_pages: int = 2_000
    busy_seconds: float = 5.0


class DiskTier:
    """Two threads work on the file: lookups in one never wait for what the other writes, nor for the disk to have it.
    What was stored outlives the process at once, and a power cut once `tend` has run.

    Touches are kept in this process and written by `tend`. So the order in which entries leave is exact for the touches
    of this process; those of other processes count from when they have written them. Settings lie in the file: whoever
    applies them applies them for all, and they are what a tier begins with, kept within its own limits.
    """

    def __init__(self, path: Path, space: KnobSpace, name: str = "disk", options: DiskOptions = DiskOptions()) -> None:
        """Makes the file and its folder where there is none.

        Raises InputError where another file is at the path, and SetpointError where it cannot be made. Whether the file
        is sound is seen when it is first used.
        """
        self.name, self._path, self._space, self._options = name, path, space, options
        self._applied = within(space.default(), space)  # for a file that has to be made anew
        self._now = float("-inf")
        self._counts: Counter[str] = Counter()
        self._touches = Touches()
        disk_file.found_or_made(path, self._applied)
        self._reader, self._writer = (DiskWorker(name, path, self._connect) for _ in range(2))

    async def lookup(self, key: RequestKey, now_seconds: float) -> Found | None:
        return (await self.batch_lookup([key], now_seconds))[0]

    async def batch_lookup(self, keys: Sequence[RequestKey], now_seconds: float) -> list[Found | None]:
        now, names = self._clock(now_seconds), [key.id for key in keys]
        found = await self._reader.run(disk_reads.look_up, names, now, self._touches)
        useless = [name for name, one in zip(names, found, strict=True) if one in (Absence.TOO_OLD, Absence.ALTERED)]
        if useless:
            expired = await self._writer.run(disk_writes.remove_useless, useless, now)
            self._counts.update(expirations=expired)
        if Absence.ALTERED in found:
            raise TierError(f"tier {self.name}: {self._path}: got an entry that is not as it was stored; it is removed")
        hits = [one if isinstance(one, Found) else None for one in found]
        sizes = [one.answer.size_bytes for one in hits if one is not None]
        self._counts.update(hits=len(sizes), misses=len(hits) - len(sizes), hit_bytes=sum(sizes))
        return hits

    async def holds(self, key: RequestKey, now_seconds: float) -> bool:
        return await self._reader.run(disk_reads.holds, key.id, self._clock(now_seconds))

    async def store(self, key: RequestKey, answer: Answer, now_seconds: float) -> bool:
        size = answer.size_bytes + label_bytes(key) + self._options.entry_overhead_bytes
        now = self._clock(now_seconds)
        kept = await self._writer.run(disk_writes.keep, key, answer, size, now, self._touches)
        self._counts.update(evictions=kept.evicted, refusals=int(kept.taken is False))
        return bool(kept.taken)

    async def warm(self, key: RequestKey, answer: Answer, now_seconds: float) -> bool:
        taken = await self.store(key, answer, now_seconds)
        self._counts.update(warmups=int(taken))
        return taken

    async def delete(self, key: RequestKey) -> bool:
        self._counts.update(deletes=1)
        return await self._writer.run(disk_writes.remove, [key.id]) > 0

    async def clear(self, selection: Selection) -> int:
        gone = 0
        async for names in self._selected(selection):
            removed = await self._writer.run(disk_writes.remove, names)
            self._counts.update(deletes=removed)
            gone += removed
        return gone

    async def count(self, selection: Selection) -> int:
        return sum([len(names) async for names in self._selected(selection)])

    async def apply(self, settings: KnobSettings, now_seconds: float) -> KnobSettings:
        taken = within(settings, self._space)
        await self._writer.run(disk_writes.aim, taken)
        self._applied = taken
        return taken

    async def settings(self) -> KnobSettings:
        return (await self._reader.run(disk_reads.held)).settings

    async def tend(self, now_seconds: float) -> bool:
        """As the seam says; and what entries have left of the file is given back to the file system. A file that was
        removed is let go of, and the next call begins a new one."""
        await asyncio.gather(self._reader.follow(), self._writer.follow())
        now, options = self._clock(now_seconds), self._options
        done = await self._writer.run(disk_writes.tend, now, options.most_removed, self._touches)
        self._counts.update(expirations=done.expired, evictions=done.evicted)
        more_to_cut = await self._writer.run(disk_writes.give_back, options.most_cut_pages)
        return done.more or more_to_cut

    async def stats(self) -> CacheStats:
        held = await self._reader.run(disk_reads.held)
        return CacheStats(**self._counts, entries=held.entries, used_bytes=held.used_bytes)

    async def close(self) -> None:
        """Writes the last touches first. Where that fails entries are as safe, and only their order is older."""
        with suppress(TierError):
            await self._writer.run(disk_writes.write_touches, self._touches)
        await self._reader.close()
        await self._writer.close()

    async def _selected(self, selection: Selection) -> AsyncIterator[list[bytes]]:
        """Ids of entries, in steps."""
        after: bytes | None = b""
        while after is not None:
            names, after = await self._reader.run(disk_reads.selected, selection, after, self._options.most_removed)
            yield names

    def _connect(self) -> sqlite3.Connection:
        disk_file.found_or_made(self._path, self._applied)
        database = disk_file.opened(self._path, self._options.busy_seconds)
        try:
            disk_writes.keep_within(database, lambda settings: within(settings, self._space))
            self._touches.begin_after(disk_reads.latest_touch(database))
        except BaseException:
            database.close()
            raise
        return database

    def _clock(self, now_seconds: float) -> float:
        """Clocks of machines may be set back; an entry's age is not."""
        self._now = max(self._now, now_seconds)
        return self._now
