"""How the access log is written: files that are whole, what is lost when something fails, what is dropped."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from caches.errors import InputError, SetpointError
from tests.traces.access_records import BEGIN, SECRET, cached, files
from traces.access.log import AccessLog, NotWritten
from traces.access.parquet_log import ParquetAccessLog
from traces.access.record import AccessRecord
from traces.access.secret import SECRET_FILE, secret_in
from traces.catalog import load_trace

DAY = 86_400.0
ROOT = Path(__file__).parents[2]


def test_the_secret_of_a_folder_is_made_once_and_for_its_user_only(tmp_path: Path) -> None:
    folder, found = tmp_path / "new" / "log", set[bytes]()
    both = [threading.Thread(target=lambda: found.add(secret_in(folder))) for _ in range(8)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    assert len(found) == 1
    assert len(found.pop()) == 64
    assert (folder / SECRET_FILE).stat().st_mode & 0o777 == 0o600
    assert [one.name for one in folder.iterdir()] == [SECRET_FILE]


def test_a_file_appears_when_it_is_done(tmp_path: Path) -> None:
    log = ParquetAccessLog(tmp_path, rotate_seconds=60.0, rotate_rows=4, row_group_rows=2, secret=SECRET)
    log.write([cached(index) for index in range(3)], BEGIN)
    log.tend(BEGIN + 59.0)
    assert files(tmp_path) == []
    log.write([cached(3.0)], BEGIN + 59.0)  # the fourth row
    assert [pq.read_metadata(file).num_rows for file in files(tmp_path)] == [4]
    log.write([cached(4.0)], BEGIN + 100.0)
    log.tend(BEGIN + 159.0)
    assert len(files(tmp_path)) == 1
    log.tend(BEGIN + 160.0)  # 60 s after it was begun
    assert [pq.read_metadata(file).num_rows for file in files(tmp_path)] == [4, 1]
    log.tend(BEGIN + 1_000.0)
    log.close()
    assert len(files(tmp_path)) == 2
    assert all(path.suffix == ".parquet" for path in tmp_path.iterdir())


def test_files_older_than_asked_go(tmp_path: Path) -> None:
    foreign = tmp_path / "access-of-mine.parquet"
    foreign.touch()
    left = tmp_path / ".access-19991231T235959Z-00000000-000001.parquet.1.partial"
    left.touch()
    os.utime(left, (BEGIN, BEGIN))
    log = ParquetAccessLog(tmp_path, rotate_seconds=60.0, rotate_rows=1, keep_days=2.0, secret=SECRET)
    log.write([cached(0.0)], BEGIN)
    log.write([cached(DAY)], BEGIN + DAY)
    log.tend(BEGIN + 2 * DAY + 60.0)  # the last row of the first file may be 60 s younger than its name
    assert len(files(tmp_path)) == 3
    assert not left.exists()
    log.tend(BEGIN + 2 * DAY + 121.0)
    kept = files(tmp_path)
    assert [path.name[:23] for path in kept] == ["access-20231115T221320Z", "access-of-mine.parquet"]


def test_what_is_being_written_is_left_alone(tmp_path: Path) -> None:
    one, other = (ParquetAccessLog(tmp_path, secret=SECRET) for _ in range(2))
    now = Path(tmp_path).stat().st_mtime
    one.write([cached(0.0)], now)
    other.tend(now + DAY)
    one.close()
    assert len(files(tmp_path)) == 1


KILLED = """
import sys
from pathlib import Path
from traces.access.log import AccessLog
from traces.access.parquet_log import ParquetAccessLog
from tests.traces.access_records import cached
destination = ParquetAccessLog(Path(sys.argv[1]), rotate_rows=100, row_group_rows=10)
log = AccessLog(destination, every_seconds=0.001)
log.start()
for index in range(100_000_000):
    log.add(cached(index * 0.001, f"k{index}"))
    if index % 50 == 49:
        print(index, flush=True)
        sys.stdin.readline()
"""


def test_a_killed_process_leaves_whole_files(tmp_path: Path) -> None:
    """Of what it wrote, all but the rows since the last rotation; and the next process goes on in the folder."""
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        while len(files(tmp_path)) < 3:
            process.stdout.readline()
            process.stdin.write("\n")
            process.stdin.flush()
        process.send_signal(signal.SIGKILL)
        process.wait()
    done = files(tmp_path)
    rows = sum(pq.read_metadata(file).num_rows for file in done)
    trace = load_trace(tmp_path)
    assert len(trace) == rows >= 300
    assert trace.arrival_seconds.tolist() == pytest.approx([0.001 * index for index in range(rows)], abs=1e-6)
    log = ParquetAccessLog(tmp_path)
    log.write([cached(1e6, "k0")], BEGIN + 1e6)
    log.close()
    again = load_trace(tmp_path)
    assert len(again) == rows + 1
    assert again.key[-1] == 0  # under the secret of before


FULL = """
import resource, sys
from pathlib import Path
from traces.access.log import NotWritten
from traces.access.parquet_log import ParquetAccessLog
from tests.traces.access_records import BEGIN, cached
folder = Path(sys.argv[1])
log = ParquetAccessLog(folder, row_group_rows=1000)
log.write([cached(0.0)], BEGIN)
log.close()
resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, resource.RLIM_INFINITY))  # as on a full disk
log.write([cached(float(index), f"k{index}") for index in range(1000)], BEGIN)
lost = 0
try:
    log.write([cached(float(index), f"l{index}") for index in range(4000)], BEGIN)
    log.close()
except NotWritten as error:
    print(error, file=sys.stderr)
    lost = error.records
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
log.write([cached(5000.0)], BEGIN + 5000.0)
log.close()
print(lost)
"""


def test_a_full_disk_costs_the_rows_of_a_file_and_says_how_many(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", "-c", FULL, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.stdout == "5000\n", done.stderr
    assert "File too large" in done.stderr
    assert done.stderr.count("\n") == 1
    assert [pq.read_metadata(file).num_rows for file in files(tmp_path)] == [1, 1]
    assert not list(tmp_path.glob(".*.partial"))


def test_a_folder_that_goes_away_loses_the_rows_since_the_last_rotation(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    log = ParquetAccessLog(folder, rotate_rows=10, secret=SECRET)
    log.write([cached(0.0)] * 3, BEGIN)
    shutil.rmtree(folder)
    with pytest.raises(NotWritten) as caught:
        log.close()
    assert caught.value.records == 3
    log.write([cached(1.0)] * 10, BEGIN)  # the folder is made again
    assert len(load_trace(folder)) == 10


def test_bad_settings_are_bad_input(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="rotate_seconds: got 0, expected above 0"):
        ParquetAccessLog(tmp_path, rotate_seconds=0)
    with pytest.raises(InputError, match="keep_days: got -1, expected above 0"):
        ParquetAccessLog(tmp_path, keep_days=-1)
    (tmp_path / "file").touch()
    with pytest.raises(SetpointError, match="cannot be written"):
        ParquetAccessLog(tmp_path / "file" / "log")


class Blocked:
    """A destination that stands until it is let go; then it fails where it is told to."""

    def __init__(self, fails: bool = False) -> None:
        self.go, self.began = threading.Event(), threading.Event()
        self.fails, self.written, self.closed = fails, list[AccessRecord](), False

    def ready(self) -> bool:
        return True

    def write(self, records: Sequence[AccessRecord], now_seconds: float) -> None:
        self.began.set()
        assert self.go.wait(30.0)
        if self.fails:
            raise NotWritten("it fails", len(records))
        self.written += records

    def tend(self, now_seconds: float) -> None:
        """Nothing to do."""

    def close(self) -> None:
        self.closed = True


def test_what_there_is_no_room_for_is_dropped_and_counted() -> None:
    destination = Blocked()
    log = AccessLog(destination, most_waiting=10, every_seconds=0.001)
    log.start()
    log.add(cached(0.0))
    assert destination.began.wait(30.0)
    for index in range(25):
        log.add(cached(float(index)))
    assert (log.recorded, log.dropped) == (26, 15)
    destination.go.set()
    log.close()
    assert destination.closed
    assert [one.arrival_seconds - BEGIN for one in destination.written] == [0.0, *range(10)]
    log.add(cached(99.0))
    assert (log.recorded, log.dropped, log.last_error) == (27, 16, None)


def test_a_destination_that_fails_counts_and_goes_on() -> None:
    destination = Blocked(fails=True)
    destination.go.set()
    log = AccessLog(destination, every_seconds=0.001)
    log.start()
    for index in range(3):
        log.add(cached(float(index)))
    until(lambda: log.dropped == 3)
    destination.fails = False
    log.add(cached(3.0))
    log.close()
    assert [one.arrival_seconds - BEGIN for one in destination.written] == [3.0]
    assert (log.recorded, log.dropped, log.last_error) == (4, 3, "it fails")


def test_a_log_that_never_began_can_be_closed() -> None:
    AccessLog(Blocked()).close()


def until(true: Callable[[], bool]) -> None:
    waited = threading.Event()
    for _ in range(6_000):
        if true():
            return
        waited.wait(0.005)
    pytest.fail("it did not happen in time")
