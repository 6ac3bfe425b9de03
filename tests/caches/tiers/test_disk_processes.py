"""The tier on disk where processes die, work on one file together, or the disk is full."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from caches.knobs import KnobSettings
from caches.tiers.disk import DiskOptions, DiskTier
from tests.caches.tiers.disk_program import BODY, SPACE, START, answer_of, key_of

ROOT = Path(__file__).parents[3]
EACH = DiskOptions().entry_overhead_bytes + len("m") + BODY


@contextmanager
def process(what: str, path: Path, *numbers: int) -> Iterator[subprocess.Popen[str]]:
    """Of tests/caches/tiers/disk_program.py."""
    command = [sys.executable, "-m", "tests.caches.tiers.disk_program", what, str(path), *map(str, numbers)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as running:
        try:
            yield running
        finally:
            running.kill()


def check(path: Path) -> tuple[int, int]:
    """Entries and their bytes, counted one by one, after SQLite's own check of the whole file."""
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        entries, used = database.execute("SELECT count(*), sum(size) FROM entry").fetchone()
        assert database.execute("SELECT entries, used FROM state").fetchone() == (entries, used)
        assert database.execute("SELECT count(*) FROM body").fetchone() == (entries,)
    return entries, used


async def whole(path: Path, numbers: range) -> list[int]:
    """Those that are there, each with the body that it was stored with."""
    tier = DiskTier(path, SPACE)
    found = await tier.batch_lookup([key_of(number) for number in numbers], START)
    await tier.close()
    for number, one in zip(numbers, found, strict=True):
        assert one is None or one.answer == answer_of(number)
    return [number for number, one in zip(numbers, found, strict=True) if one is not None]


async def test_killed_while_it_stores_it_leaves_whole_entries_and_all_that_it_said_were_kept(tmp_path: Path) -> None:
    path = tmp_path / "cache.sqlite"
    with process("store", path, 0, 100_000) as running:
        assert running.stdout is not None
        for _ in range(60):
            last = int(running.stdout.readline())
        running.send_signal(signal.SIGKILL)
        said = [int(line) for line in running.stdout]
    last = said[-1] if said else last
    assert last < 99_999
    assert await whole(path, range(last + 3)) in (list(range(last + 1)), list(range(last + 2)))
    entries, used = check(path)
    assert used == entries * EACH


async def test_three_that_begin_and_store_at_once_keep_one_file_and_one_budget(tmp_path: Path) -> None:
    path, most = tmp_path / "new" / "cache.sqlite", 100
    with process("store", path, 0, 40) as a, process("store", path, 40, 80) as b, process("store", path, 80, 120) as c:
        assert [running.wait(timeout=120) for running in (a, b, c)] == [0, 0, 0]
    assert await whole(path, range(120)) == list(range(120))
    assert check(path) == (120, 120 * EACH)
    tier = DiskTier(path, SPACE)
    await tier.apply(KnobSettings(float(most * EACH), 1e6, 0.0), START)
    assert not await tier.tend(START)
    with process("store", path, 120, 160) as a, process("store", path, 160, 200) as b:
        assert [running.wait(timeout=120) for running in (a, b)] == [0, 0]
    assert (await tier.stats()).entries == most
    await tier.close()
    assert check(path) == (most, most * EACH)
    assert set(await whole(path, range(200))) >= set(range(120, 200))


async def test_a_full_disk_is_a_tier_error_and_what_is_there_is_served(tmp_path: Path) -> None:
    path = tmp_path / "cache.sqlite"
    with process("fill", path, 1_000_000) as running:
        said, _ = running.communicate(timeout=120)
    assert running.returncode == 0
    error, served = said.splitlines()
    assert error.startswith(f"tier disk: {path}: disk I/O error")
    kept = int(served.removesuffix(" None"))
    assert 20 < kept < 150
    assert await whole(path, range(kept + 1)) == list(range(kept))
    check(path)
