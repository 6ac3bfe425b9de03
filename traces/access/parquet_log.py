"""An access log as a folder of Parquet files, each of them complete.

A file is written under another name, a row group at a time, and gets its own when it is done: after so many seconds or
rows, and at the end. Where the process is killed, the rows since then are lost, and all files before are as they were.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from caches.errors import InputError, SetpointError
from caches.files import written_whole
from traces.access.log import NotWritten
from traces.access.record import AccessRecord
from traces.access.secret import key_hash, secret_in
from traces.access.table import SCHEMA, table_of

DAY_SECONDS = 86_400.0
BEGUN = "%Y%m%dT%H%M%SZ"
FILE_NAME = re.compile(r"access-(\d{8}T\d{6}Z)-[0-9a-f]{8}-\d{6,}\.parquet")
PARTIAL_NAMES = ".access-*.parquet.*.partial"  # as `written_whole` names them


class ParquetAccessLog:
    """A `Destination`. Several processes may write to one folder.

    A file ends rotate_seconds after it was begun, or as soon as it has rotate_rows rows. keep_days: files that are
    older as a whole are removed; None keeps all. secret: of the hashes; None for one that lies in the folder and that
    the first one here makes. row_group_rows: rows held in memory before they go to the file.

    Raises InputError, and SetpointError where the folder cannot be written.
    """

    def __init__(
        self,
        folder: Path,
        rotate_seconds: float = 3_600.0,
        rotate_rows: int = 1_000_000,
        keep_days: float | None = None,
        secret: bytes | None = None,
        row_group_rows: int = 10_000,
    ) -> None:
        positive = {"rotate_seconds": rotate_seconds, "rotate_rows": rotate_rows, "row_group_rows": row_group_rows}
        for name, value in (positive if keep_days is None else positive | {"keep_days": keep_days}).items():
            if not value > 0:
                raise InputError(f"{name}: got {value}, expected above 0")
        self._folder, self._rotate_seconds, self._rotate_rows = folder, rotate_seconds, rotate_rows
        self._keep_days, self._group_rows = keep_days, row_group_rows
        self._hashed = key_hash(secret_in(folder) if secret is None else secret)
        table_of([AccessRecord(0.0, b"", "", "", "", 0)], self._hashed)  # pyarrow loads what it needs now, not later
        self._file: _File | None = None
        self._process, self._numbers = secrets.token_hex(4), count(1)
        self._looked_seconds = float("-inf")  # when old files were last looked for

    def ready(self) -> bool:
        return True

    def write(self, records: Sequence[AccessRecord], now_seconds: float) -> None:
        file = self._file or self._begun(now_seconds, len(records))
        self._step(file, lambda: file.add(table_of(records, self._hashed)))
        if file.rows >= self._rotate_rows:
            self._finish(file)

    def tend(self, now_seconds: float) -> None:
        if abs(now_seconds - self._looked_seconds) >= min(self._rotate_seconds, 3_600.0):
            self._looked_seconds = now_seconds
            try:
                self._remove_old(now_seconds)
            except OSError as error:
                raise NotWritten(f"{self._folder}: {error}", 0) from error
        if self._file is not None and now_seconds - self._file.begun_seconds >= self._rotate_seconds:
            self._finish(self._file)

    def close(self) -> None:
        if self._file is not None:
            self._finish(self._file)

    def _begun(self, now_seconds: float, rows: int) -> _File:
        begun = datetime.fromtimestamp(now_seconds, UTC).strftime(BEGUN)
        path = self._folder / f"access-{begun}-{self._process}-{next(self._numbers):06}.parquet"
        try:
            self._file = _File(path, now_seconds, self._group_rows)
        except (SetpointError, OSError) as error:
            raise NotWritten(str(error), rows) from error
        return self._file

    def _finish(self, file: _File) -> None:
        self._step(file, file.finish)
        self._file = None

    def _step(self, file: _File, step: Callable[[], None]) -> None:
        """A file that fails is given up, with all that it was given: half of one can be read by nobody."""
        try:
            step()
        except (SetpointError, OSError) as error:
            self._file = None
            file.give_up(error)
            raise NotWritten(f"{self._folder}: {error}", file.rows) from error

    def _remove_old(self, now_seconds: float) -> None:
        """Files by the time in their names; what killed processes left, by when it was last written to."""
        unfinished = now_seconds - 2.0 * self._rotate_seconds - DAY_SECONDS
        for path in self._folder.glob(PARTIAL_NAMES):
            if _written_seconds(path) < unfinished:
                path.unlink(missing_ok=True)
        if self._keep_days is None:
            return
        oldest = now_seconds - self._keep_days * DAY_SECONDS - self._rotate_seconds
        for path in self._folder.iterdir():
            found = FILE_NAME.fullmatch(path.name)
            if found and datetime.strptime(found[1], BEGUN).replace(tzinfo=UTC).timestamp() < oldest:
                path.unlink(missing_ok=True)


class _File:
    """One that is being written. rows: all that it was given. Raises OSError and SetpointError."""

    def __init__(self, path: Path, begun_seconds: float, group_rows: int) -> None:
        self.begun_seconds, self.rows = begun_seconds, 0
        self._group_rows, self._buffer, self._buffered = group_rows, list[Any](), 0
        with ExitStack() as opening:
            partial = opening.enter_context(written_whole(path))
            opening.callback(_to_disk, partial)
            self._writer = opening.enter_context(pq.ParquetWriter(partial, SCHEMA, compression="zstd"))
            self._whole = opening.pop_all()  # closes the writer, and gives the file its name

    def add(self, table: Any) -> None:
        self.rows += len(table)
        self._buffer.append(table)
        self._buffered += len(table)
        if self._buffered >= self._group_rows:
            self._flush()

    def finish(self) -> None:
        self._flush()
        self._whole.close()

    def give_up(self, error: Exception) -> None:
        """Leaves nothing behind. error: why; what else goes wrong then is no news."""
        with suppress(SetpointError, OSError):
            self._whole.__exit__(type(error), error, error.__traceback__)

    def _flush(self) -> None:
        if self._buffer:
            self._writer.write_table(pa.concat_tables(self._buffer))
            self._buffer, self._buffered = [], 0


def _to_disk(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _written_seconds(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:  # finished, or removed by another process
        return float("inf")
