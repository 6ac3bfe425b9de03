"""What the tier on disk reads in its database, on the connection of the thread that it runs in."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple
from zlib import crc32

import orjson

from caches.keys.request_key import Partition
from caches.knobs import KnobSettings
from caches.tiers.disk_touches import Touches
from caches.tiers.selection import Selection
from caches.tiers.tier import Answer, Found


class Absence(Enum):
    """Why a lookup found nothing."""

    NEVER = "not there"
    TOO_OLD = "too old"
    ALTERED = "not as it was stored"


class Held(NamedTuple):
    settings: KnobSettings
    entries: int
    used_bytes: int


class _Labels(NamedTuple):
    partition: Partition
    model: str
    tags: frozenset[str]


def look_up(
    database: sqlite3.Connection, names: Sequence[bytes], now: float, touches: Touches
) -> list[Found | Absence]:
    """Touches what it finds."""
    found = [looked_up(database, name, now) for name in names]
    for name, one in zip(names, found, strict=True):
        if isinstance(one, Found):
            touches.note(name, now)
    return found


def looked_up(database: sqlite3.Connection, name: bytes, now: float) -> Found | Absence:
    query = """
        SELECT bytes, written, own, prompt, output, compute, tags, checksum, ttl
        FROM entry JOIN body USING (number), state WHERE id = ?
    """
    row = database.execute(query, (name,)).fetchone()
    if row is None:
        return Absence.NEVER
    *parts, tags, checksum, ttl = row
    answer = Answer(*parts)
    if answer.outlived(ttl, now):
        return Absence.TOO_OLD
    if checksum_of(name, answer.body, tags) != checksum:
        return Absence.ALTERED
    return Found(answer, tags=frozenset(orjson.loads(tags)))


def holds(database: sqlite3.Connection, name: bytes, now: float) -> bool:
    query = "SELECT written, own, ttl FROM entry, state WHERE id = ?"
    row = database.execute(query, (name,)).fetchone()
    return row is not None and not Answer(b"", row[0], row[1]).outlived(row[2], now)


def held(database: sqlite3.Connection) -> Held:
    """What binds now, and the totals."""
    row = database.execute("SELECT capacity, ttl, warmup, entries, used FROM state").fetchone()
    if row is None:
        raise sqlite3.DatabaseError("its settings are gone")
    capacity, ttl, warmup, entries, used = row
    return Held(KnobSettings(float(capacity), ttl, warmup), entries, used)


def latest_touch(database: sqlite3.Connection) -> int:
    (number,) = database.execute("SELECT max(touch) FROM entry").fetchone()
    return 0 if number is None else int(number)


def selected(
    database: sqlite3.Connection, selection: Selection, after: bytes, most: int
) -> tuple[list[bytes], bytes | None]:
    """Those selected among the next entries of the partition, at most so many looked at; and after which to go on, None
    at the end."""
    start = selection.partition.prefix
    rows = database.execute(
        "SELECT id, model, tags FROM entry WHERE id > ? AND id < ? ORDER BY id LIMIT ?",
        (max(start, after), start[:-1] + b"\1", most),  # the prefix ends with a zero
    ).fetchall()
    names = [
        name
        for name, model, tags in rows
        if selection.whole or selection.takes(_Labels(selection.partition, model, frozenset(orjson.loads(tags))))
    ]
    return names, rows[-1][0] if len(rows) == most else None


def checksum_of(name: bytes, body: bytes, tags: bytes) -> int:
    """SQLite does not check what it reads; this finds a body that was altered, or is another entry's."""
    return crc32(tags, crc32(body, crc32(name)))
