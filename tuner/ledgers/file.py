"""The SQLite file of a ledger: it appears whole or not at all and says in its header whose it is.

Daemons and readers on one machine share it, not over a network file system. `-wal` and `-shm` beside it are parts of it
while it is open, and after a process died; `.lock` is empty, and lets one process at a time make the file.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from filelock import FileLock
from sqlalchemy import Connection, Engine, QueuePool, create_engine, event, exc

from caches.errors import InputError, SetpointError
from caches.files import written_whole
from caches.sqlite_header import version_in
from tuner.ledger import LedgerUnavailable
from tuner.ledgers.tables import compact

APPLICATION = int.from_bytes(b"StpL")  # SQLite's place in the header for whose file it is
BUSY_SECONDS = 5.0  # for another writer, which takes milliseconds
MAKING_SECONDS = 30.0  # that another process may take to make the file
LOG_KEPT_BYTES = 1 << 24
EXPECTED = "expected a ledger of Setpoint or a name that is free"


def recognised(path: Path) -> bool:
    """Whether a ledger is there; False where nothing is. Only reads.

    Raises InputError for any other file, so that it is never written to.
    """
    return version_in(path, APPLICATION, EXPECTED) is not None


def found_or_made(path: Path, fill: Callable[[Connection], None]) -> Engine:
    """The ledger that is there, or one that `fill` has filled. Of several processes that begin together one makes it.
    Makes the folder.

    Raises InputError as `recognised`, LedgerUnavailable where it cannot be made.
    """
    if recognised(path):
        return _engine(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_name(f"{path.name}.lock"), timeout=MAKING_SECONDS):
            if not recognised(path):
                _make(path, fill)
    except InputError:
        raise
    except (OSError, SetpointError, sqlite3.Error, exc.DBAPIError) as error:  # a lock that others keep: OSError
        raise LedgerUnavailable(f"{path}: cannot be made: {error}") from error
    return _engine(path)


def is_damage(error: BaseException | None) -> bool:
    """Whether SQLite says that the file is not as it wrote it."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK) & 0xFF  # without the details above that
    return code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _make(path: Path, fill: Callable[[Connection], None]) -> None:
    """What an earlier file has left beside it, or a process that died while it made one, must not become part of it."""
    _remove(path, "-wal", "-shm")
    with written_whole(path) as partial:
        _remove(partial, "", "-wal", "-shm")
        with closing(sqlite3.connect(partial, isolation_level=None)) as database:
            database.execute(f"PRAGMA application_id = {APPLICATION}")
            database.execute("PRAGMA journal_mode = WAL")
        engine = _engine(partial)
        try:
            with engine.begin() as connection:
                fill(connection)
        finally:
            engine.dispose()
        with partial.open("rb+") as file:
            os.fsync(file.fileno())


def _remove(path: Path, *ends: str) -> None:
    for end in ends:
        path.with_name(path.name + end).unlink(missing_ok=True)


def _engine(path: Path) -> Engine:
    engine = create_engine("sqlite://", creator=lambda: _connected(path), poolclass=QueuePool, json_serializer=compact)
    event.listen(engine, "begin", _begin)
    return engine


def _connected(path: Path) -> sqlite3.Connection:
    """Autocommit mode: transactions begin in `_begin`. Never makes a file. A commit has reached the disk when it
    returns."""
    place = f"{path.absolute().as_uri()}?mode=rw"
    database = sqlite3.connect(place, BUSY_SECONDS, isolation_level=None, uri=True, check_same_thread=False)
    try:
        database.executescript(f"""
            PRAGMA synchronous = FULL;
            PRAGMA foreign_keys = ON;
            PRAGMA cell_size_check = ON;
            PRAGMA journal_size_limit = {LOG_KEPT_BYTES};
        """)
    except BaseException:
        database.close()
        raise
    return database


def _begin(connection: Connection) -> None:
    """One that will write has the lock from the start: it never has to give up half-way for another."""
    writes = connection.get_execution_options().get("writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
