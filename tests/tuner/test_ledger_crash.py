"""The ledger in SQLite where its daemon is killed at any moment, or the disk is full."""

from __future__ import annotations

import multiprocessing
import os
import random
import shutil
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

from tests.contracts.ledger_records import CACHE, HOUR, START, standing
from tests.tuner import ledger_program
from tests.tuner.ledger_program import next_index, whole_tick
from tests.tuner.test_ledger import FOLDER
from tuner.ledger import LedgerUnavailable
from tuner.ledgers.sql import open_ledger

PARTS = {"intervals": 2, "decisions": 2, "judgements": 1}  # rows of each tick of the program


@contextmanager
def process(what: Callable[..., None], path: Path, *more: object) -> Iterator[tuple[BaseProcess, Connection]]:
    """A process that does it, and what it says. It comes from a server that has imported all before, so it begins soon;
    nothing of this process is in it."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([ledger_program.__name__])
    hears, says = context.Pipe(duplex=False)
    running = context.Process(target=what, args=(path, says, *more))
    running.start()
    says.close()
    try:
        yield running, hears
    finally:
        running.kill()
        running.join()
        running.close()
        hears.close()


def all_said(hears: Connection) -> list[Any]:
    """Until it says no more."""
    said = []
    with suppress(EOFError):
        while True:
            said.append(hears.recv())
    return said


@pytest.fixture
def path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        yield Path(folder) / "setpoint.db"


@pytest.mark.parametrize("kills", [5, pytest.param(200, marks=[pytest.mark.slow, pytest.mark.timeout(900)])])
def test_killed_at_any_moment_it_holds_whole_ticks_and_goes_on(path: Path, kills: int) -> None:
    generator, before = random.Random(kills), 0
    for _ in range(kills):
        said = run_and_kill(path, generator.uniform(0.0, 0.05))
        last = whole(path)
        # all that it said was done is there; of what it had begun, all or nothing
        assert last in (said["committed"], said["begin"])
        assert last >= before
        before = last
    assert before >= kills


@pytest.mark.parametrize("kills", [5, pytest.param(100, marks=[pytest.mark.slow, pytest.mark.timeout(900)])])
def test_killed_while_it_begins_it_leaves_a_ledger_or_none(path: Path, kills: int) -> None:
    generator = random.Random(kills)
    for number in range(kills):
        new = path.with_name(f"{number}.db")
        with process(ledger_program.go_on, new):
            time.sleep(generator.uniform(0.0, 0.1))
        ledger = open_ledger(f"sqlite:///{new}", new.parent)
        lease = ledger.take_lease(CACHE, "daemon", START, HOUR)
        assert lease is not None
        index = next_index(ledger)
        ledger.commit(lease, whole_tick(index), START)
        ledger.close()
        assert whole(new) == index


def run_and_kill(path: Path, after_seconds: float) -> dict[str, int]:
    """The number of the last tick that it said it had begun, committed, and confirmed."""
    said = {"begin": 0, "committed": 0, "confirmed": 0}
    with process(ledger_program.go_on, path) as (running, hears):
        lines = [hears.recv() for _ in range(3)]  # one tick at least, or it would never get on
        time.sleep(after_seconds)
        running.kill()
        lines += all_said(hears)
    return said | dict(lines)


def whole(path: Path) -> int:
    """The number of ticks, each checked to be there in all its parts, after SQLite's own check of the whole file."""
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        (last,) = database.execute("SELECT interval_index FROM states").fetchone()
        for table, rows in PARTS.items():
            query = f"SELECT count(*), count(DISTINCT interval_index), max(interval_index) FROM {table}"
            newest = last if table == "decisions" else last - 1
            assert database.execute(query).fetchone() == (last * rows, last, newest)
    return int(last)


def test_after_a_kill_another_daemon_takes_over_and_confirms_what_was_left(path: Path) -> None:
    run_and_kill(path, 0.0)
    ledger = open_ledger(f"sqlite:///{path}", path.parent)
    assert ledger.take_lease(CACHE, "standby", START + HOUR - 1, HOUR) is None
    lease = ledger.take_lease(CACHE, "standby", START + HOUR + 1, HOUR)
    assert lease is not None
    last = next_index(ledger) - 1
    ledger.confirm(lease, last, standing(), None, START + HOUR + 1)
    ledger.commit(lease, whole_tick(last + 1), START + HOUR + 1)
    ledger.close()
    assert whole(path) == last + 1


def test_where_no_file_can_grow_it_is_unavailable_and_what_is_there_can_be_read(path: Path) -> None:
    with process(ledger_program.fill, path, 1_500_000) as (_, hears):
        check_full(path, *all_said(hears))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, of 2 MB."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("only root can mount a small file system")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "setpoint-test", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {mounted.stderr.strip()}")
    yield tmp_path
    subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)


def test_on_a_full_disk_it_is_unavailable_and_goes_on_when_there_is_room(small_disk: Path) -> None:
    path, ballast = small_disk / "setpoint.db", small_disk / "ballast"
    ballast.write_bytes(bytes(200_000))
    with process(ledger_program.fill, path, None) as (_, hears):
        kept = check_full(path, *all_said(hears))
    ballast.unlink()
    ledger = open_ledger(f"sqlite:///{path}", path.parent)
    lease = ledger.take_lease(CACHE, "daemon", START, HOUR)
    assert lease is not None
    ledger.commit(lease, whole_tick(kept + 1), START)
    ledger.close()
    assert whole(path) == kept + 1


def check_full(path: Path, error: str, counts: tuple[int, int, int]) -> int:
    """What a process said that was left without room; the number of ticks kept."""
    assert error.startswith(f"{path}: ")
    assert any(words in error for words in ("database or disk is full", "disk I/O error"))
    last = counts[0]
    assert last > 10
    assert counts == (last, 2 * last, last)
    assert whole(path) == last
    return last


def test_a_lock_that_another_keeps_makes_it_unavailable(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.ledgers.file.BUSY_SECONDS", 0.05)
    ledger = open_ledger(f"sqlite:///{path}", path.parent)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerUnavailable, match=r"setpoint\.db: database is locked"):
            ledger.take_lease(CACHE, "a", START, HOUR)
        assert ledger.lease(CACHE) is None  # a reader does not wait
        other.execute("ROLLBACK")
    assert ledger.take_lease(CACHE, "a", START, HOUR) is not None
    ledger.close()
