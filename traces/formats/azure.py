"""Azure LLM inference traces: CSV of `TIMESTAMP,ContextTokens,GeneratedTokens`, without keys."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from traces.csv_tables import CsvShape, TextTable, csv_tables, header_names
from traces.modelled import SIZE_FROM_OUTPUT, size_from_output
from traces.reader import Chunk, Format, Head, ReadOptions, TimeUnit

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
NO_KEYS = "The source has no keys: every request is its own key, so hit ratios on this trace mean nothing."


def read(path: Path, options: ReadOptions) -> Iterator[Chunk]:
    for table in csv_tables(path, CsvShape(), options, COLUMNS):
        yield _chunk(table, options.time_unit or "iso")


def _chunk(table: TextTable, unit: TimeUnit) -> Chunk:
    output = table.integers("GeneratedTokens")
    return Chunk(
        keys=pa.array(np.arange(table.first_record, table.first_record + len(table), dtype=np.int64)),
        locate=table.locate,
        time=table.times("TIMESTAMP", unit),
        size=size_from_output(output),
        prompt_tokens=table.integers("ContextTokens"),
        output_tokens=output,
        names={
            "time": "TIMESTAMP",
            "prompt_tokens": "ContextTokens",
            "output_tokens": "GeneratedTokens",
            "size": "GeneratedTokens",
        },
        assumptions=(NO_KEYS, SIZE_FROM_OUTPUT),
    )


def _recognises(head: Head) -> bool:
    return header_names(head.line, ",") == COLUMNS


FORMAT = Format("azure", "Azure LLM inference CSV: arrivals and token counts, no keys", read, _recognises)
