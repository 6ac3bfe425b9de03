"""What the tier on disk does with its file: restarts, several users, files of others, damage, and its size."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path

import pytest

from caches.errors import InputError, SetpointError
from caches.flight import Flight
from caches.knobs import KnobSettings, KnobSpace
from caches.place import Place
from caches.stack import Served, Stack
from caches.tiers.disk import DiskOptions, DiskTier
from caches.tiers.disk_writes import SLACK_PAGES
from caches.tiers.memory import MemoryTier
from caches.tiers.tier import Answer, TierError
from tests.contracts.tier_contract import ENDLESS, ROOM, SPACE, START, answer_of, key_of

PAGE_BYTES = 4_096


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "kept" / "cache.sqlite"


@asynccontextmanager
async def at(path: Path, space: KnobSpace = SPACE, options: DiskOptions = DiskOptions()) -> AsyncIterator[DiskTier]:
    tier = DiskTier(path, space, options=options)
    try:
        yield tier
    finally:
        await tier.close()


async def held(tier: DiskTier, numbers: range) -> list[int]:
    return [number for number in numbers if await tier.holds(key_of(number), START)]


def query(path: Path, text: str) -> object:
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        return database.execute(text).fetchone()[0]


# --- restarts ---------------------------------------------------------------------------------------------------------


async def test_entries_tags_settings_and_order_are_there_after_a_restart(path: Path) -> None:
    tagged = replace(key_of(1), tags=frozenset({"de", "en"}))
    async with at(path) as tier:
        each = DiskOptions().entry_overhead_bytes + 7 + 106 + 2 * (64 + 2)  # model, body, and two tags of two letters
        for key in (tagged, key_of(2), key_of(3)):
            await tier.store(key, answer_of(1, 100, START), START)
        await tier.apply(KnobSettings(3.0 * each, 50.0, 0.25), START)
        assert await tier.lookup(tagged, START + 1) is not None
    assert [file.name for file in path.parent.iterdir() if file.suffix != ".lock"] == [path.name]
    async with at(path) as tier:
        assert await tier.settings() == KnobSettings(3.0 * each, 50.0, 0.25)
        assert (await tier.stats()).entries == 3
        await tier.store(key_of(4), answer_of(4, 200, START), START)  # the second was touched least recently
        assert await held(tier, range(1, 5)) == [1, 3, 4]
        found = await tier.lookup(tagged, START + 2)
        assert found is not None
        assert found.answer == answer_of(1, 100, START)
        assert found.tags == {"de", "en"}


async def test_settings_of_before_are_brought_within_the_limits_of_now(path: Path) -> None:
    async with at(path) as tier:
        assert (await tier.apply(KnobSettings(ROOM, 500.0, 0.5), START)).ttl_seconds == 500.0
    space = replace(SPACE, ttl_seconds=replace(SPACE.ttl_seconds, high=60.0, default=30.0))
    async with at(path, space) as tier:
        assert await tier.settings() == KnobSettings(ROOM, 60.0, 0.5)


def test_only_its_owner_may_read_it(path: Path) -> None:
    DiskTier(path, SPACE)
    assert path.stat().st_mode & 0o777 == 0o600


async def test_what_a_process_left_that_died_while_it_made_the_file_is_no_part_of_it(path: Path) -> None:
    path.parent.mkdir()
    for end in ("", "-wal"):  # a container's processes have the same number every time
        path.with_name(f".{path.name}.{os.getpid()}.partial{end}").write_bytes(b"half a file")
    async with at(path) as tier:
        assert await tier.store(key_of(1), answer_of(1, 10, START), START)
    assert query(path, "PRAGMA integrity_check") == "ok"
    assert {file.suffix for file in path.parent.iterdir()} <= {".sqlite", ".lock"}


# --- several at once --------------------------------------------------------------------------------------------------


async def test_two_share_entries_and_settings(path: Path) -> None:
    async with at(path) as one, at(path) as other:
        await one.store(key_of(1), answer_of(1, 10, START), START)
        assert await other.lookup(key_of(1), START) is not None
        await other.apply(KnobSettings(5_000.0, 30.0, 0.25), START)
        assert await one.settings() == KnobSettings(5_000.0, 30.0, 0.25)
        assert await one.lookup(key_of(1), START + 30) is None
        assert (await other.stats()).entries == 0
        async with at(path) as late:  # does not set its defaults over theirs
            assert await late.settings() == KnobSettings(5_000.0, 30.0, 0.25)


async def test_touches_of_another_count_once_they_are_written(path: Path) -> None:
    async with at(path) as one, at(path) as other:
        each = DiskOptions().entry_overhead_bytes + 7 + 106
        for number in (1, 2, 3):
            await one.store(key_of(number), answer_of(number, 100, START), START)
        await one.apply(KnobSettings(3.0 * each, ENDLESS, 0.0), START)
        await other.lookup(key_of(1), START + 1)
        await other.lookup(key_of(2), START + 2)
        await one.store(key_of(4), answer_of(4, 100, START), START + 3)
        assert await held(one, range(1, 5)) == [2, 3, 4]  # not known here yet
        await other.tend(START + 3)
        await one.store(key_of(5), answer_of(5, 100, START), START + 3)
        assert await held(one, range(1, 6)) == [2, 4, 5]


async def test_lookups_go_on_while_another_process_writes(path: Path) -> None:
    async with at(path, options=DiskOptions(busy_seconds=60.0)) as tier:
        await tier.store(key_of(1), answer_of(1, 10, START), START)
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            waiting = asyncio.ensure_future(tier.store(key_of(2), answer_of(2, 10, START), START))
            for _ in range(20):
                assert await tier.lookup(key_of(1), START) is not None
            assert not waiting.done()
            other.execute("COMMIT")
            assert await waiting


async def test_a_writer_that_keeps_others_waiting_too_long_is_a_tier_error(path: Path) -> None:
    async with at(path, options=DiskOptions(busy_seconds=0.05)) as tier:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(TierError, match=r"tier disk: .*cache\.sqlite: database is locked"):
                await tier.store(key_of(1), answer_of(1, 10, START), START)
        assert await tier.store(key_of(1), answer_of(1, 10, START), START)


# --- files of others, and damage --------------------------------------------------------------------------------------


def other_program(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE theirs (a)")


def other_version(path: Path) -> None:
    DiskTier(path, SPACE)
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("PRAGMA user_version = 7")


@pytest.mark.parametrize(
    ("write", "words"),
    [
        (lambda path: path.write_text("what I wrote"), "got a file that is no SQLite database, expected a cache of"),
        (lambda path: path.touch(), "got a file that is no SQLite database"),
        (other_program, "got an SQLite database of another program, expected a cache of Setpoint or a name that is"),
        (other_version, "got version 7 of the format, expected 1; remove it to begin anew"),
        (lambda path: path.mkdir(), "cannot be read: Is a directory"),
    ],
    ids=["text", "empty", "another program's", "another version", "a folder"],
)
def test_another_file_is_refused_and_left_alone(tmp_path: Path, write: object, words: str) -> None:
    path = tmp_path / "some.file"
    write(path)  # type: ignore[operator]
    before = None if path.is_dir() else path.read_bytes()
    with pytest.raises(InputError, match=f"some.file: {words}"):
        DiskTier(path, SPACE)
    assert before is None or path.read_bytes() == before


def test_a_place_that_cannot_be_written_to_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SetpointError, match=r"file/cache\.sqlite: cannot be"):
        DiskTier(tmp_path / "file" / "cache.sqlite", SPACE)


async def test_a_file_cut_short_is_a_tier_error_until_it_is_removed(path: Path) -> None:
    async with at(path) as tier:
        for number in range(50):
            await tier.store(key_of(number), answer_of(number, 5_000, START), START)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)
    async with at(path) as tier:  # the gateway starts, and its breaker leaves the tier alone
        for _ in range(2):
            with pytest.raises(TierError, match=r"tier disk: .*cache\.sqlite: database disk image is malformed"):
                await tier.lookup(key_of(1), START)
        with pytest.raises(TierError, match="malformed"):
            await tier.store(key_of(1), answer_of(1, 10, START), START)
        path.unlink()
        assert await tier.lookup(key_of(1), START) is None
        assert await tier.store(key_of(1), answer_of(1, 10, START), START)


async def test_a_stack_goes_on_without_a_damaged_file_and_counts_it(path: Path) -> None:
    async def call(flight: Flight[Served]) -> Answer:
        return answer_of(1, 10, START)

    async with at(path) as tier:
        await tier.store(key_of(1), answer_of(2, 5_000, START), START)
    path.write_bytes(path.read_bytes()[:4_096] + b"\xff" * 40_960)
    place = Place(DiskTier(path, SPACE), slow_seconds=60.0)
    stack = Stack([Place(MemoryTier(SPACE)), place], clock=lambda: START)
    served = await stack.fetch(key_of(1), call)
    assert (served.tier, served.answer) == (None, answer_of(1, 10, START))
    assert place.stats.failed == 1
    await stack.close()


async def test_an_altered_body_is_a_tier_error_once_and_never_served(path: Path) -> None:
    body = b"the moon is 384,400 km away"
    async with at(path) as tier:
        await tier.store(key_of(1), replace(answer_of(1, 10, START), body=body), START)
    whole = path.read_bytes()
    assert whole.count(body) == 1
    path.write_bytes(whole.replace(body, body.replace(b"3", b"7")))
    async with at(path) as tier:
        with pytest.raises(TierError, match="got an entry that is not as it was stored; it is removed"):
            await tier.lookup(key_of(1), START)
        assert await tier.lookup(key_of(1), START) is None
        found = await tier.stats()
        assert (found.entries, found.expirations, found.misses) == (0, 0, 1)


async def test_a_file_removed_while_it_is_used_is_begun_anew(path: Path) -> None:
    async with at(path) as tier, at(path) as other:
        await tier.apply(KnobSettings(5_000.0, 30.0, 0.25), START)
        await tier.store(key_of(1), answer_of(1, 10, START), START)
        path.unlink()  # what SQLite keeps beside it is left
        await tier.tend(START)
        await other.tend(START)
        assert await tier.lookup(key_of(1), START) is None
        assert await tier.store(key_of(2), answer_of(2, 10, START), START)
        assert await other.lookup(key_of(2), START) is not None
        assert await tier.settings() == KnobSettings(5_000.0, 30.0, 0.25)
    assert query(path, "PRAGMA integrity_check") == "ok"


async def test_closed_is_closed(path: Path) -> None:
    async with at(path) as tier:
        await tier.close()
        with pytest.raises(TierError, match="is closed"):
            await tier.lookup(key_of(1), START)


# --- housekeeping -----------------------------------------------------------------------------------------------------


async def test_an_entrys_own_lifetime_ends_it_in_housekeeping(path: Path) -> None:
    async with at(path) as tier:
        await tier.store(key_of(1), answer_of(1, 10, START, 5.0), START)
        await tier.store(key_of(2), answer_of(2, 10, START), START)
        await tier.tend(START + 4.5)
        assert (await tier.stats()).entries == 2
        await tier.tend(START + 5.0)
        assert (await tier.stats()).expirations == 1
        assert await held(tier, range(3)) == [2]


async def test_the_file_is_about_as_large_as_what_is_counted_and_shrinks_with_the_capacity(path: Path) -> None:
    def size(number: int) -> int:
        return 500 + (number * 7_919) % 5_000  # of a few kilobytes, as answers are

    async with at(path, options=DiskOptions(most_cut_pages=200)) as tier:
        for number in range(1_200):
            await tier.store(key_of(number), answer_of(number, size(number), START), START)
        await tier.tend(START)
        used = (await tier.stats()).used_bytes
        assert 0.8 * used < path.stat().st_size < 1.1 * used
        await tier.apply(KnobSettings(used / 5, ENDLESS, 0.0), START)
        steps = 1
        while await tier.tend(START):
            steps += 1
        assert steps > 3
        used = (await tier.stats()).used_bytes
        kept = used / 16 + SLACK_PAGES * PAGE_BYTES  # free, at most
        assert 0.8 * used < path.stat().st_size < 1.1 * used + 1.1 * kept
