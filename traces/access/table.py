"""Records of the access log as a table: the columns that every log has, named as the roles that traces know."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from caches.keys.levels import LEVELS, Level
from traces.access.record import AccessRecord
from traces.access.secret import HASH_BYTES, KeyHash

METADATA = b"setpoint.access_log"  # in the files of a log, so that readers know them
FORMAT_VERSION = b"1"
ARM = "arm"  # logs written before there were arms do not have this column, nor those before levels theirs
LEVEL_BYTES = 8  # of the hashes of levels: they are counted, and looked up nowhere
LEVEL_COLUMNS: dict[Level, str] = {level: f"key_{level.value}" for level in LEVELS}
LATER = frozenset({ARM, *LEVEL_COLUMNS.values()})

SCHEMA = pa.schema(
    [
        pa.field("time", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("key", pa.binary(HASH_BYTES)),
        pa.field("tenant", pa.string(), nullable=False),
        pa.field("namespace", pa.string(), nullable=False),
        pa.field("outcome", pa.string(), nullable=False),
        pa.field("status", pa.int16(), nullable=False),
        pa.field("size", pa.int64()),
        pa.field("prompt_tokens", pa.int64()),
        pa.field("output_tokens", pa.int64()),
        pa.field("compute_seconds", pa.float64()),
        pa.field("similarity", pa.float32()),
        pa.field("ttl", pa.float64()),
        pa.field(ARM, pa.string()),
        *(pa.field(name, pa.binary(LEVEL_BYTES)) for name in LEVEL_COLUMNS.values()),
    ],
    metadata={METADATA: FORMAT_VERSION},
)


def table_of(records: Sequence[AccessRecord], hashed: KeyHash) -> Any:
    """A pyarrow table of SCHEMA, in the order of the records."""
    columns = dict(zip(AccessRecord._fields, zip(*records, strict=True), strict=True))
    arrivals = [round(seconds * 1e6) for seconds in columns["arrival_seconds"]]
    keys = [None if one is None else hashed(one) for one in columns["key_id"]]
    plain = [column for name, column in columns.items() if name not in {"arrival_seconds", "key_id", "levels"}]
    levels = zip(*(level_hashes(one, hashed) for one in columns["levels"]), strict=True)
    return pa.table([arrivals, keys, *plain, *map(list, levels)], schema=SCHEMA)


def level_hashes(levels: tuple[bytes, ...] | None, hashed: KeyHash) -> tuple[bytes | None, ...]:
    """Of each level; None of each where there are none."""
    return (None,) * len(LEVELS) if levels is None else tuple(hashed(one)[:LEVEL_BYTES] for one in levels)
