"""A trace as one Parquet file: smaller than a converted trace and easy to pass on; it opens as a whole, in memory.

Columns have the names of the roles that the `parquet` format knows, so other tools and `trace convert` read it too.
What only we know (origin, licence, assumptions, digest) is JSON in the file's metadata.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError

from caches.errors import InputError
from caches.files import written_whole
from traces.store import require_whole, trace_sha256
from traces.trace import Trace, TraceInfo

SUFFIX = ".parquet"
METADATA = b"setpoint.trace"
FORMAT_VERSION = 1
# Column of a trace -> column of the file.
NAMES = {
    "arrival_seconds": "time",
    "key": "key",
    "size_bytes": "size",
    "namespace": "namespace",
    "prompt_tokens": "prompt_tokens",
    "output_tokens": "output_tokens",
    "ttl_seconds": "ttl",
    "operation": "operation",
    "session": "session",
}
MILLISECONDS = pa.timestamp("ms")


class _About(BaseModel):
    model_config = ConfigDict(extra="forbid")
    version: int = FORMAT_VERSION
    info: TraceInfo
    num_keys: int
    sha256: str


def is_packed(path: Path) -> bool:
    """Whether `path` is a file that `save_packed` wrote."""
    if path.suffix != SUFFIX or not path.is_file():
        return False
    try:
        return METADATA in (pq.read_schema(path).metadata or {})
    except pa.ArrowException:
        return False  # reading it as a table says what is wrong


def save_packed(trace: Trace, file: Path, *, overwrite: bool = False) -> str:
    """Writes the trace, with arrival times rounded to the millisecond; returns the sha256 of the rounded trace.

    The file appears whole or not at all. Raises InputError where something is there already, unless `overwrite`, and
    for a trace with prompt blocks or operations, which have no place in the file.
    """
    check_packable(file, overwrite=overwrite)
    require_whole(trace)
    if trace.block_offsets is not None or trace.operation is not None:
        raise InputError(f"{file}: got a trace with prompt blocks or operations, expected a folder NAME.trace for it")
    arrival_ms = np.rint(trace.arrival_seconds * 1000.0).astype(np.int64)
    columns: dict[str, Any] = {"time": pa.array(arrival_ms).cast(MILLISECONDS)}
    for name, column in _plain_columns(trace).items():
        columns[NAMES[name]] = pa.array(column, from_pandas=name == "ttl_seconds")
    digest = trace_sha256(_assembled(arrival_ms, trace.info, trace.num_keys, _plain_columns(trace)))
    about = _About(info=trace.info, num_keys=trace.num_keys, sha256=digest)
    table = pa.table(columns).replace_schema_metadata({METADATA: orjson.dumps(about.model_dump(mode="json"))})
    with written_whole(file) as partial:
        pq.write_table(
            table,
            partial,
            compression="zstd",
            compression_level=19,
            use_dictionary=[name for name in columns if name != "time"],
            column_encoding={"time": "DELTA_BINARY_PACKED"},
        )
    return digest


def open_packed(file: Path) -> Trace:
    """Raises InputError naming the file when it is damaged or was changed."""
    try:
        table = pq.read_table(file)
        about = _About.model_validate_json(table.schema.metadata[METADATA])
        columns = {name: _column(table, name) for name in NAMES if NAMES[name] in table.column_names}
        arrival_ms = table["time"].cast(pa.int64()).to_numpy()
    except (pa.ArrowException, OSError, ValidationError, KeyError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{file}: got a damaged trace ({reason}), expected one that Setpoint wrote") from error
    del columns["arrival_seconds"]
    trace = _assembled(arrival_ms, about.info, about.num_keys, columns, about.sha256)
    if trace_sha256(trace) != about.sha256:
        raise InputError(f"{file}: got columns with sha256 {trace_sha256(trace)}, expected {about.sha256}")
    return trace


def check_packable(file: Path, *, overwrite: bool) -> None:
    """Raises InputError where `save_packed` would refuse the place, so that long work need not be done first."""
    if not file.parent.is_dir():
        raise InputError(f"{file}: got no folder {file.parent}, expected it to exist")
    if file.exists() and not (overwrite and is_packed(file)):
        expected = "one that Setpoint wrote" if overwrite else "a new name or the overwrite option"
        raise InputError(f"{file}: exists already, expected {expected}")


def _plain_columns(trace: Trace) -> dict[str, Any]:
    present = {name: getattr(trace, name) for name in NAMES if name not in ("arrival_seconds", "operation")}
    return {name: column for name, column in present.items() if column is not None}


def _assembled(
    arrival_ms: NDArray[np.int64], info: TraceInfo, num_keys: int, columns: dict[str, Any], sha256: str = ""
) -> Trace:
    return Trace(info=info, arrival_seconds=arrival_ms / 1000.0, num_keys=num_keys, sha256=sha256, **columns)


def _column(table: Any, name: str) -> NDArray[Any]:
    column = table[NAMES[name]]
    if name == "ttl_seconds":
        return np.asarray(column.to_numpy(zero_copy_only=False), np.float32)
    return np.asarray(column.to_numpy())
