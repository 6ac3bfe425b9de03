"""The seam between trace formats and the rest: a format turns one file into a stream of column chunks.

A new format is one file in traces/formats, one test sample and one line in traces/catalog.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from caches.errors import BadRecord
from caches.keys.levels import Level
from traces.streams import Progress

TimeUnit = Literal["s", "ms", "us", "ns", "iso"]
SECONDS_PER_UNIT = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}


class Location(NamedTuple):
    """Where a row stands in its file. `line` counts from 1; None where the format has no lines."""

    path: Path
    line: int | None
    record: int


@dataclass(frozen=True)
class Blocks:
    """Chains of prompt blocks; as in Trace, `offsets` has one entry more than the chunk has rows."""

    offsets: NDArray[np.int64]
    hashes: NDArray[np.int64]
    block_size_tokens: int


@dataclass(frozen=True)
class Chunk:
    """Some consecutive requests of a file, as the file has them; ranges and order are checked later.

    keys: a pyarrow array without nulls of strings, binary or integers (the same type in every chunk).
    time: seconds as float64 or nanoseconds as int64 (the same in every chunk), from any origin; None where
    the source has only an order. size (bytes), prompt_tokens, output_tokens: int64, None where the source has
    none. ttl_seconds: float64, NaN where a request has none. operation: uint8 of Operation. namespace: a
    pyarrow array of strings. session: a pyarrow array as for keys. A column is present in all chunks of a file or in
    none.
    locate: row of this chunk -> its place in the file; called only for an error.
    names: this module's column name -> the source's name for it, where they differ.
    assumptions: sentences about columns that the format models; repeated ones count once.
    """

    keys: Any
    locate: Callable[[int], Location]
    time: NDArray[np.float64] | NDArray[np.int64] | None = None
    size: NDArray[np.int64] | None = None
    prompt_tokens: NDArray[np.int64] | None = None
    output_tokens: NDArray[np.int64] | None = None
    ttl_seconds: NDArray[np.float64] | None = None
    operation: NDArray[np.uint8] | None = None
    namespace: Any = None
    session: Any = None
    blocks: Blocks | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    assumptions: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.keys)

    def head(self, rows: int) -> Chunk:
        """The first `rows` requests of this chunk."""
        columns = {name: getattr(self, name) for name in COLUMN_NAMES}
        cut = {name: column[:rows] for name, column in columns.items() if column is not None}
        if self.blocks is not None:
            cut["blocks"] = replace(self.blocks, offsets=self.blocks.offsets[: rows + 1])
        return replace(self, **cut)

    def bad(self, row: int, column: str, value: object, expected: str) -> BadRecord:
        """The error for one row of this chunk, with the source's own name of the column."""
        path, line, record = self.locate(row)
        name = self.names.get(column, column)
        return BadRecord(path, line, name if line is not None else f"record {record}, {name}", value, expected)


COLUMN_NAMES = tuple(f.name for f in fields(Chunk) if f.name not in {"locate", "blocks", "names", "assumptions"})


@dataclass(frozen=True)
class ReadOptions:
    """What a person may say about a file.

    columns: for formats without fixed names, role -> column, for example {"time": "ts"}. time_unit: None
    takes the format's own. requests_per_second: spacing for a source without arrival times. sort: put
    requests in order of time instead of refusing a file where time steps back. limit: stop after so many
    requests. sessions_per_day: spacing of the starts, for a source of sessions without them. coarsen: how many
    consecutive prompt blocks are read as one (traces.blocks). at_most: requests to hold; of a source that says how many
    more it has, only those of a share of the keys are kept, chosen by `sample_seed`. key_level: which of the keys of a
    source that has several (`Format.levels`); None: the one that its cache had in use. chunk_bytes: how much is read at
    a time; the result does not depend on it.
    """

    columns: Mapping[str, str] = field(default_factory=dict)
    time_unit: TimeUnit | None = None
    requests_per_second: float | None = None
    sort: bool = False
    limit: int | None = None
    sessions_per_day: float | None = None
    coarsen: int = 1
    at_most: int | None = None
    sample_seed: int = 0
    key_level: Level | None = None
    chunk_bytes: int = 8 * 2**20
    progress: Progress | None = None


class Head(NamedTuple):
    """What detection sees of a file: its name without .gz or .zst, and its first line."""

    name: str
    line: bytes


@dataclass(frozen=True)
class Format:
    """One trace format. `read` streams and raises InputError; `recognises` answers True only where the head
    of the file leaves no doubt. untimed_sessions: whether it holds sessions without start times, which
    `ReadOptions.sessions_per_day` spaces. levels: of formats that can have keys at every level of `caches.keys.levels`,
    whether a file has them. count: how many requests a file has, where that can be known without reading them.
    """

    name: str
    summary: str
    read: Callable[[Path, ReadOptions], Iterator[Chunk]]
    recognises: Callable[[Head], bool]
    untimed_sessions: bool = False
    levels: Callable[[Path], bool] | None = None
    count: Callable[[Path], int] | None = None
