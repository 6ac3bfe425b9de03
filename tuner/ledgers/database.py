"""The database that a ledger lies in, SQLite or PostgreSQL: opened, brought to this version, read and written.

Each transaction that writes begins by counting up `ledger.revision`, which on PostgreSQL makes the others wait as they
do for SQLite's one writer. So what it reads stays true until it ends, and no two wait for each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import (
    DDL,
    URL,
    Column,
    Connection,
    Engine,
    MetaData,
    Table,
    Text,
    exc,
    insert,
    make_url,
    null,
    select,
    update,
)

from caches.errors import InputError
from tuner.ledger import LedgerUnavailable
from tuner.ledgers import file as ledger_file
from tuner.ledgers import server as ledger_server
from tuner.ledgers.tables import LEDGER, TABLES

FORMS = "expected sqlite:///FILE or postgresql://USER@HOST/DATABASE"

Step = Callable[[Connection], None]


def _second(connection: Connection) -> None:
    """Without `good`, a plan that was kept and never used; and an interval that is open has no counters, which were of
    fewer kinds. A DDL of a table finds its schema."""
    states = Table("states", MetaData(), Column("opened", Text))
    drop = DDL("ALTER TABLE %(fullname)s DROP COLUMN good")  # type: ignore[no-untyped-call]
    connection.execute(drop.against(states))
    connection.execute(update(states).values(opened=null()))


def _third(connection: Connection) -> None:
    """With the eviction policy beside the knobs: none was named before."""
    columns = {"intervals": ("",), "decisions": ("proposed_", "limited_", "applied_")}
    for name, prefixes in columns.items():
        for prefix in prefixes:
            add = DDL(f"ALTER TABLE %(fullname)s ADD COLUMN {prefix}eviction_policy TEXT")  # type: ignore[no-untyped-call]
            connection.execute(add.against(Table(name, MetaData())))


# From each version of the tables to the next, oldest first; tables made anew are of the newest. A step speaks of the
# tables in words of its own, as they were then: those of tables.py go on changing.
STEPS: tuple[Step, ...] = (_second, _third)


@dataclass(frozen=True)
class Database:
    """where: what to call it in errors; without a password. version: of the tables."""

    where: str
    engine: Engine
    version: int

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        with errors_told(self.where), self.engine.connect() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """One transaction. At the end of the block all is kept; nothing where an error leaves it, or after a
        rollback."""
        with errors_told(self.where), self.engine.connect() as connection:
            connection = connection.execution_options(writes=True)
            with connection.begin():
                ours = update(LEDGER).where(LEDGER.c.version == self.version)
                if connection.execute(ours.values(revision=LEDGER.c.revision + 1)).rowcount != 1:
                    raise InputError(f"{self.where}: a newer Setpoint has changed the tables since this one started")
                yield connection


def opened(url: str, directory: Path, steps: Sequence[Step] = STEPS) -> Database:
    """Makes it where there is none. directory: what the path of an SQLite file is relative to.

    Raises InputError for a URL of another form, and for anything that is no ledger or one of a newer Setpoint, without
    writing to it; LedgerUnavailable where it cannot be reached or made.
    """
    parts, version = _parts(url), 1 + len(steps)

    def fill(connection: Connection) -> None:
        TABLES.create_all(connection, checkfirst=False)
        connection.execute(insert(LEDGER).values(one=1, version=version, revision=0))

    if parts.drivername == "sqlite":
        path = directory / str(parts.database)
        where, engine = str(path), ledger_file.found_or_made(path, fill)
    else:
        where, engine = parts.render_as_string(hide_password=True), ledger_server.connected(parts)
    try:
        with errors_told(where):
            if parts.drivername != "sqlite":
                ledger_server.found_or_made(engine, where, fill)
            _bring_up(engine, where, steps)
    except BaseException:
        engine.dispose()
        raise
    return Database(where, engine, version)


@contextmanager
def errors_told(where: str) -> Iterator[None]:
    """Raises what SQLAlchemy says as InputError where the file or what is to be written is wrong, and otherwise as
    LedgerUnavailable."""
    try:
        yield
    except (exc.IntegrityError, exc.DataError) as error:
        raise InputError(f"{where}: got what does not fit what is written there: {error.orig}") from error
    except exc.DBAPIError as error:
        if ledger_file.is_damage(error.orig):
            raise InputError(f"{where}: got a damaged file ({error.orig}), {ledger_file.EXPECTED}") from error
        raise LedgerUnavailable(f"{where}: {error.orig}") from error
    except (OverflowError, UnicodeEncodeError) as error:  # a number or a text that neither database could hold
        raise InputError(f"{where}: {error}") from error
    except exc.TimeoutError as error:  # none of our own connections is free
        raise LedgerUnavailable(f"{where}: {error}") from error


def _parts(url: str) -> URL:
    try:
        parts = make_url(url)
    except exc.ArgumentError as error:
        raise InputError(f"ledger: got a text that is no URL, {FORMS}") from error
    is_file = parts.drivername == "sqlite" and not parts.query and parts.database != ":memory:"
    if not parts.database or not (is_file or parts.drivername in ("postgresql", "postgresql+psycopg")):
        raise InputError(f"ledger: got {parts.render_as_string(hide_password=True)!r}, {FORMS}")
    return parts


def _bring_up(engine: Engine, where: str, steps: Sequence[Step]) -> None:
    """Brings tables of an older version to this one, step by step, in one transaction."""
    version = 1 + len(steps)
    with engine.connect() as connection:
        if _version(connection, where, version) == version:
            return
    with engine.connect() as connection:
        connection = connection.execution_options(writes=True)
        with connection.begin():
            connection.execute(update(LEDGER).values(revision=LEDGER.c.revision + 1))  # others wait from here on
            for step in steps[_version(connection, where, version) - 1 :]:
                step(connection)
            connection.execute(update(LEDGER).values(version=version))


def _version(connection: Connection, where: str, newest: int) -> int:
    there = connection.execute(select(LEDGER.c.version)).scalar_one()
    if there > newest:
        raise InputError(
            f"{where}: got version {there} of the tables, expected at most {newest}: a newer Setpoint made them"
        )
    return int(there)
