"""Converted traces: a folder NAME.trace with one .npy per column, opened by memory-mapping."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError

from caches.errors import InputError
from traces.trace import COLUMNS, Trace, TraceInfo

FORMAT_VERSION = 1
MANIFEST = "trace.json"
STORED_COLUMNS = (*COLUMNS, "block_offsets", "block_hashes")


class _Column(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    dtype: str
    rows: int


class _Manifest(BaseModel):
    model_config = ConfigDict(extra="forbid")
    version: int = FORMAT_VERSION
    info: TraceInfo
    num_keys: int
    sha256: str
    columns: dict[str, _Column]


def trace_sha256(trace: Trace) -> str:
    """Hex digest over name, type, length and content of every present column: the identity of the traffic.

    Name, source and assumptions do not enter, so the same requests have the same digest wherever they lie.
    """
    digest = hashlib.sha256()
    for name, column in _present(trace).items():
        digest.update(f"{name} {column.dtype.str} {len(column)}\n".encode())
        digest.update(np.ascontiguousarray(column).data)
    return digest.hexdigest()


def save_trace(trace: Trace, folder: Path | str, *, overwrite: bool = False) -> str:
    """Writes the trace to `folder` and returns its sha256.

    The folder appears whole or not at all. Raises InputError where something is there already, unless
    `overwrite` is set and it is a converted trace.
    """
    folder = Path(folder)
    check_writable(folder, overwrite=overwrite)
    require_whole(trace)
    partial = folder.with_name(f".{folder.name}.{os.getpid()}.partial")
    partial.mkdir()
    try:
        digest = _write(trace, partial)
        _replace(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return digest


def open_trace(folder: Path | str) -> Trace:
    """Opens a converted trace at once; its columns are read-only and loaded from disk as they are touched.

    Raises InputError naming the file for a missing, damaged or foreign file.
    """
    folder = Path(folder)
    manifest = _read_manifest(folder / MANIFEST)
    columns: dict[str, Any] = {name: _load(folder / f"{name}.npy", one) for name, one in manifest.columns.items()}
    return Trace(info=manifest.info, num_keys=manifest.num_keys, sha256=manifest.sha256, **columns)


def require_whole(trace: Trace) -> None:
    """Raises InputError for a trace that holds some of the keys only: what it stands for has no place in a file."""
    if trace.sample is not None:
        raise InputError(f"trace {trace.info.name}: holds {trace.sample.share:.3%} of the keys, expected all of them")


def is_converted(path: Path) -> bool:
    """Whether `path` is the folder of a converted trace."""
    return (path / MANIFEST).is_file()


def check_writable(folder: Path, *, overwrite: bool) -> None:
    """Raises InputError where `save_trace` would refuse, so that long work need not be done first."""
    if not folder.parent.is_dir():
        raise InputError(f"{folder}: got no folder {folder.parent}, expected it to exist")
    if not folder.exists():
        return
    if not overwrite:
        raise InputError(f"{folder}: exists already, expected a new name or the overwrite option")
    if not is_converted(folder):
        raise InputError(f"{folder}: is not a converted trace, expected one to overwrite")


def _present(trace: Trace) -> dict[str, NDArray[Any]]:
    columns = {name: getattr(trace, name) for name in STORED_COLUMNS}
    return {name: column for name, column in columns.items() if column is not None}


def _write(trace: Trace, folder: Path) -> str:
    columns = _present(trace)
    for name, column in columns.items():
        np.save(folder / f"{name}.npy", column, allow_pickle=False)
    manifest = _Manifest(
        info=trace.info,
        num_keys=trace.num_keys,
        sha256=trace_sha256(trace),
        columns={name: _Column(dtype=column.dtype.str, rows=len(column)) for name, column in columns.items()},
    )
    content = orjson.dumps(manifest.model_dump(mode="json"), option=orjson.OPT_INDENT_2)
    (folder / MANIFEST).write_bytes(content + b"\n")
    return manifest.sha256


def _replace(partial: Path, folder: Path) -> None:
    """Puts `partial` in the place of `folder`; the old one goes last, so a reader finds one of the two."""
    old = folder.with_name(f".{folder.name}.{os.getpid()}.old")
    if folder.exists():
        folder.rename(old)
    partial.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


def _read_manifest(path: Path) -> _Manifest:
    try:
        content = orjson.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise InputError(f"{path}: got no such file, expected a converted trace") from error
    except orjson.JSONDecodeError as error:
        raise InputError(f"{path}: got damaged JSON ({error}), expected a trace manifest") from error
    version = content.get("version") if isinstance(content, dict) else None
    if version != FORMAT_VERSION:
        raise InputError(f"{path}, version: got {version!r}, expected {FORMAT_VERSION}; convert the trace again")
    try:
        manifest = _Manifest.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        raise InputError(f"{path}, {field}: got {first['input']!r}: {first['msg']}") from error
    for name in ("arrival_seconds", "key", "size_bytes"):
        if name not in manifest.columns:
            raise InputError(f"{path}, columns: got no {name}, expected it in every trace")
    if unknown := sorted(manifest.columns.keys() - set(STORED_COLUMNS)):
        raise InputError(f"{path}, columns: got {unknown[0]!r}, expected one of {', '.join(STORED_COLUMNS)}")
    return manifest


def _load(path: Path, expected: _Column) -> NDArray[Any]:
    # Nothing can be mapped from an empty column. A plain ndarray is a view that keeps the mapping alive.
    try:
        column = np.asarray(np.load(path, mmap_mode="r" if expected.rows else None, allow_pickle=False))
    except FileNotFoundError as error:
        raise InputError(f"{path}: got no such file, expected a column of {expected.rows} rows") from error
    except (ValueError, EOFError, OSError) as error:
        raise InputError(f"{path}: got a damaged file ({error}), expected {expected.rows} rows") from error
    if column.shape != (expected.rows,) or column.dtype.str != expected.dtype:
        raise InputError(
            f"{path}: got shape {column.shape} of {column.dtype.str}, expected ({expected.rows},) of {expected.dtype}"
        )
    return column
