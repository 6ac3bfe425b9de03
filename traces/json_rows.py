"""JSON lines as a stream of batches of rows; a bad field is reported with its line."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from caches.errors import BadRecord
from traces.reader import SECONDS_PER_UNIT, Location, ReadOptions, TimeUnit
from traces.streams import read_blocks, record_starts


@dataclass(frozen=True)
class JsonRow:
    """One object of a JSON lines file. A field name may be a path: "usage.prompt_tokens"."""

    path: Path
    line: int
    record: int
    fields: dict[str, Any]

    def get(self, name: str) -> Any:
        """The field's value, None where it is absent or null."""
        if name in self.fields or "." not in name:
            return self.fields.get(name)
        value: Any = self.fields
        for part in name.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        return value

    def integer(self, name: str) -> int:
        value = self.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or abs(value) >= 2**63:
            raise self.bad(name, "an integer")
        return value

    def number(self, name: str) -> float:
        value = self.get(name)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise self.bad(name, "a number")
        return float(value)

    def text(self, name: str) -> str:
        value = self.get(name)
        if not isinstance(value, str):
            raise self.bad(name, "a string")
        return value

    def seconds(self, name: str, unit: TimeUnit) -> float:
        """A time in seconds; for unit "iso" since 1970, in UTC where no zone is given."""
        if unit != "iso":
            return self.number(name) * SECONDS_PER_UNIT[unit]
        try:
            moment = datetime.fromisoformat(self.text(name))
        except ValueError as error:
            raise self.bad(name, "an ISO 8601 time") from error
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()

    def bad(self, name: str, expected: str) -> BadRecord:
        return BadRecord(self.path, self.line, name, self.get(name), expected)


def json_rows(path: Path, options: ReadOptions) -> Iterator[list[JsonRow]]:
    """The rows of a JSON lines file, some at a time, never an empty list; blank lines are skipped.

    Raises BadRecord for a line that is not a JSON object.
    """
    record = 1
    for block in read_blocks(path, options.chunk_bytes, options.progress):
        rows: list[JsonRow] = []
        for lines, text in record_starts(block.data, quoted=False):
            rows.append(_row(path, block.first_line + lines, record + len(rows), text))
        record += len(rows)
        if rows:
            yield rows


def locator(rows: Sequence[JsonRow]) -> Callable[[int], Location]:
    """`Chunk.locate` for a chunk with one request for each row."""
    return lambda row: Location(rows[row].path, rows[row].line, rows[row].record)


def _row(path: Path, line: int, record: int, text: bytes) -> JsonRow:
    try:
        fields = orjson.loads(text.removeprefix(b"\xef\xbb\xbf") if line == 1 else text)
    except orjson.JSONDecodeError as error:
        raise BadRecord(path, line, None, text.decode(errors="replace"), f"JSON ({error})") from error
    if not isinstance(fields, dict):
        raise BadRecord(path, line, None, fields, "a JSON object")
    return JsonRow(path, line, record, fields)
