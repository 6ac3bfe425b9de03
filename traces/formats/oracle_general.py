"""libCacheSim's oracleGeneral: little-endian u32 time (s), u64 object, u32 size, i64 next access."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from caches.errors import InputError
from traces.reader import SECONDS_PER_UNIT, Chunk, Format, Head, Location, ReadOptions, TimeUnit
from traces.streams import read_bytes

RECORD = np.dtype([("time", "<u4"), ("object", "<u8"), ("size", "<u4"), ("next_access", "<i8")])


def read(path: Path, options: ReadOptions) -> Iterator[Chunk]:
    unit = options.time_unit or "s"
    if unit == "iso":
        raise InputError(f"{path}: got the time unit iso, expected one of {', '.join(SECONDS_PER_UNIT)}")
    rest, first = b"", 1
    for data in read_bytes(path, options.chunk_bytes, options.progress):
        rest += data
        whole = len(rest) // RECORD.itemsize
        if whole:
            yield _chunk(path, np.frombuffer(rest, dtype=RECORD, count=whole), first, unit)
        first, rest = first + whole, rest[whole * RECORD.itemsize :]
    if rest:
        offset = (first - 1) * RECORD.itemsize
        raise InputError(f"{path}: the record at offset {offset} has {len(rest)} bytes, expected {RECORD.itemsize}")


def _chunk(path: Path, records: NDArray[np.void], first: int, unit: TimeUnit) -> Chunk:
    return Chunk(
        keys=pa.array(np.ascontiguousarray(records["object"])),
        locate=lambda row: Location(path, None, first + row),
        time=records["time"] * SECONDS_PER_UNIT[unit],
        size=records["size"].astype(np.int64),
    )


def _recognises(head: Head) -> bool:
    return "oraclegeneral" in head.name.lower()


FORMAT = Format("oracle_general", "libCacheSim oracleGeneral binary, 24-byte records", read, _recognises)
