"""The key stream as the access log's folder of Parquet files has it. Files appear when they are complete, so this is
for the past: what a daemon should know when it begins."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from caches.target import Arm
from envs.journal import Batch
from traces.access.chunks import cached_only
from traces.access.parquet_log import BEGUN, FILE_NAME
from traces.access.table import ARM
from tuner.keys.stream import ID_BYTES, KeysUnavailable, Pending, Taken, batch_of

COLUMNS = ("time", "key", "size", "prompt_tokens", "output_tokens", "ttl", ARM)
ROTATE_SECONDS = 3_600.0  # as a gateway does it by default
AHEAD_SECONDS = 60.0  # how much later than what is asked for a file may have been begun


class ParquetKeys:
    """A `KeyStream`. since_seconds: requests before then are left out. rotate_seconds: how long a gateway writes to one
    file."""

    def __init__(self, folder: Path, since_seconds: float, rotate_seconds: float = ROTATE_SECONDS) -> None:
        self._folder, self._since, self._rotate = folder, since_seconds, rotate_seconds
        self._seen: set[str] = set()
        self._pending = Pending()

    @property
    def delay_seconds(self) -> float:
        """A file is complete when it is rotated."""
        return self._rotate + AHEAD_SECONDS

    def take(self, until_seconds: float) -> Taken:
        notes: tuple[str, ...] = ()
        try:
            for path in self._new(until_seconds):
                notes += self._read(path)
                self._seen.add(path.name)
        except OSError as error:
            raise KeysUnavailable(f"{self._folder}: {error}") from error
        return self._pending.take(until_seconds, notes)

    def _new(self, until_seconds: float) -> list[Path]:
        """Files that were not read yet and may hold requests of before then, in the order in which they were begun."""
        found = []
        for path in self._folder.iterdir():
            named = FILE_NAME.fullmatch(path.name)
            if named and path.name not in self._seen:
                begun = datetime.strptime(named[1], BEGUN).replace(tzinfo=UTC).timestamp()
                if self._since - self.delay_seconds <= begun <= until_seconds + AHEAD_SECONDS:
                    found.append((begun, path))
        return [path for _, path in sorted(found)]

    def _read(self, path: Path) -> tuple[str, ...]:
        """Into what is pending. A file that is none is said, once: it does not get better by waiting."""
        try:
            self._pending.add(self._batch(path))
        except pa.ArrowException as error:
            return (f"{path.name} cannot be read: {error}.",)
        return ()

    def _batch(self, path: Path) -> Batch:
        there = set(pq.read_schema(path).names)
        table = cached_only(pq.read_table(path, columns=[name for name in COLUMNS if name in there]))
        keys = pc.binary_slice(pc.cast(table["key"], pa.binary()), 0, ID_BYTES)
        ids = np.frombuffer(b"".join(keys.to_pylist()), ">u8").astype(np.uint64)
        arm = (
            pc.fill_null(pc.equal(table[ARM], Arm.TREATMENT), False).to_numpy() if ARM in there else np.zeros(len(ids))
        )
        time = pc.cast(table["time"], pa.int64()).to_numpy() / 1e6
        tokens = (pc.fill_null(table[name], 0).to_numpy() for name in ("prompt_tokens", "output_tokens"))
        batch = batch_of(ids, time, table["size"].to_numpy(), table["ttl"].to_numpy(), tuple(tokens), arm)
        return batch.of(time >= self._since)
