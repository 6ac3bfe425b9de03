"""The access log of the live cache: a folder of Parquet files that gateways write, or one of them.

Rows are written when requests end, and by several gateways at once; a trace is in order of arrival. Each row group says
when its earliest request came. Row groups are read in that order, and a row is passed on when no group that is still to
come has one as early: memory follows how far they overlap, and not how long the log is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from caches.errors import InputError
from caches.keys.levels import LEVELS
from traces.access.chunks import TOKENS, cached_only, chunk_of
from traces.access.parquet_log import FILE_NAME
from traces.access.table import FORMAT_VERSION, LATER, LEVEL_COLUMNS, METADATA, SCHEMA
from traces.formats.parquet import count, opened, parquet_parts
from traces.reader import Chunk, Format, Head, Location, ReadOptions

PLACE = ("place_part", "place_record")  # columns of our own: where a row was read
READ = [name for name in SCHEMA.names if name not in LATER]


def is_access_log(path: Path) -> bool:
    """Whether it is a folder that the gateway writes its access log to, or a file of one."""
    if path.is_dir():
        path = next(iter(sorted(path.glob("*.parquet"))), path)
    if path.suffix != ".parquet" or not path.is_file():
        return False
    try:
        return METADATA in (pq.read_schema(path).metadata or {})
    except (pa.ArrowException, OSError):
        return False  # reading it as any table says what is wrong


def has_levels(path: Path) -> bool:
    """Whether some request in it has keys at every level of normalisation."""
    return any(_has(part, LEVEL_COLUMNS[LEVELS[0]]) for part in parquet_parts(path))


def read(path: Path, options: ReadOptions) -> Iterator[Chunk]:
    parts, key = parquet_parts(path), "key" if options.key_level is None else LEVEL_COLUMNS[options.key_level]
    groups = sorted((group for part in range(len(parts)) for group in _groups(parts, part, key)), key=_Group.order)
    stated = frozenset[str]().union(*(group.stated for group in groups))
    left_out = any(group.left_out for group in groups)
    size, rows = sum(part.stat().st_size for part in parts), sum(group.rows for group in groups)
    waiting, done = None, 0
    for group, following in zip(groups, [*groups[1:], None], strict=True):
        kept = cached_only(_table(parts, group, key), key)
        waiting = kept if waiting is None else pa.concat_tables([waiting, kept])
        ready, waiting = _split(waiting, None if following is None else following.earliest)
        done += group.rows
        if options.progress is not None:
            options.progress(size * done // rows, size)
        yield chunk_of(ready, stated, left_out, partial(_locate, parts, ready), key)


@dataclass(frozen=True)
class _Group:
    """A row group that is not empty. part: of the list of files. stated: those of TOKENS that some row has. left_out:
    whether some row has no place in a trace."""

    earliest: datetime
    part: int
    number: int
    rows: int
    first_record: int
    stated: frozenset[str]
    left_out: bool

    def order(self) -> tuple[datetime, int, int]:
        return self.earliest, self.part, self.number


def _groups(parts: list[Path], part: int, key: str) -> Iterator[_Group]:
    path, first = parts[part], 1
    with opened(path) as file:
        about, found = file.metadata, file.schema_arrow
    if (found.metadata or {}).get(METADATA) != FORMAT_VERSION or not set(READ) <= set(found.names):
        raise InputError(f"{path}: got a Parquet file of another kind, expected one of the access log beside it")
    if key not in found.names:
        raise InputError(f"{path}: got no {key}, expected a log with key_levels = true in [access_log]")
    for number in range(about.num_row_groups):
        group = about.row_group(number)
        columns = {one.path_in_schema: one.statistics for one in map(group.column, range(group.num_columns))}
        if any(one is None or not one.has_null_count for one in columns.values()) or not columns["time"].has_min_max:
            raise InputError(f"{path}: got a file without statistics, expected it as the gateway wrote it")
        stated = frozenset(name for name in TOKENS if columns[name].null_count < group.num_rows)
        left_out = columns[key].null_count + columns["size"].null_count > 0
        yield _Group(columns["time"].min, part, number, group.num_rows, first, stated, left_out)
        first += group.num_rows


def _has(part: Path, column: str) -> bool:
    with opened(part) as file:
        about, place = file.metadata, file.schema_arrow.get_field_index(column)
        groups = [about.row_group(number) for number in range(about.num_row_groups)]
        return place >= 0 and any(one.column(place).statistics.null_count < one.num_rows for one in groups)


def _table(parts: list[Path], group: _Group, key: str) -> Any:
    """The rows of a group, each with its place."""
    with opened(parts[group.part]) as file:
        table = file.read_row_group(group.number, columns=list(dict.fromkeys([*READ, key])))
    places = np.full(group.rows, group.part), np.arange(group.first_record, group.first_record + group.rows)
    for name, place in zip(PLACE, places, strict=True):
        table = table.append_column(name, pa.array(place))
    return table


def _split(table: Any, horizon: datetime | None) -> tuple[Any, Any]:
    """(rows that came before then, in order; the others). Without a horizon all did. Those that came at the same time
    stay in the order of the log."""
    columns = (table[name].cast(pa.int64()).to_numpy() for name in (*reversed(PLACE), "time"))
    table = table.take(pa.array(np.lexsort(tuple(columns))))
    if horizon is None:
        return table, None
    count = pc.sum(pc.less(table["time"], pa.scalar(horizon, table["time"].type))).as_py() or 0
    return table.slice(0, count), table.slice(count)


def _locate(parts: list[Path], table: Any, row: int) -> Location:
    part, record = (table[name][row].as_py() for name in PLACE)
    return Location(parts[part], None, record)


def _recognises(head: Head) -> bool:
    """By its name; by what is in it, `is_access_log` does."""
    return FILE_NAME.fullmatch(head.name) is not None


FORMAT = Format(
    "access_log",
    "the access log of `setpoint serve`, a folder of Parquet files",
    read,
    _recognises,
    levels=has_levels,
    count=count,
)
