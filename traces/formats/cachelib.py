"""Meta's CacheLib key-value traces: CSV with a header, one row for `op_count` equal requests.

Used are `op_time` (s; order only where it is missing), `key`, `key_size`, `size` (bytes of the value), `op`,
`op_count` and `ttl` (s, 0 where none is set; it may be missing). Sizes are key plus value.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from traces.csv_tables import CsvShape, TextTable, csv_tables, header_names
from traces.formats import operations
from traces.reader import Chunk, Format, Head, ReadOptions, TimeUnit
from traces.trace import Operation

REQUIRED = ("key", "key_size", "op", "op_count", "size")
OPERATIONS = {
    "get": Operation.READ,
    "get_lease": Operation.READ,
    "set": Operation.WRITE,
    "set_lease": Operation.WRITE,
    "delete": Operation.DELETE,
}
MISSES = (
    "Sizes are as recorded: a read that missed in the source has no value size, so it counts with its key's size only."
)


def read(path: Path, options: ReadOptions) -> Iterator[Chunk]:
    for table in csv_tables(path, CsvShape(), options, REQUIRED):
        yield _chunk(table, options.time_unit or "s")


def _chunk(table: TextTable, unit: TimeUnit) -> Chunk:
    operation, unknown = operations.codes(table.columns["op"], OPERATIONS)
    if unknown is not None:
        raise table.bad(unknown, "op", f"one of {', '.join(name.upper() for name in OPERATIONS)}")
    count = table.integers("op_count")
    if (count < 1).any():
        raise table.bad(int(np.argmax(count < 1)), "op_count", "an integer of at least 1")
    row = np.repeat(np.arange(len(table)), count)
    ttl = table.numbers("ttl")[row] if "ttl" in table.columns else None
    return Chunk(
        keys=table.text("key").take(pa.array(row)),
        locate=lambda request: table.locate(int(row[request])),
        time=table.times("op_time", unit)[row] if "op_time" in table.columns else None,
        size=(table.integers("key_size") + table.integers("size"))[row],
        ttl_seconds=None if ttl is None else np.where(ttl == 0, np.nan, ttl),
        operation=operation[row],
        names={"time": "op_time", "size": "key_size + size", "ttl_seconds": "ttl"},
        assumptions=(MISSES,),
    )


def _recognises(head: Head) -> bool:
    return set(REQUIRED) <= set(header_names(head.line, ","))


FORMAT = Format("cachelib", "Meta CacheLib key-value CSV with operations and TTLs", read, _recognises)
