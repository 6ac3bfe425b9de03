"""Any JSON lines file, by a mapping of roles to fields; a field may be a path such as usage.prompt_tokens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from traces.formats import operations
from traces.formats.mapping import check_roles, chunk_names, resolve
from traces.json_rows import JsonRow, json_rows, locator
from traces.reader import Chunk, Format, Head, ReadOptions, TimeUnit


def read(path: Path, options: ReadOptions) -> Iterator[Chunk]:
    """The first row decides which roles there are and whether keys are strings or integers; `ttl` may be
    missing or null in any row.
    """
    mapping: dict[str, str] = {}
    key_type: type = str
    for rows in json_rows(path, options):
        if not mapping:
            mapping = _mapping(rows[0], options)
            key_type = type(rows[0].get(mapping["key"]))
        yield _chunk(rows, mapping, key_type, options.time_unit or "s")


def _mapping(row: JsonRow, options: ReadOptions) -> dict[str, str]:
    check_roles(options.columns)
    present = [name for name in options.columns.values() if row.get(name) is not None]
    found = resolve(row.path, options.columns, (*row.fields, *present, *_ttl_column(options)))
    return {**found, "ttl": options.columns.get("ttl", "ttl")}


def _ttl_column(options: ReadOptions) -> list[str]:
    return [options.columns["ttl"]] if "ttl" in options.columns else []


def _chunk(rows: list[JsonRow], mapping: dict[str, str], key_type: type, unit: TimeUnit) -> Chunk:
    def counts(role: str) -> NDArray[np.int64] | None:
        if role not in mapping:
            return None
        return np.array([row.integer(mapping[role]) for row in rows], dtype=np.int64)

    def texts(role: str) -> pa.Array | None:
        return pa.array([row.text(mapping[role]) for row in rows]) if role in mapping else None

    time = mapping.get("time")
    return Chunk(
        keys=pa.array([_key(row, mapping["key"], key_type) for row in rows]),
        locate=locator(rows),
        time=None if time is None else np.array([row.seconds(time, unit) for row in rows]),
        size=counts("size"),
        prompt_tokens=counts("prompt_tokens"),
        output_tokens=counts("output_tokens"),
        ttl_seconds=np.array([_ttl(row, mapping["ttl"]) for row in rows]),
        operation=_operations(rows, mapping.get("operation")),
        namespace=texts("namespace"),
        session=_sessions(rows, mapping.get("session")),
        names=chunk_names(mapping),
    )


def _key(row: JsonRow, name: str, key_type: type) -> str:
    """Integers as their digits, so that a key may have any number of bits."""
    value = row.get(name)
    if type(value) is not key_type or key_type not in (str, int):
        wanted = {str: "a string", int: "an integer"}.get(key_type, "a string or an integer")
        raise row.bad(name, f"{wanted}, as in the first record" if key_type in (str, int) else wanted)
    return str(value)


def _sessions(rows: list[JsonRow], name: str | None) -> pa.Array | None:
    if name is None:
        return None
    for row in rows:
        if type(row.get(name)) not in (str, int):
            raise row.bad(name, "a string or an integer")
    return pa.array([str(row.get(name)) for row in rows])


def _ttl(row: JsonRow, name: str) -> float:
    return float("nan") if row.get(name) is None else row.number(name)


def _operations(rows: list[JsonRow], name: str | None) -> NDArray[np.uint8] | None:
    if name is None:
        return None
    codes, unknown = operations.codes(pa.array([row.text(name) for row in rows]), operations.GENERIC)
    if unknown is not None:
        raise rows[unknown].bad(name, f"one of {', '.join(operations.GENERIC)}")
    return codes


def _recognises(head: Head) -> bool:
    return head.name.endswith((".jsonl", ".ndjson"))


FORMAT = Format("jsonl", "any JSON lines file, by a field mapping", read, _recognises)
