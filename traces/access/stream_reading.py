"""An access log in a Redis stream, read as a trace."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from caches.errors import InputError
from caches.tiers.redis_connection import connect, reached
from traces.access.chunks import TOKENS, cached_only, chunk_of, in_order
from traces.access.stream_log import NAME, StreamPlace
from traces.access.table import ARM, SCHEMA
from traces.assemble import read_format
from traces.reader import Chunk, Format, Location, ReadOptions
from traces.trace import Trace

PAGE = 10_000  # entries asked for at once
PATIENCE_SECONDS = 30.0
REQUIRED = frozenset({"time", "tenant", "namespace", "outcome", "status"})
INTEGERS = frozenset({"status", "size", *TOKENS})
TEXTS = frozenset({"tenant", "namespace", "outcome", ARM})


def read_stream(place: StreamPlace, options: ReadOptions) -> Trace:
    """All that the stream holds now, in order of arrival. Raises InputError for entries that are none of an access log,
    and TierError where Redis cannot be reached."""
    kind = Format("redis stream", "an access log", lambda path, _: _chunks(path, place), lambda _: False)
    return read_format(Path(place.stream.replace("/", "_")), kind, options)


def _chunks(path: Path, place: StreamPlace) -> Iterator[Chunk]:
    """One chunk: which token counts are stated at all is known at the end, and a stream fits into memory anyway."""
    pages = [_table(place.stream, page) for page in _pages(place)]
    whole = pa.concat_tables([SCHEMA.empty_table(), *pages])
    kept = in_order(cached_only(whole))
    stated = frozenset(name for name in TOKENS if kept[name].null_count < len(kept))
    yield chunk_of(kept, stated, len(kept) < len(whole), lambda row: Location(path, None, row + 1))


def _pages(place: StreamPlace) -> Iterator[list[Any]]:
    """(id, fields) of the entries, PAGE at a time."""
    connection: Any = connect(place.url, PATIENCE_SECONDS)

    async def page(after: bytes) -> Any:
        async with reached(NAME):
            return await connection.xrange(place.stream, min=after, count=PAGE)

    with asyncio.Runner() as loop:
        try:
            entries = loop.run(page(b"-"))
            while entries:
                yield entries
                entries = loop.run(page(b"(" + entries[-1][0]))
        finally:
            loop.run(connection.aclose())


def _table(stream: str, entries: list[Any]) -> Any:
    columns: dict[str, list[Any]] = {name: [] for name in SCHEMA.names}
    for name, fields in entries:
        told = {field.decode(errors="replace"): value for field, value in fields.items()}
        if not told.keys() >= REQUIRED:
            missing = min(REQUIRED - told.keys())
            raise InputError(f"{stream}, entry {name.decode()}: got no {missing}, expected an entry of an access log")
        for field, column in columns.items():
            value = told.get(field)
            try:
                column.append(None if value is None else _value(field, value))
            except ValueError as error:
                raise InputError(
                    f"{stream}, entry {name.decode()}, {field}: got {value!r}, expected as the gateway writes it"
                ) from error
    return pa.table(columns, schema=SCHEMA)


def _value(field: str, value: bytes) -> Any:
    if field in TEXTS:
        return value.decode()
    if field == "key":
        return bytes.fromhex(value.decode())
    if field == "time":
        return round(float(value) * 1e6)
    return int(value) if field in INTEGERS else float(value)
