"""The file of the tier on disk: an SQLite database that appears whole or not at all and says in its header whose it is.

SQLite's write-ahead log gives what the tier needs: readers never wait for a writer or for the disk, a process that dies
leaves the last complete transaction, and several processes can share the file, on one machine and not over a network
file system. `-wal` and `-shm` beside the file are parts of it while it is open, and after a process died; `.lock` is
empty, and lets one process at a time make the file.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from filelock import FileLock

from caches.errors import InputError, SetpointError
from caches.files import written_whole
from caches.knobs import KnobSettings
from caches.sqlite_header import version_in

APPLICATION = int.from_bytes(b"Stpt")  # SQLite's place in the header for whose file it is
VERSION = 1
UNTENDED_PAGES = 16_000  # the log is written back by `tend`; where nobody tends, a commit does it at this length
MAKING_SECONDS = 30.0  # that another process may take
LOG_KEPT_BYTES = 1 << 24  # of the log's file, once it was written back

# `state` is one row: the capacity that binds and the one aimed at, and the totals of what is there, kept by triggers so
# that no way of adding or removing entries can miss them. A body lies apart, so that a touch does not move it.
SCHEMA = """
CREATE TABLE state (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  capacity INTEGER NOT NULL, aim INTEGER NOT NULL, ttl REAL NOT NULL, warmup REAL NOT NULL,
  entries INTEGER NOT NULL DEFAULT 0, used INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE entry (
  number INTEGER PRIMARY KEY, id BLOB NOT NULL UNIQUE, model TEXT NOT NULL, tags BLOB NOT NULL,
  size INTEGER NOT NULL, written REAL NOT NULL, own REAL, touch INTEGER NOT NULL,
  prompt INTEGER NOT NULL, output INTEGER NOT NULL, compute REAL NOT NULL, checksum INTEGER NOT NULL
);
CREATE TABLE body (number INTEGER PRIMARY KEY, bytes BLOB NOT NULL);
CREATE INDEX by_touch ON entry (touch);
CREATE INDEX by_write ON entry (written);
CREATE INDEX by_own_end ON entry (written + own) WHERE own IS NOT NULL;
CREATE TRIGGER came AFTER INSERT ON entry BEGIN
  UPDATE state SET entries = entries + 1, used = used + new.size;
END;
CREATE TRIGGER went AFTER DELETE ON entry BEGIN
  DELETE FROM body WHERE number = old.number;
  UPDATE state SET entries = entries - 1, used = used - old.size;
END;
"""


def recognised(path: Path) -> bool:
    """Whether a cache of this version is there; False where nothing is. Only reads.

    Raises InputError for any other file, so that it is never written to.
    """
    version = version_in(path, APPLICATION, "expected a cache of Setpoint or a name that is free")
    if version is None:
        return False
    if version != VERSION:
        raise InputError(f"{path}: got version {version} of the format, expected {VERSION}; remove it to begin anew")
    return True


def found_or_made(path: Path, settings: KnobSettings) -> None:
    """The cache that is there, or an empty one with these settings. Of several processes that begin together one makes
    it. Makes the folder.

    Raises InputError as `recognised`, SetpointError where it cannot be made.
    """
    if recognised(path):
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_name(f"{path.name}.lock"), timeout=MAKING_SECONDS):
            if not recognised(path):
                _make(path, settings)
    except (sqlite3.DatabaseError, OSError) as error:
        raise SetpointError(f"{path}: cannot be made: {error}") from error


def opened(path: Path, busy_seconds: float) -> sqlite3.Connection:
    """A connection in autocommit mode to a file that is there. It waits so long for other processes that write.

    Raises sqlite3.DatabaseError.
    """
    database = sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", busy_seconds, isolation_level=None, uri=True)
    try:
        database.executescript(f"""
            PRAGMA synchronous = NORMAL;
            PRAGMA wal_autocheckpoint = {UNTENDED_PAGES};
            PRAGMA journal_size_limit = {LOG_KEPT_BYTES};
            PRAGMA secure_delete = FAST;
            PRAGMA cell_size_check = ON;
        """)
    except BaseException:
        database.close()
        raise
    return database


def _make(path: Path, settings: KnobSettings) -> None:
    """What an earlier file has left beside it, or a process that died while it made one, must not become part of it."""
    _remove(path, "-wal", "-shm")
    with written_whole(path) as partial:
        _remove(partial, "", "-wal", "-shm")
        partial.touch(0o600)  # for its owner: it holds what was answered
        _fill(partial, settings)
        with partial.open("rb+") as file:
            os.fsync(file.fileno())


def _remove(path: Path, *ends: str) -> None:
    for end in ends:
        path.with_name(path.name + end).unlink(missing_ok=True)


def _fill(path: Path, settings: KnobSettings) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.executescript(f"""
            PRAGMA synchronous = OFF;
            PRAGMA auto_vacuum = INCREMENTAL;
            PRAGMA journal_mode = WAL;
            BEGIN;
            PRAGMA application_id = {APPLICATION};
            PRAGMA user_version = {VERSION};
            {SCHEMA}
            COMMIT;
        """)
        size = int(settings.cache_size)
        database.execute(
            "INSERT INTO state (one, capacity, aim, ttl, warmup) VALUES (1, ?, ?, ?, ?)",
            (size, size, settings.ttl_seconds, settings.warmup_ratio),
        )
