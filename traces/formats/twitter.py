"""Twitter's in-memory cache traces (Yang, Yue, Vinayak, OSDI 2020) in three shapes.

- as published, without a header: timestamp (s), anonymised key, key size, value size, client id, operation,
  TTL (s, 0 where none is set);
- libCacheSim's copy, header `# time, object, size, next_access_vtime` (the last column may be missing);
- three columns, header `t_s,key,size_b`.

Sizes are key plus value, which is what the cache holds; libCacheSim's copy counts the same. The client id is
not used: it names a front end, not an owner of data.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from traces.csv_tables import CsvShape, TextTable, csv_tables, header_names
from traces.formats import operations
from traces.reader import Chunk, Format, Head, ReadOptions, TimeUnit
from traces.streams import first_line

PUBLISHED = ("timestamp", "key", "key_size", "value_size", "client_id", "operation", "ttl")
LIBCACHESIM = ("time", "object", "size")
SHORT = ("t_s", "key", "size_b")


def read(path: Path, options: ReadOptions) -> Iterator[Chunk]:
    header = header_names(first_line(path), ",")
    unit = options.time_unit or "s"
    if header[:3] in (LIBCACHESIM, SHORT):
        shape = CsvShape(spaced=header[:3] == LIBCACHESIM)
        for table in csv_tables(path, shape, options):
            yield _short(table, header, unit)
    else:
        for table in csv_tables(path, CsvShape(names=PUBLISHED), options):
            yield _published(table, unit)


def _short(table: TextTable, header: tuple[str, ...], unit: TimeUnit) -> Chunk:
    time, key, size = header[:3]
    return Chunk(
        keys=table.text(key),
        locate=table.locate,
        time=table.times(time, unit),
        size=table.integers(size),
        names={"time": time, "size": size},
    )


def _published(table: TextTable, unit: TimeUnit) -> Chunk:
    operation, unknown = operations.codes(table.columns["operation"], operations.MEMCACHED)
    if unknown is not None:
        raise table.bad(unknown, "operation", f"one of {', '.join(operations.MEMCACHED)}")
    ttl = table.numbers("ttl")
    return Chunk(
        keys=table.text("key"),
        locate=table.locate,
        time=table.times("timestamp", unit),
        size=table.integers("key_size") + table.integers("value_size"),
        ttl_seconds=np.where(ttl == 0, np.nan, ttl),
        operation=operation,
        names={"time": "timestamp", "size": "key_size + value_size", "ttl_seconds": "ttl"},
    )


def _recognises(head: Head) -> bool:
    cells = header_names(head.line, ",")
    if cells[:3] in (LIBCACHESIM, SHORT):
        return True
    return len(cells) == len(PUBLISHED) and cells[5] in operations.MEMCACHED


FORMAT = Format("twitter", "Twitter cache traces: as published, libCacheSim's CSV, t_s,key,size_b", read, _recognises)
