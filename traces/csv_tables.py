"""CSV as a stream of tables of text columns; a bad cell is reported with its line."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import csv as arrow_csv

from caches.errors import BadRecord, InputError
from traces.reader import SECONDS_PER_UNIT, Location, ReadOptions, TimeUnit
from traces.streams import Block, read_blocks, record_starts


@dataclass(frozen=True)
class CsvShape:
    """How to cut a file. names: None takes them from the first line. quoted: a cell may be in double quotes
    and then hold delimiters and newlines. spaced: cells have spaces around them that do not count.
    """

    names: tuple[str, ...] | None = None
    delimiter: str = ","
    quoted: bool = False
    spaced: bool = False


@dataclass(frozen=True)
class TextTable:
    """Some consecutive records of a CSV file, each column a pyarrow array of text."""

    path: Path
    shape: CsvShape
    block: Block
    first_record: int
    columns: dict[str, Any]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def locate(self, row: int) -> Location:
        starts = record_starts(self.block.data, quoted=self.shape.quoted)
        lines = next(lines for number, (lines, _) in enumerate(starts) if number == row)
        return Location(self.path, self.block.first_line + lines, self.first_record + row)

    def text(self, name: str) -> Any:
        """The column as a pyarrow array; an empty cell is an error."""
        column = self.columns[name]
        empty = pc.equal(column, "").to_numpy(zero_copy_only=False)
        if empty.any():
            raise self.bad(int(np.argmax(empty)), name, "a value")
        return column

    def integers(self, name: str) -> NDArray[np.int64]:
        values: NDArray[np.int64] = self._cast(name, pa.int64(), "an integer")
        return values

    def numbers(self, name: str) -> NDArray[np.float64]:
        values: NDArray[np.float64] = self._cast(name, pa.float64(), "a number")
        return values

    def optional_numbers(self, name: str) -> NDArray[np.float64]:
        """As `numbers`, with NaN for an empty cell."""
        column = self.columns[name]
        filled = pc.if_else(pc.equal(column, ""), "nan", column)
        values: NDArray[np.float64] = self._cast(name, pa.float64(), "a number or nothing", filled)
        return values

    def times(self, name: str, unit: TimeUnit) -> NDArray[np.float64] | NDArray[np.int64]:
        """Seconds as float64; for unit "iso" nanoseconds since 1970 as int64, UTC where no zone is given."""
        if unit != "iso":
            return self.numbers(name) * SECONDS_PER_UNIT[unit]
        column = self.columns[name]
        zoned = pc.match_substring_regex(column, r"(Z|[+-]\d\d:?\d\d)$")
        utc = pc.if_else(zoned, column, pc.binary_join_element_wise(column, "Z", ""))
        values: NDArray[np.int64] = self._cast(name, pa.timestamp("ns", "UTC"), "an ISO 8601 time", utc)
        return values

    def bad(self, row: int, name: str, expected: str) -> BadRecord:
        where = self.locate(row)
        return BadRecord(self.path, where.line, name, self.columns[name][row].as_py(), expected)

    def _cast(self, name: str, kind: Any, expected: str, column: Any = None) -> Any:
        column = self.columns[name] if column is None else column
        try:
            values = pc.cast(column, kind)
        except pa.ArrowInvalid as error:
            raise self.bad(_first_failing(column, kind), name, expected) from error
        return (pc.cast(values, pa.int64()) if pa.types.is_timestamp(kind) else values).to_numpy()


def csv_tables(
    path: Path, shape: CsvShape, options: ReadOptions, required: tuple[str, ...] = ()
) -> Iterator[TextTable]:
    """The records of a CSV file, block by block; blank lines are skipped.

    Raises BadRecord for a header without a `required` column, a record with too few or too many cells and
    text that is not UTF-8.
    """
    names, record = shape.names, 1
    for block in read_blocks(path, options.chunk_bytes, options.progress, quoted=shape.quoted):
        if block.first_line == 1:
            block = Block(block.data.removeprefix(b"\xef\xbb\xbf"), 1)
        if names is None:
            names, block = _take_header(path, shape, block)
            _require(path, names, required)
        if block.data.strip():
            table = TextTable(path, shape, block, record, _parse(path, shape, block, names))
            record += len(table)
            yield table


def header_names(line: bytes, delimiter: str) -> tuple[str, ...]:
    """Column names of a header line, none where it cannot be one; a leading # and spaces do not count."""
    try:
        cells = next(csv.reader([line.decode(errors="replace")], delimiter=delimiter), [])
    except csv.Error:
        return ()
    return tuple(cell.strip().removeprefix("#").strip() for cell in cells)


def _take_header(path: Path, shape: CsvShape, block: Block) -> tuple[tuple[str, ...], Block]:
    end = block.data.find(b"\n") + 1 or len(block.data)
    names = header_names(block.data[:end], shape.delimiter)
    if not names or len(set(names)) < len(names):
        raise BadRecord(path, 1, "header", block.data[:end].decode(errors="replace"), "names that differ")
    return names, Block(block.data[end:], block.first_line + 1)


def _require(path: Path, names: tuple[str, ...], required: tuple[str, ...]) -> None:
    missing = [name for name in required if name not in names]
    if missing:
        raise BadRecord(path, 1, "header", ",".join(names), f"a column {missing[0]!r}")


def _parse(path: Path, shape: CsvShape, block: Block, names: tuple[str, ...]) -> dict[str, Any]:
    try:
        table = arrow_csv.read_csv(
            pa.py_buffer(block.data),
            read_options=arrow_csv.ReadOptions(column_names=names, use_threads=False, block_size=len(block.data) + 1),
            parse_options=arrow_csv.ParseOptions(
                delimiter=shape.delimiter,
                quote_char='"' if shape.quoted else False,
                newlines_in_values=shape.quoted,
            ),
            convert_options=arrow_csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string())),
        )
    except pa.ArrowInvalid as error:
        raise _explain(path, shape, block, names, error) from error
    columns = {name: table[name].combine_chunks() for name in names}
    return {name: pc.utf8_trim_whitespace(c) for name, c in columns.items()} if shape.spaced else columns


def _explain(path: Path, shape: CsvShape, block: Block, names: tuple[str, ...], error: Exception) -> InputError:
    """Finds the record that the parser refused."""
    for lines, record in record_starts(block.data, quoted=shape.quoted):
        line = block.first_line + lines
        try:
            text = record.decode()
        except UnicodeDecodeError:
            return BadRecord(path, line, None, record, "UTF-8 text")
        cells = _cells(text, shape)
        if cells is None:
            return BadRecord(path, line, None, text, "a record without an open quote")
        if len(cells) != len(names):
            return BadRecord(path, line, None, text, f"{len(names)} cells ({', '.join(names)})")
    return InputError(f"{path}, from line {block.first_line}: {error}")


def _cells(record: str, shape: CsvShape) -> list[str] | None:
    """The cells of a record, None where a quote does not end in it."""
    if not shape.quoted:
        return record.split(shape.delimiter)
    try:
        return next(csv.reader(record.splitlines(keepends=True), delimiter=shape.delimiter, strict=True), [])
    except csv.Error:
        return None


def _first_failing(column: Any, kind: Any) -> int:
    """The first row that cannot be cast, by halving: rows before `low` can, some row before `high` cannot."""
    low, high = 0, len(column)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            pc.cast(column.slice(low, middle - low), kind)
            low = middle
        except pa.ArrowInvalid:
            high = middle
    return low
