"""The ledger in a real PostgreSQL, by the contract of all ledgers, and what only a server can do to it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, text

from caches.errors import InputError
from tests.contracts.ledger_contract import LedgerContract
from tests.contracts.ledger_opened import Opener
from tests.contracts.ledger_records import CACHE, START, taken, tick, wish
from tests.servers import free_port
from tests.tuner.postgres_server import postgres_database
from tuner.ledger import LedgerUnavailable
from tuner.ledgers import server as ledger_server
from tuner.ledgers.database import STEPS
from tuner.ledgers.sql import SKEW_SECONDS, open_ledger
from tuner.ledgers.tables import LEDGER, TABLES


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with postgres_database() as url:
        yield url


@pytest.fixture(scope="module")
def engine(url: str) -> Iterator[Engine]:
    """To look at the database, and to change it, behind the ledger's back."""
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    yield engine
    engine.dispose()


@pytest.fixture(scope="module")
def ledger_url(url: str, engine: Engine) -> str:
    do(engine, "DROP SCHEMA IF EXISTS setpoint CASCADE")
    open_ledger(url, Path()).close()
    return url


class TestLedgerInPostgres(LedgerContract):
    skew_seconds = SKEW_SECONDS

    @pytest.fixture
    def opener(self, ledger_url: str, engine: Engine) -> Opener:
        names = ", ".join(f"setpoint.{name}" for name in TABLES.tables if name != LEDGER.name)
        do(engine, f"TRUNCATE {names} RESTART IDENTITY")
        return lambda: open_ledger(ledger_url, Path())


def do(engine: Engine, statement: str) -> None:
    with engine.begin() as connection:
        connection.execute(text(statement))


# --- what only a server can do ----------------------------------------------------------------------------------------


@pytest.fixture
def bare_url(url: str, engine: Engine) -> str:
    """Of a database with nothing in it."""
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        for statement in ("DROP DATABASE IF EXISTS setpoint_bare WITH (FORCE)", "CREATE DATABASE setpoint_bare"):
            connection.execute(text(statement))
    return url.rpartition("/")[0] + "/setpoint_bare"


def test_of_several_that_begin_together_one_makes_the_tables(bare_url: str) -> None:
    def begin(_: int) -> int | None:
        ledger = open_ledger(bare_url, Path())
        made = ledger.wish(wish()).id
        ledger.close()
        return made

    with ThreadPoolExecutor(4) as threads:
        assert sorted(threads.map(begin, range(4)), key=str) == [1, 2, 3, 4]


def test_tables_of_others_are_left_alone(bare_url: str) -> None:
    engine = create_engine(bare_url.replace("postgresql:", "postgresql+psycopg:"))
    do(engine, "CREATE TABLE experiments (theirs text)")
    open_ledger(bare_url, Path()).close()  # beside what others have in their own schema
    do(engine, "DROP SCHEMA setpoint CASCADE")
    do(engine, "CREATE SCHEMA setpoint")
    do(engine, "CREATE TABLE setpoint.theirs (a text)")
    with pytest.raises(InputError, match="got a schema 'setpoint' with the table 'theirs', expected a ledger of Setp"):
        open_ledger(bare_url, Path())
    do(engine, "DROP TABLE setpoint.theirs")
    open_ledger(bare_url, Path()).close()
    newer = 2 + len(STEPS)
    do(engine, f"UPDATE setpoint.ledger SET version = {newer}")
    with pytest.raises(InputError, match=f"got version {newer} of the tables, expected at most {newer - 1}"):
        open_ledger(bare_url, Path())
    engine.dispose()


def test_a_ledger_of_the_first_version_is_brought_up(bare_url: str) -> None:
    open_ledger(bare_url, Path()).close()
    engine = create_engine(bare_url.replace("postgresql:", "postgresql+psycopg:"))
    do(engine, "ALTER TABLE setpoint.states ADD COLUMN good json NOT NULL")
    for table, prefixes in (("intervals", ("",)), ("decisions", ("proposed_", "limited_", "applied_"))):
        for prefix in prefixes:
            do(engine, f"ALTER TABLE setpoint.{table} DROP COLUMN {prefix}eviction_policy")
    do(engine, "UPDATE setpoint.ledger SET version = 1")
    ledger = open_ledger(bare_url, Path())
    ledger.commit(taken(ledger), tick(1), START)
    assert ledger.state(CACHE) == tick(1).state
    ledger.close()
    engine.dispose()


def test_a_lock_that_another_keeps_makes_it_unavailable(
    ledger_url: str, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ledger_server.LIMITS_SECONDS, "lock_timeout", 0.1)
    ledger = open_ledger(f"{ledger_url}?options=-c%20application_name%3Dledger", Path())
    with engine.begin() as connection:
        connection.execute(text("UPDATE setpoint.ledger SET revision = revision + 1"))
        with pytest.raises(LedgerUnavailable, match="lock timeout"):
            ledger.wish(wish())
        assert ledger.lease("none") is None  # a reader does not wait
    ledger.close()


def test_connections_that_the_server_has_ended_are_replaced(ledger_url: str, engine: Engine) -> None:
    ledger = open_ledger(ledger_url, Path())
    revision = ledger.revision()
    theirs = "pid <> pg_backend_pid() AND backend_type = 'client backend'"
    do(engine, f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {theirs}")
    assert ledger.revision() == revision
    ledger.close()


def test_a_server_that_is_not_there_is_unavailable_and_the_password_stays_secret() -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(LedgerUnavailable, match=r"postgresql://ada:\*\*\*@127\.0\.0\.1") as refused:
        open_ledger(f"postgresql://ada:secret@127.0.0.1:{free_port()}/setpoint", Path())
    assert "secret" not in str(refused.value)
