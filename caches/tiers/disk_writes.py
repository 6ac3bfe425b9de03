"""What the tier on disk changes in its database, each public function in one transaction, on the connection of the
thread that it runs in."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import orjson

from caches.keys.request_key import RequestKey
from caches.knobs import KnobSettings
from caches.tiers.disk_reads import Absence, checksum_of, held, latest_touch, looked_up
from caches.tiers.disk_touches import Touches
from caches.tiers.tier import Answer

SLACK_PAGES = 64  # that the file keeps free, beside a sixteenth of it, so that it need not grow and shrink by turns


class Kept(NamedTuple):
    """taken: None where it was too old already."""

    taken: bool | None
    evicted: int = 0


class Tended(NamedTuple):
    more: bool
    expired: int
    evicted: int


def keep(
    database: sqlite3.Connection, key: RequestKey, answer: Answer, size: int, now: float, touches: Touches
) -> Kept:
    """Over the one that is there."""
    with _writing(database):
        settings = held(database).settings
        if answer.outlived(settings.ttl_seconds, now):
            return Kept(None)
        database.execute("DELETE FROM entry WHERE id = ?", (key.id,))
        if size > settings.cache_size:
            return Kept(False)
        touches.begin_after(latest_touch(database))  # of a process whose clock is ahead of ours
        _insert(database, key, answer, size, touches.next(now))
        return Kept(True, _evict(database, int(settings.cache_size), sys.maxsize, touches))


def remove(database: sqlite3.Connection, names: Sequence[bytes]) -> int:
    """Returns how many were there."""
    with _writing(database):
        return database.executemany("DELETE FROM entry WHERE id = ?", [(name,) for name in names]).rowcount


def remove_useless(database: sqlite3.Connection, names: Sequence[bytes], now: float) -> int:
    """Those that are too old or altered still; returns how many were too old."""
    with _writing(database):
        found = [(name, looked_up(database, name, now)) for name in dict.fromkeys(names)]
        gone = [(name,) for name, one in found if one in (Absence.TOO_OLD, Absence.ALTERED)]
        database.executemany("DELETE FROM entry WHERE id = ?", gone)
    return sum(one is Absence.TOO_OLD for _, one in found)


def aim(database: sqlite3.Connection, settings: KnobSettings) -> None:
    """A capacity smaller than what is there binds only when `tend` has made room."""
    with _writing(database):
        now = held(database)
        wanted = int(settings.cache_size)
        binding = max(wanted, min(int(now.settings.cache_size), now.used_bytes))
        database.execute(
            "UPDATE state SET capacity = ?, aim = ?, ttl = ?, warmup = ?",
            (binding, wanted, settings.ttl_seconds, settings.warmup_ratio),
        )


def keep_within(database: sqlite3.Connection, limit: Callable[[KnobSettings], KnobSettings]) -> None:
    """Aims at the limited settings where those aimed at now are outside."""
    size, ttl, warmup = database.execute("SELECT aim, ttl, warmup FROM state").fetchone()
    wanted = KnobSettings(float(size), ttl, warmup)
    if limit(wanted) != wanted:
        aim(database, limit(wanted))


def tend(database: sqlite3.Connection, now: float, most: int, touches: Touches) -> Tended:
    """Writes touches, removes what is too old, and goes on towards the aim: at most so many entries."""
    noted = touches.all_noted()
    with _writing(database):
        _write_touches(database, noted)
        expired = _expire(database, now, most)
        (wanted,) = database.execute("SELECT aim FROM state").fetchone()
        evicted = _evict(database, wanted, most - expired, touches)
        database.execute("UPDATE state SET capacity = max(aim, used)")
        more = expired + evicted == most and (expired > 0 or held(database).used_bytes > wanted)
    touches.written(noted)
    return Tended(more, expired, evicted)


def write_touches(database: sqlite3.Connection, touches: Touches) -> None:
    noted = touches.all_noted()
    with _writing(database):
        _write_touches(database, noted)
    touches.written(noted)


def give_back(database: sqlite3.Connection, most_pages: int) -> bool:
    """Moves what is at the end of the file into free pages and cuts it, at most so many pages; and writes the log back
    into the file, as far as no other process reads it. Returns whether there is more to cut."""
    (free,), (pages,) = (database.execute(f"PRAGMA {name}").fetchone() for name in ("freelist_count", "page_count"))
    spare = free - SLACK_PAGES - pages // 16
    if spare > 0:
        database.executescript(f"PRAGMA incremental_vacuum({min(spare, most_pages)})")  # `execute` stops after a page
    database.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
    return bool(spare > most_pages)


@contextmanager
def _writing(database: sqlite3.Connection) -> Iterator[None]:
    """A transaction that waits for those of other processes before it reads."""
    database.execute("BEGIN IMMEDIATE")
    with database:
        yield


def _insert(database: sqlite3.Connection, key: RequestKey, answer: Answer, size: int, touch: int) -> None:
    tags = orjson.dumps(sorted(key.tags))
    row = (
        *(key.id, key.model, tags, size, answer.written_seconds, answer.ttl_seconds, touch),
        *(answer.prompt_tokens, answer.output_tokens, answer.compute_seconds, checksum_of(key.id, answer.body, tags)),
    )
    names = "id, model, tags, size, written, own, touch, prompt, output, compute, checksum"
    number = database.execute(f"INSERT INTO entry ({names}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row).lastrowid
    database.execute("INSERT INTO body (number, bytes) VALUES (?, ?)", (number, answer.body))


def _evict(database: sqlite3.Connection, limit: int, most: int, touches: Touches) -> int:
    """The least recently touched, until what is left fits. An entry whose touch the file does not know yet gets it
    written when its turn would have come."""
    gone = 0
    while gone < most and held(database).used_bytes > limit:
        row = database.execute("SELECT number, id, touch FROM entry ORDER BY touch LIMIT 1").fetchone()
        if row is None:
            raise sqlite3.DatabaseError("its totals are not those of its entries")
        number, name, touch = row
        later = touches.noted(name)
        if later is not None and later > touch:
            _write_touches(database, {name: later})
        else:
            database.execute("DELETE FROM entry WHERE number = ?", (number,))
            gone += 1
    return gone


def _expire(database: sqlite3.Connection, now: float, most: int) -> int:
    by_ttl = "written <= ? - (SELECT ttl FROM state)"
    by_own = "own IS NOT NULL AND written + own <= ?"
    gone = 0
    for too_old in (by_ttl, by_own):
        query = f"DELETE FROM entry WHERE number IN (SELECT number FROM entry WHERE {too_old} LIMIT ?)"
        gone += database.execute(query, (now, most - gone)).rowcount
    return gone


def _write_touches(database: sqlite3.Connection, numbers: dict[bytes, int]) -> None:
    rows = [(number, name, number) for name, number in numbers.items()]
    database.executemany("UPDATE entry SET touch = ? WHERE id = ? AND touch < ?", rows)
