"""The key stream as the access log's Redis stream has it (traces/access/stream_log.py)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from math import nan
from typing import Any

from caches.target import Arm
from caches.tiers.redis_connection import connect, reached
from caches.tiers.tier import TierError
from envs.journal import Batch
from traces.access.stream_log import NAME, StreamPlace
from tuner.keys.stream import ID_BYTES, LARGEST, KeysUnavailable, Pending, Taken, batch_of

PAGE = 5_000  # entries asked for at once
AHEAD_SECONDS = 60.0  # how much later than what is asked for to read: an entry is written when its answer is complete
PATIENCE_SECONDS = 5.0
BEGINNING = "0-0"
TREATMENT = Arm.TREATMENT.encode()


class RedisKeys:
    """A `KeyStream`. since_seconds: Unix time; what was written before then is left out. What the stream has let go of
    before it was read is said in notes. `close` it in the end."""

    delay_seconds = 0.0

    def __init__(self, place: StreamPlace, since_seconds: float, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self._stream, self._pending = place.stream, Pending()
        self._behind = f"{int(since_seconds * 1000)}-0"  # the entry that was read last, or where to begin
        self._added: int | None = None  # to the stream when that was read; None until its end was reached
        self._is_short = False  # of which it was said that it does not reach back
        self._connection: Any = connect(place.url, patience_seconds)
        self._loop = asyncio.Runner()

    def take(self, until_seconds: float) -> Taken:
        try:
            notes = self._loop.run(self._read(int((until_seconds + AHEAD_SECONDS) * 1000)))
        except TierError as error:
            raise KeysUnavailable(str(error)) from error
        return self._pending.take(until_seconds, notes)

    def close(self) -> None:
        try:
            self._loop.run(self._connection.aclose())
        finally:
            self._loop.close()

    async def _read(self, until_ms: int) -> tuple[str, ...]:
        """Entries behind the one that was read last, into what is pending; returns notes."""
        async with reached(NAME):
            there = await self._connection.exists(self._stream)
            about = await self._connection.xinfo_stream(self._stream) if there else {}
        last, added = _text(about.get("last-generated-id", BEGINNING)), about.get("entries-added")
        notes = self._begun(last, about)
        end, strange = min(last, f"{until_ms}-0", key=_order), 0
        while page := await self._page(end):
            batch, unread = requests_of(fields for _, fields in page)
            self._pending.add(batch)
            self._behind, strange = _text(page[-1][0]), strange + unread
            self._added = None if self._added is None else self._added + len(page)
        if strange:
            notes += (f"{strange:,} entries of the key stream are none of an access log.",)
        return notes if added is None or end != last else notes + self._ended(last, int(added))

    async def _page(self, end: str) -> Any:
        async with reached(NAME):
            return await self._connection.xrange(self._stream, f"({self._behind}", end, PAGE)

    def _begun(self, last: str, about: dict[str, Any]) -> tuple[str, ...]:
        """Whether the stream is the one that was read before, and reaches back to where it was to be read from."""
        added = int(about.get("entries-added", 0))
        if self._added is not None:
            if _order(last) >= _order(self._behind) and added >= self._added:
                return ()
            self._behind, self._added = BEGINNING, 0
            return ("The key stream begins anew: it ends before what was read of it.",) if about else ()
        first = about.get("first-entry")
        if self._is_short or first is None or added <= int(about["length"]):
            return ()
        self._is_short = _order(_text(first[0])) > _order(self._behind)
        return ("The key stream does not reach back to where it was to be read from.",) if self._is_short else ()

    def _ended(self, last: str, added: int) -> tuple[str, ...]:
        """All that is there was read: what was added and is not there was lost."""
        lost = 0 if self._added is None else added - self._added
        self._behind, self._added = last, added
        return (f"{lost:,} requests are missing: the key stream let go of them before they were read.",) if lost else ()


def requests_of(entries: Iterable[dict[bytes, bytes]]) -> tuple[Batch, int]:
    """The requests of entries that a cache could have answered; and how many entries are not of an access log."""
    rows, strange = [], 0
    for fields in entries:
        try:
            row = _row(fields)
        except (KeyError, ValueError):  # said in a note; one bad entry is no reason to see nothing
            strange += 1
            continue
        if row is not None:
            rows.append(row)
    ids, times, sizes, ttls, prompts, outputs, arms = zip(*rows, strict=True) if rows else ((),) * 7
    return batch_of(ids, times, sizes, ttls, (prompts, outputs), arms), strange


def _row(fields: dict[bytes, bytes]) -> tuple[int, float, int, float, int, int, bool] | None:
    """None for a request past the cache, or without an answer."""
    time, key, size = float(fields[b"time"]), fields.get(b"key"), fields.get(b"size")
    if key is None or size is None:
        return None
    ttl = fields.get(b"ttl")
    return (
        int(key[: 2 * ID_BYTES], 16),
        time,
        min(int(size), LARGEST),
        nan if ttl is None else float(ttl),
        min(int(fields.get(b"prompt_tokens", b"0")), LARGEST),
        min(int(fields.get(b"output_tokens", b"0")), LARGEST),
        fields.get(b"arm") == TREATMENT,
    )


def _order(name: str) -> tuple[int, int]:
    """Entries' ids by time and number."""
    milliseconds, _, number = name.partition("-")
    return int(milliseconds), int(number or 0)


def _text(name: bytes | str) -> str:
    return name.decode() if isinstance(name, bytes) else name
