"""Files and URLs of ledgers: what is refused and left as it is, versions of the tables, several that begin together."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Connection, text

from caches.errors import InputError
from caches.knobs import KnobSettings
from tests.contracts.ledger_records import CACHE, OURS, PLAN, START, THEIRS, taken, tick, wish
from tuner.ledger import LedgerUnavailable
from tuner.ledgers.database import STEPS, opened
from tuner.ledgers.sql import SqlLedger, open_ledger

URL = "sqlite:///setpoint.db"
VERSION = 1 + len(STEPS)  # of the tables of today


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Of a ledger with one tick."""
    ledger = open_ledger(URL, tmp_path)
    ledger.commit(taken(ledger), tick(1), START)
    ledger.close()
    return tmp_path / "setpoint.db"


def query(path: Path, statement: str) -> object:
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        row = database.execute(statement).fetchone()
        return None if row is None else row[0]


# --- where it is ------------------------------------------------------------------------------------------------------


def test_a_file_is_relative_to_the_folder_that_is_given_and_folders_are_made(tmp_path: Path) -> None:
    open_ledger("sqlite:///a/b.db", tmp_path).close()
    open_ledger(f"sqlite:///{tmp_path}/c.db", Path("/nowhere")).close()
    assert {file.relative_to(tmp_path).as_posix() for file in tmp_path.rglob("*.db")} == {"a/b.db", "c.db"}


def test_a_closed_ledger_is_one_file_that_says_whose_it_is(path: Path) -> None:
    assert {file.name for file in path.parent.iterdir()} == {"setpoint.db", "setpoint.db.lock"}
    assert path.read_bytes()[68:72] == b"StpL"
    assert query(path, "PRAGMA journal_mode") == "wal"


@pytest.mark.parametrize(
    "url",
    [
        *("setpoint.db", "sqlite://", "sqlite:///", "sqlite:///:memory:", "sqlite:///a.db?mode=memory"),
        *(
            "mysql://ada:secret@localhost/setpoint",
            "postgresql://ada:secret@localhost",
            "sqlite+aiosqlite:///a.db",
            "",
        ),
    ],
)
def test_other_urls_are_refused_without_their_password(url: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"ledger: got .*, expected sqlite:///FILE or postgresql://") as refused:
        open_ledger(url, tmp_path)
    assert "secret" not in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_where_it_cannot_be_made_it_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(LedgerUnavailable, match=r"/proc/none/setpoint\.db: cannot be made"):
        open_ledger("sqlite:////proc/none/setpoint.db", tmp_path)
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(InputError, match=r"file/setpoint\.db: cannot be read: Not a directory"):
        open_ledger("sqlite:///file/setpoint.db", tmp_path)


# --- what is no ledger ------------------------------------------------------------------------------------------------


def other_program(path: Path) -> None:
    path.unlink()
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE theirs (a)")


def no_database(path: Path) -> None:
    path.write_text("[ledger]\n" * 100)


def empty_file(path: Path) -> None:
    path.write_bytes(b"")


def cut_short(path: Path) -> None:
    os.truncate(path, 5_000)


def overwritten(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[100:4096] = os.urandom(3_996)  # SQLite's own table of tables
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (other_program, "got an SQLite database of another program"),
        (no_database, "got a file that is no SQLite database"),
        (empty_file, "got a file that is no SQLite database"),
        (cut_short, "got a damaged file"),
        (overwritten, "got a damaged file"),
    ],
)
def test_what_is_no_sound_ledger_is_named_and_left_as_it_is(
    path: Path, spoil: Callable[[Path], None], words: str
) -> None:
    spoil(path)
    before = path.read_bytes()
    with pytest.raises(InputError, match=rf"setpoint\.db: {words}.*, expected a ledger of Setpoint or a name that is"):
        open_ledger(URL, path.parent)
    assert path.read_bytes() == before


def test_damage_inside_is_named_when_it_is_met(path: Path) -> None:
    content = bytearray(path.read_bytes())
    for page in range(1, len(content) // 4_096):
        content[page * 4_096 : page * 4_096 + 8] = b"\xff" * 8
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"setpoint\.db: got a damaged file"):
        open_ledger(URL, path.parent)


def test_a_row_that_nobody_has_written_is_named(path: Path) -> None:
    query(path, """UPDATE states SET plan = '{"split": {"treatment": 7}}'""")
    ledger = open_ledger(URL, path.parent)
    with pytest.raises(InputError, match=r"setpoint\.db: got a row that no Setpoint has written"):
        ledger.state(CACHE)
    query(path, "UPDATE decisions SET reasons = 'no JSON'")
    with pytest.raises(InputError, match="got a row that no Setpoint has written"):
        ledger.decisions(CACHE)
    ledger.close()


def test_what_a_process_left_that_died_while_it_made_the_file_is_no_part_of_it(tmp_path: Path) -> None:
    for end in ("", "-wal"):
        (tmp_path / f".setpoint.db.{os.getpid()}.partial{end}").write_bytes(b"half a file")
    removed = open_ledger("sqlite:///removed.db", tmp_path)
    removed.wish(wish())
    shutil.copy(tmp_path / "removed.db-wal", tmp_path / "setpoint.db-wal")
    removed.close()
    for file in tmp_path.glob("removed.*"):
        file.unlink()
    ledger = open_ledger(URL, tmp_path)
    assert list(ledger.wishes(CACHE)) == []
    ledger.commit(taken(ledger), tick(1), START)
    ledger.close()
    assert query(tmp_path / "setpoint.db", "PRAGMA integrity_check") == "ok"
    assert {file.name for file in tmp_path.iterdir()} == {"setpoint.db", "setpoint.db.lock"}


def test_a_file_that_is_removed_is_not_made_anew_by_a_ledger_that_is_open(path: Path) -> None:
    ledger = open_ledger(URL, path.parent)
    ledger.close()  # its connections are gone, the next call needs a new one
    path.unlink()
    with pytest.raises(LedgerUnavailable, match=r"setpoint\.db: unable to open database file"):
        ledger.state(CACHE)
    assert not path.exists()


# --- versions ---------------------------------------------------------------------------------------------------------


def test_tables_of_a_newer_setpoint_are_left_alone(path: Path) -> None:
    query(path, f"UPDATE ledger SET version = {VERSION + 1}")
    words = rf"setpoint\.db: got version {VERSION + 1} of the tables, expected at most {VERSION}: a newer Setpoint made"
    with pytest.raises(InputError, match=words):
        open_ledger(URL, path.parent)
    assert query(path, "SELECT version FROM ledger") == VERSION + 1


def test_a_ledger_of_the_first_version_opens_with_what_is_in_it(path: Path) -> None:
    query(path, "ALTER TABLE states ADD COLUMN good JSON NOT NULL DEFAULT '{}'")
    without_policies(path)
    query(path, "UPDATE ledger SET version = 1")
    query(path, """UPDATE states SET opened = '{"arms": "of fewer counters"}'""")
    ledger = open_ledger(URL, path.parent)
    state = tick(1).state
    assert ledger.state(CACHE) == replace(
        state, plan=replace(PLAN, treatment=nameless(THEIRS))
    )  # with no counters: what came of the open interval will not be known
    ledger.commit(taken(ledger), tick(2), START)
    ledger.close()
    assert query(path, "SELECT version FROM ledger") == VERSION
    assert query(path, "SELECT count(*) FROM pragma_table_info('states') WHERE name = 'good'") == 0


def without_policies(path: Path) -> None:
    """As the tables were before the eviction policy was a setting."""
    for table, prefixes in (("intervals", ("",)), ("decisions", ("proposed_", "limited_", "applied_"))):
        for prefix in prefixes:
            query(path, f"ALTER TABLE {table} DROP COLUMN {prefix}eviction_policy")
    query(
        path, "UPDATE states SET plan = json_remove(plan, '$.control.eviction_policy', '$.treatment.eviction_policy')"
    )


def test_a_ledger_of_the_second_version_names_no_eviction_policy(path: Path) -> None:
    without_policies(path)
    query(path, "UPDATE ledger SET version = 2")
    ledger = open_ledger(URL, path.parent)
    state, before = ledger.state(CACHE), tick(1)
    assert state == replace(before.state, plan=replace(PLAN, treatment=nameless(THEIRS)))
    (control, treatment), decided = ledger.intervals(CACHE, 0, 1), ledger.decisions(CACHE)
    assert (control, treatment) == tuple(replace(one, settings=nameless(one.settings)) for one in before.intervals)
    assert [(one.proposed, one.limited, one.applied) for one in decided] == [(nameless(THEIRS), OURS, None)] * 2
    ledger.commit(taken(ledger), tick(2), START)
    assert ledger.state(CACHE) == tick(2).state
    assert tuple(ledger.intervals(CACHE, 1, 2)) == tick(2).intervals
    ledger.close()
    assert query(path, "SELECT version FROM ledger") == VERSION
    assert (
        query(path, "SELECT eviction_policy FROM intervals WHERE interval_index = 1 AND arm = 'treatment'") == "s3-fifo"
    )


def nameless(settings: KnobSettings) -> KnobSettings:
    return replace(settings, eviction_policy=None)


def add_column(connection: Connection) -> None:
    connection.execute(text("ALTER TABLE leases ADD COLUMN machine TEXT"))


def add_table(connection: Connection) -> None:
    connection.execute(text("CREATE TABLE notes (machine TEXT)"))
    connection.execute(text("INSERT INTO notes SELECT machine FROM leases"))


def fail(connection: Connection) -> None:
    connection.execute(text("DROP TABLE leases"))
    connection.execute(text("SELECT what FROM nowhere"))


def test_older_tables_are_brought_up_step_by_step_with_what_is_in_them(path: Path) -> None:
    opened(URL, path.parent, [*STEPS, add_column]).engine.dispose()
    assert query(path, "SELECT version FROM ledger") == VERSION + 1
    later = SqlLedger(opened(URL, path.parent, [*STEPS, add_column, add_table]))
    assert query(path, "SELECT count(*) FROM notes") == 1
    assert later.state(CACHE) == tick(1).state
    assert later.wish(wish()).id == 1
    later.close()
    opened(URL, path.parent, [*STEPS, add_column, add_table]).engine.dispose()  # nothing is left to do
    assert query(path, "SELECT version FROM ledger") == VERSION + 2


def test_a_step_that_fails_changes_nothing(path: Path) -> None:
    with pytest.raises(LedgerUnavailable, match="nowhere"):
        opened(URL, path.parent, [*STEPS, add_column, fail])
    assert query(path, "SELECT version FROM ledger") == VERSION
    assert query(path, "SELECT count(*) FROM pragma_table_info('leases')") == 4


def test_new_tables_are_of_the_newest_version(tmp_path: Path) -> None:
    opened(URL, tmp_path, [fail]).engine.dispose()
    assert query(tmp_path / "setpoint.db", "SELECT version FROM ledger") == 2


def test_one_that_was_open_while_a_newer_setpoint_changed_the_tables_writes_no_more(path: Path) -> None:
    ledger = open_ledger(URL, path.parent)
    opened(URL, path.parent, [*STEPS, add_column]).engine.dispose()
    with pytest.raises(InputError, match="a newer Setpoint has changed the tables"):
        ledger.wish(wish())
    assert list(ledger.wishes(CACHE)) == []
    ledger.close()


# --- several ----------------------------------------------------------------------------------------------------------


def test_of_several_that_begin_together_one_makes_the_file(tmp_path: Path) -> None:
    def begin(number: int) -> int | None:
        ledger = open_ledger(URL, tmp_path)
        made = ledger.wish(wish(cache=str(number))).id
        ledger.close()
        return made

    with ThreadPoolExecutor(6) as threads:
        assert sorted(threads.map(begin, range(6)), key=str) == [1, 2, 3, 4, 5, 6]


def test_threads_share_one_ledger(path: Path) -> None:
    ledger = open_ledger(URL, path.parent)
    with ThreadPoolExecutor(8) as threads:
        ids = list(threads.map(lambda _: ledger.wish(wish()).id, range(24)))
        states = list(threads.map(lambda _: ledger.state(CACHE), range(24)))
    assert sorted(ids, key=int) == list(range(1, 25))
    assert states == [tick(1).state] * 24
    ledger.close()


def test_a_reader_sees_the_state_before_a_commit_that_is_not_over(path: Path) -> None:
    ledger = open_ledger(URL, path.parent)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        other.execute("UPDATE states SET phase = 'ramp'")
        assert ledger.state(CACHE) == tick(1).state
        other.execute("ROLLBACK")
    ledger.close()


def test_commits_wait_until_they_are_on_the_disk(path: Path) -> None:
    database = opened(URL, path.parent)
    with database.reading() as connection:
        full, foreign = (
            connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in ("synchronous", "foreign_keys")
        )
    database.engine.dispose()
    assert (full, foreign) == (2, 1)
