"""One key per line, nothing else: an order of requests without times or sizes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from traces.csv_tables import CsvShape, csv_tables
from traces.reader import Chunk, Format, Head, ReadOptions

# A character that no key holds: the whole line is the key.
NO_DELIMITER = "\x1f"


def read(path: Path, options: ReadOptions) -> Iterator[Chunk]:
    for table in csv_tables(path, CsvShape(names=("key",), delimiter=NO_DELIMITER), options):
        yield Chunk(keys=table.text("key"), locate=table.locate)


def _recognises(head: Head) -> bool:
    return head.name.endswith(".keys")


FORMAT = Format("keys", "one key per line; needs requests per second", read, _recognises)
