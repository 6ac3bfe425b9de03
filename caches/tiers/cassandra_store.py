"""What the tier in Cassandra reads and writes there, call by call."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Coroutine, Iterable
from typing import Any

from caches.errors import InputError
from caches.keys.request_key import Partition, RequestKey
from caches.knobs import KnobSettings
from caches.tiers import cassandra_tables as cql
from caches.tiers.cassandra_connection import CassandraConnection, Row
from caches.tiers.cassandra_rows import LATE_SECONDS, Entry
from caches.tiers.cassandra_touches import Place, Touch
from caches.tiers.tier import TierError

PAGE = 1_000  # rows in one read, which are worked through without a pause
AT_ONCE = 32  # statements on their way


class CassandraStore:
    """cache: the name that all its rows are under; several can share a keyspace. slices: of the bookkeeping."""

    def __init__(self, connection: CassandraConnection, cache: str, slices: int) -> None:
        self._connection, self._cache, self._slices = connection, cache, slices

    async def begin(self, settings: KnobSettings, ceiling_seconds: float) -> None:
        """Makes the tables that are not there, and the settings, unless there are some.

        Raises InputError where the tables cannot be made, and for another number of slices than the cache has.
        """
        await self._connection.open()
        there = {name for (name,) in await self._connection.run(cql.TABLES_THERE, self._connection.keyspace)}
        for name, statement in cql.tables(ceiling_seconds).items():
            if name not in there:
                await self._connection.change_schema(statement)
        await self.settings(settings)

    async def settings(self, at_first: KnobSettings) -> KnobSettings:
        """What is aimed at: what was applied last, by whichever process. at_first: for a cache that has none, because
        it is new or somebody emptied the tables.

        Raises InputError for another number of slices than the cache has.
        """
        rows = await self._connection.run(cql.READ_SETTINGS, self._cache)
        if not rows:  # of several processes that find none one sets them
            await self._connection.run(cql.BEGIN_SETTINGS, self._cache, self._slices, *_columns(at_first))
            rows = await self._connection.run(cql.READ_SETTINGS, self._cache)
        if not rows:
            raise TierError(f"cassandra: cache {self._cache}: its settings are gone as soon as they are written")
        slices, capacity, ttl, warmup = rows[0]
        if slices != self._slices:
            raise InputError(f"slices: got {self._slices}, expected {slices}, as the cache {self._cache!r} began with")
        return KnobSettings(float(capacity), ttl, warmup)

    async def apply(self, settings: KnobSettings) -> None:
        ((applied, *_),) = await self._connection.run(
            cql.APPLY_SETTINGS, *_columns(settings), self._cache, self._slices
        )
        if not applied:
            await self.settings(settings)

    async def answer(self, key: RequestKey) -> tuple[str, bytes, int] | None:
        """What is told of it, the body, and the stamp of the write."""
        rows = await self._connection.run(cql.READ_ANSWER, self._cache, *place_of(key))
        return (rows[0][0], rows[0][1], rows[0][2]) if rows else None

    async def about(self, key: RequestKey) -> str | None:
        rows = await self._connection.run(cql.READ_ABOUT, self._cache, *place_of(key))
        return rows[0][0] if rows else None

    async def size(self, key: RequestKey) -> int | None:
        """What is counted for it; None where it is not there."""
        place = place_of(key)
        rows = await self._connection.run(cql.READ_SIZE, self._cache, self.slice_of(place), *place)
        return rows[0][0] if rows else None

    async def keep(self, key: RequestKey, about: str, body: bytes, size: int, touched: int, left_seconds: int) -> None:
        """The entry first, with a longer lifetime: an answer that is not in the books could not be invalidated."""
        place, stamp = place_of(key), self._connection.stamp()
        entry = (self._cache, self.slice_of(place), *place, about, size, touched)
        await self._connection.run(cql.KEEP_ENTRY, *entry, left_seconds + LATE_SECONDS, stamp)
        await self._connection.run(cql.KEEP_ANSWER, self._cache, *place, about, body, left_seconds, stamp)

    async def remove(self, place: Place, answer_stamp: int, entry_stamp: int) -> None:
        """What was written until these stamps; the answer first, so that it is in the books while it is there."""
        await self._connection.run(cql.REMOVE_ANSWER, answer_stamp, self._cache, *place)
        await self._connection.run(cql.REMOVE_ENTRY, entry_stamp, self._cache, self.slice_of(place), *place)

    async def remove_now(self, place: Place) -> None:
        """Whatever was written until now."""
        stamp = self._connection.stamp()
        await self.remove(place, stamp, stamp)

    async def remove_all(self, entries: Iterable[Entry]) -> None:
        await _together(self.remove(one.place, one.stored_stamp or 0, one.stamp) for one in entries)

    async def touch(self, touches: dict[Place, Touch]) -> None:
        await _together(
            self._connection.run(
                cql.TOUCH_ENTRY, touch.left_seconds, touch.number, self._cache, self.slice_of(place), *place
            )
            for place, touch in touches.items()
        )

    async def entries(self, number: int) -> AsyncIterator[list[Entry]]:
        """Of a slice, page by page."""
        after: Place | None = "", "", b""
        while after is not None:
            rows = await self._connection.run(cql.READ_SLICE, self._cache, number, *after, PAGE)
            page = [Entry(*row) for row in rows]
            after = page[-1].place if len(page) == PAGE else None
            yield page

    async def entries_of(self, partition: Partition) -> AsyncIterator[list[Entry]]:
        """Slice by slice, page by page."""
        place = partition.tenant, partition.namespace
        for number in range(self._slices):
            after: bytes | None = b""
            while after is not None:
                rows = await self._connection.run(cql.READ_PARTITION, self._cache, number, *place, after, PAGE)
                page = [Entry(*row) for row in rows]
                after = page[-1].name if len(page) == PAGE else None
                yield page

    async def sums(self) -> list[Row]:
        """Slice, entries, bytes and time of every sweep that is known."""
        return await self._connection.run(cql.READ_SUMS, self._cache)

    async def keep_sum(self, number: int, entries: int, used_bytes: int, now_seconds: float) -> None:
        await self._connection.run(cql.KEEP_SUM, self._cache, number, entries, used_bytes, now_seconds)

    def slice_of(self, place: Place) -> int:
        tenant, namespace, name = place
        name = RequestKey(Partition(tenant, namespace), name, name).id
        return int.from_bytes(hashlib.blake2b(name, digest_size=8).digest()) % self._slices

    async def close(self) -> None:
        await self._connection.close()


def place_of(key: RequestKey) -> Place:
    return key.partition.tenant, key.partition.namespace, key.fingerprint


def _columns(settings: KnobSettings) -> tuple[int, float, float]:
    return int(settings.cache_size), settings.ttl_seconds, settings.warmup_ratio


async def _together(calls: Iterable[Coroutine[Any, Any, object]]) -> None:
    """A few at a time."""
    waiting = list(calls)
    for first in range(0, len(waiting), AT_ONCE):
        await asyncio.gather(*waiting[first : first + AT_ONCE])
