"""A shared tier in Cassandra, for who runs one already: a byte budget kept by bookkeeping rows, without counters."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from caches.errors import InputError
from caches.keys.request_key import RequestKey
from caches.knobs import KnobSettings, KnobSpace
from caches.stats import CacheStats
from caches.tiers.cassandra_books import CassandraBooks, CassandraOptions
from caches.tiers.cassandra_connection import CassandraConnection
from caches.tiers.cassandra_rows import Entry, about_of, left_seconds, told
from caches.tiers.cassandra_store import AT_ONCE, CassandraStore, place_of
from caches.tiers.limits import within
from caches.tiers.selection import Selection, label_bytes
from caches.tiers.tier import Answer, Found, TierError


class CassandraTier:
    """Settings lie in the database: whoever applies them applies them for all, and other processes follow with their
    next `tend`. Clocks of the processes have to agree, as for Cassandra itself.

    What differs from the seam, because nothing in Cassandra counts exactly and nothing evicts:

    - Capacity. Each slice of the bookkeeping has an equal share. A process knows what a slice held when it was last
      swept, by whichever process, and what it has stored itself since; before that is more than the share it sweeps. So
      alone it keeps the promise, but for the moment in which it does so. P processes together may exceed the capacity
      by (P - 1) times the sum of spare_share of it and what one of them stores from one `tend` to the next. An answer
      larger than a share or than largest_body_bytes is refused. What lies on the database's disks is more:
      docs/live-cache.md.
    - Order. Least recently touched within a slice. Touches of other processes count from when those have written them,
      touch_seconds later or with the next `tend` after that.
    - `stats` and `settings` say what this process knows: not what others stored since the last sweep, nor what the
      database let go since, and of slices that nobody has swept yet only what it stored itself. The first calls of
      `tend` sweep those.
    - A store that failed may leave its entry in the books, without an answer: it counts until it goes as others do.
    """

    def __init__(
        self,
        connection: CassandraConnection,
        space: KnobSpace,
        name: str = "cassandra",
        options: CassandraOptions = CassandraOptions(),
    ) -> None:
        self.name, self._space, self._options = name, space, options
        self._counts: Counter[str] = Counter()
        self._store = CassandraStore(connection, options.cache, options.slices)
        self._books = CassandraBooks(self._store, self._shared_out(space.default()), options, self._counts)
        self._now = float("-inf")
        self._begun, self._beginning = False, asyncio.Lock()

    async def begin(self) -> None:
        """Connects, and makes tables and settings that are not there. All other methods do so first; to be called where
        a mistake in the set-up should show at the start.

        Raises InputError for a keyspace or tables that we cannot use, and for another number of slices than the cache
        began with. From the other methods that is a TierError: a database that was away at the start may turn out to be
        set up wrongly, and whoever asks goes on without it.
        """
        if self._begun:
            return
        async with self._beginning:
            if not self._begun:
                await self._store.begin(self._books.aim, self._space.ttl_seconds.high)
                await self._books.learn()
                limited = self._shared_out(self._books.aim)
                if limited != self._books.aim:  # others, or we in an earlier life, may have had other limits
                    await self._store.apply(limited)
                    self._books.take(limited)
                self._begun = True

    async def lookup(self, key: RequestKey, now_seconds: float) -> Found | None:
        await self._ready()
        now, row = self._clock(now_seconds), await self._store.answer(key)
        about = None if row is None else told(row[0])
        if row is None or about is None:
            self._counts.update(misses=1)
            return None
        found, place = about.found(row[1]), place_of(key)
        if found.answer.outlived(self._books.aim.ttl_seconds, now):
            await self._store.remove(place, row[2], row[2])
            self._books.change(
                place, -1, -self.entry_bytes(replace(key, model=about.model, tags=about.tags), found.answer)
            )
            self._counts.update(misses=1, expirations=1)
            return None
        self._books.touches.note(place, self._left_seconds(found.answer, now), now)
        self._counts.update(hits=1, hit_bytes=found.answer.size_bytes)
        return found

    async def batch_lookup(self, keys: Sequence[RequestKey], now_seconds: float) -> list[Found | None]:
        found: list[Found | None] = []
        for first in range(0, len(keys), AT_ONCE):
            found += await asyncio.gather(*(self.lookup(key, now_seconds) for key in keys[first : first + AT_ONCE]))
        return found

    async def holds(self, key: RequestKey, now_seconds: float) -> bool:
        await self._ready()
        about = await self._store.about(key)
        known = None if about is None else told(about)
        return known is not None and not known.answer.outlived(self._books.aim.ttl_seconds, self._clock(now_seconds))

    async def store(self, key: RequestKey, answer: Answer, now_seconds: float) -> bool:
        await self._ready()
        now, place = self._clock(now_seconds), place_of(key)
        if answer.outlived(self._books.aim.ttl_seconds, now):
            return False
        size, before = self.entry_bytes(key, answer), await self._store.size(key)
        if size > self._books.share_bytes or answer.size_bytes > self._options.largest_body_bytes:
            self._counts.update(refusals=1)
            if before is not None:
                await self._store.remove_now(place)
                self._books.change(place, -1, -before)
            return False
        left, touched = self._left_seconds(answer, now), self._books.touches.next(now)
        await self._store.keep(key, about_of(key, answer), answer.body, size, touched, left)
        self._books.change(place, int(before is None), size - (before or 0))
        await self._books.make_room(place, now)
        return True

    def entry_bytes(self, key: RequestKey, answer: Answer) -> int:
        """What an entry counts for."""
        return answer.size_bytes + label_bytes(key) + self._options.entry_overhead_bytes

    async def warm(self, key: RequestKey, answer: Answer, now_seconds: float) -> bool:
        taken = await self.store(key, answer, now_seconds)
        self._counts.update(warmups=int(taken))
        return taken

    async def delete(self, key: RequestKey) -> bool:
        await self._ready()
        self._counts.update(deletes=1)
        size = await self._store.size(key)
        await self._store.remove_now(place_of(key))  # in any case: another process may be storing it
        if size is not None:
            self._books.change(place_of(key), -1, -size)
        return size is not None

    async def clear(self, selection: Selection) -> int:
        await self._ready()
        gone = 0
        async for page in self._store.entries_of(selection.partition):
            taken = [entry for entry in page if _selects(selection, entry)]
            await self._store.remove_all(taken)
            self._counts.update(deletes=len(taken))  # at once: what comes after may fail
            for entry in taken:
                self._books.change(entry.place, -1, -(entry.size or 0))
            gone += len(taken)
        return gone

    async def count(self, selection: Selection) -> int:
        await self._ready()
        pages = self._store.entries_of(selection.partition)
        return sum([sum(_selects(selection, entry) for entry in page) async for page in pages])

    async def apply(self, settings: KnobSettings, now_seconds: float) -> KnobSettings:
        await self._ready()
        taken = self._shared_out(settings)
        await self._store.apply(taken)
        self._books.take(taken)
        return taken

    async def settings(self) -> KnobSettings:
        await self._ready()
        await self._books.learn()
        return self._books.binding()

    async def tend(self, now_seconds: float) -> bool:
        """As the seam says; and writes touches that have waited, and learns what others applied and found."""
        await self._ready()
        return await self._books.tend(self._clock(now_seconds))

    async def stats(self) -> CacheStats:
        await self._ready()
        held = self._books.slices.totals()
        return CacheStats(**self._counts, entries=held.entries, used_bytes=held.used_bytes)

    async def close(self) -> None:
        """Writes the last touches first, where the database was ever reached."""
        try:
            if self._begun:
                await self._books.write_touches(float("inf"))
        finally:
            await self._store.close()

    async def _ready(self) -> None:
        try:
            await self.begin()
        except InputError as error:
            raise TierError(str(error)) from error

    def _shared_out(self, settings: KnobSettings) -> KnobSettings:
        """Within the limits, with a capacity that all slices can have an equal part of."""
        taken, slices = within(settings, self._space), self._options.slices
        return replace(taken, cache_size=taken.cache_size // slices * slices)

    def _left_seconds(self, answer: Answer, now: float) -> int:
        return left_seconds(answer, now, self._space.ttl_seconds.high)

    def _clock(self, now_seconds: float) -> float:
        """Clocks of machines may be set back; an entry's age is not."""
        self._now = max(self._now, now_seconds)
        return self._now


def _selects(selection: Selection, entry: Entry) -> bool:
    """Of what is there: what is left of an entry that was removed is not. A row of another version goes along, since
    nobody knows its labels."""
    if entry.size is None:
        return False
    return selection.whole or entry.known is None or selection.takes(entry)
