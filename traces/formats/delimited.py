"""Any CSV or TSV file with a header, by a mapping of roles to columns (see docs/bring-your-trace.md)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from traces.csv_tables import CsvShape, TextTable, csv_tables
from traces.formats import operations
from traces.formats.mapping import chunk_names, resolve
from traces.reader import Chunk, Format, Head, ReadOptions, TimeUnit
from traces.streams import uncompressed_name


def read(path: Path, options: ReadOptions) -> Iterator[Chunk]:
    delimiter = "\t" if uncompressed_name(path).endswith(".tsv") else ","
    for table in csv_tables(path, CsvShape(delimiter=delimiter, quoted=True), options):
        mapping = resolve(path, options.columns, tuple(table.columns))
        yield _chunk(table, mapping, options.time_unit or "s")


def _chunk(table: TextTable, mapping: dict[str, str], unit: TimeUnit) -> Chunk:
    def counts(role: str) -> NDArray[np.int64] | None:
        return table.integers(mapping[role]) if role in mapping else None

    operation = None
    if "operation" in mapping:
        operation, unknown = operations.codes(table.columns[mapping["operation"]], operations.GENERIC)
        if unknown is not None:
            raise table.bad(unknown, mapping["operation"], f"one of {', '.join(operations.GENERIC)}")
    return Chunk(
        keys=table.text(mapping["key"]),
        locate=table.locate,
        time=table.times(mapping["time"], unit) if "time" in mapping else None,
        size=counts("size"),
        prompt_tokens=counts("prompt_tokens"),
        output_tokens=counts("output_tokens"),
        ttl_seconds=table.optional_numbers(mapping["ttl"]) if "ttl" in mapping else None,
        operation=operation,
        namespace=table.text(mapping["namespace"]) if "namespace" in mapping else None,
        session=table.text(mapping["session"]) if "session" in mapping else None,
        names=chunk_names(mapping),
    )


def _recognises(head: Head) -> bool:
    return head.name.endswith((".csv", ".tsv"))


FORMAT = Format("csv", "any CSV or TSV with a header, by a column mapping", read, _recognises)
