"""Any Parquet file, or a folder of them in order of their names, by a mapping of roles to columns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from caches.errors import BadRecord, InputError
from traces.formats import operations
from traces.formats.mapping import chunk_names, resolve
from traces.reader import SECONDS_PER_UNIT, Chunk, Format, Head, Location, ReadOptions, TimeUnit

BYTES_PER_ROW = 64  # a rough width, to turn `chunk_bytes` into a number of rows


def read(path: Path, options: ReadOptions) -> Iterator[Chunk]:
    """Columns that are folders of a partition (`day=1/`) are not read; map columns inside the files."""
    parts = parquet_parts(path)
    total = sum(part.stat().st_size for part in parts)
    before = 0
    for part in parts:
        size = part.stat().st_size
        for share, chunk in _read_part(part, options):
            if options.progress is not None:
                options.progress(before + int(share * size), total)
            yield chunk
        before += size


def parquet_parts(path: Path) -> list[Path]:
    """The file itself, or all .parquet files below a folder, by name. Raises InputError where there is none."""
    if not path.exists():
        raise InputError(f"{path}: got no such file, expected a trace")
    parts = sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
    if not parts:
        raise InputError(f"{path}: got a folder without .parquet files, expected at least one")
    return parts


def count(path: Path) -> int:
    """Requests of a file or folder, by what the ends of the files say."""
    return sum(_rows(part) for part in parquet_parts(path))


def _rows(path: Path) -> int:
    with opened(path) as file:
        return int(file.metadata.num_rows)


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """An open Parquet file; what it cannot give becomes an InputError."""
    try:
        with pq.ParquetFile(path) as file:
            yield file
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path}: got a damaged Parquet file ({error})") from error


def _read_part(path: Path, options: ReadOptions) -> Iterator[tuple[float, Chunk]]:
    """(share of the file read so far, chunk)."""
    with opened(path) as file:
        mapping = resolve(path, options.columns, tuple(file.schema_arrow.names))
        rows = max(1, options.chunk_bytes // BYTES_PER_ROW)
        first = 1
        for batch in file.iter_batches(batch_size=rows, columns=sorted(set(mapping.values()))):
            table = _Batch(path, first, batch)
            first += batch.num_rows
            yield (first - 1) / file.metadata.num_rows, table.chunk(mapping, options.time_unit)


@dataclass(frozen=True)
class _Batch:
    path: Path
    first_record: int
    batch: Any

    def chunk(self, mapping: dict[str, str], unit: TimeUnit | None) -> Chunk:
        def counts(role: str) -> NDArray[np.int64] | None:
            return self._integers(mapping[role]) if role in mapping else None

        return Chunk(
            keys=self._keys(mapping["key"]),
            locate=self._locate,
            time=self._times(mapping["time"], unit) if "time" in mapping else None,
            size=counts("size"),
            prompt_tokens=counts("prompt_tokens"),
            output_tokens=counts("output_tokens"),
            ttl_seconds=self._optional_numbers(mapping["ttl"]) if "ttl" in mapping else None,
            operation=self._operations(mapping["operation"]) if "operation" in mapping else None,
            namespace=self._texts(mapping["namespace"]) if "namespace" in mapping else None,
            session=self._keys(mapping["session"]) if "session" in mapping else None,
            names=chunk_names(mapping),
        )

    def _locate(self, row: int) -> Location:
        return Location(self.path, None, self.first_record + row)

    def _bad(self, row: int, name: str, expected: str) -> BadRecord:
        value = self.batch.column(name)[row].as_py()
        return BadRecord(self.path, None, f"record {self.first_record + row}, {name}", value, expected)

    def _column(self, name: str, expected: str) -> Any:
        """The column without dictionary encoding; a null is an error."""
        column = self.batch.column(name)
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if column.null_count:
            raise self._bad(int(np.argmax(column.is_null().to_numpy(zero_copy_only=False))), name, expected)
        return column

    def _keys(self, name: str) -> Any:
        column = self._column(name, "a string, bytes or an integer")
        kind = column.type
        texts = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
        if not (pa.types.is_integer(kind) or pa.types.is_fixed_size_binary(kind) or any(t(kind) for t in texts)):
            raise self._bad(0, name, f"strings, bytes or integers as keys, not {kind}")
        return column

    def _integers(self, name: str) -> NDArray[np.int64]:
        column = self._column(name, "an integer")
        if not pa.types.is_integer(column.type):
            raise self._bad(0, name, f"integers, not {column.type}")
        return np.asarray(pc.cast(column, pa.int64()).to_numpy())

    def _times(self, name: str, unit: TimeUnit | None) -> NDArray[np.float64] | NDArray[np.int64]:
        column = self._column(name, "a time")
        if pa.types.is_timestamp(column.type):
            return np.asarray(pc.cast(column, pa.timestamp("ns", column.type.tz)).cast(pa.int64()).to_numpy())
        if unit == "iso" or not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
            raise self._bad(0, name, f"a timestamp or a number with a unit of s, ms, us or ns, not {column.type}")
        return np.asarray(pc.cast(column, pa.float64(), safe=False).to_numpy()) * SECONDS_PER_UNIT[unit or "s"]

    def _optional_numbers(self, name: str) -> NDArray[np.float64]:
        column = self.batch.column(name)
        if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
            raise self._bad(0, name, f"numbers, not {column.type}")
        return np.asarray(pc.cast(column, pa.float64()).fill_null(float("nan")).to_numpy())

    def _texts(self, name: str) -> Any:
        column = self._column(name, "a string")
        if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
            raise self._bad(0, name, f"strings, not {column.type}")
        return column

    def _operations(self, name: str) -> NDArray[np.uint8]:
        codes, unknown = operations.codes(self._texts(name), operations.GENERIC)
        if unknown is not None:
            raise self._bad(unknown, name, f"one of {', '.join(operations.GENERIC)}")
        return codes


def _recognises(head: Head) -> bool:
    return head.name.endswith(".parquet")


FORMAT = Format("parquet", "any Parquet file or folder of them, by a column mapping", read, _recognises, count=count)
