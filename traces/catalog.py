"""The trace formats by name, and the way from a path to a Trace."""

from __future__ import annotations

import difflib
from pathlib import Path

from caches.errors import InputError
from traces.assemble import read_format
from traces.formats import (
    access_log,
    agent_sessions,
    azure,
    cachelib,
    delimited,
    jsonl,
    keys,
    mooncake,
    openai_log,
    oracle_general,
    parquet,
    twitter,
)
from traces.packed import SUFFIX, check_packable, is_packed, open_packed, save_packed
from traces.reader import Format, Head, ReadOptions
from traces.shipped import located
from traces.store import check_writable, is_converted, open_trace, save_trace
from traces.streams import first_line, uncompressed_name
from traces.trace import Trace

# In order of detection: the first that recognises a file reads it, so the general ones come last.
FORMATS: dict[str, Format] = {
    module.FORMAT.name: module.FORMAT
    for module in (
        oracle_general,
        keys,
        access_log,
        parquet,
        mooncake,
        agent_sessions,
        openai_log,
        twitter,
        azure,
        cachelib,
        delimited,
        jsonl,
    )
}
GENERAL = (parquet, delimited, jsonl)


def find_format(name: str) -> Format:
    """The format of that name. Raises InputError that lists the known ones and names the nearest."""
    if name not in FORMATS:
        near = difflib.get_close_matches(name, FORMATS, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise InputError(f"trace format: got {name!r}, expected one of {', '.join(sorted(FORMATS))}{hint}")
    return FORMATS[name]


def detect_format(path: Path, options: ReadOptions) -> Format:
    """The format by the file's name and first line; a column mapping means one of the general formats.

    Raises InputError where no format is sure.
    """
    if not options.columns and access_log.is_access_log(path):
        return access_log.FORMAT
    if path.is_dir():
        return parquet.FORMAT
    head = Head(uncompressed_name(path), first_line(path))
    candidates = [module.FORMAT for module in GENERAL] if options.columns else list(FORMATS.values())
    for candidate in candidates:
        if candidate.recognises(head):
            return candidate
    raise InputError(f"{path}: got no format that can be told from it, expected one of {', '.join(FORMATS)}")


def trace_format(path: Path, format_name: str | None, options: ReadOptions) -> Format:
    """The format of that name, or the one that is detected. Raises InputError."""
    return find_format(format_name) if format_name is not None else detect_format(path, options)


def read_trace(path: Path | str, format_name: str | None = None, options: ReadOptions | None = None) -> Trace:
    """Reads a file (or a folder of Parquet files) in a known format; without a name the format is detected.

    Raises InputError, or BadRecord with the line, for everything wrong with the file.
    """
    path, options = Path(path), options or ReadOptions()
    return read_format(path, trace_format(path, format_name, options), options)


def load_trace(path: Path | str, format_name: str | None = None, options: ReadOptions | None = None) -> Trace:
    """Opens a converted, packed or shipped trace, or reads a file as `read_trace` does: for all that takes a trace."""
    path = located(Path(path))
    if is_converted(path):
        return open_trace(path)
    return open_packed(path) if is_packed(path) else read_trace(path, format_name, options)


def opens_at_once(path: Path) -> bool:
    """Whether `load_trace` has nothing to convert."""
    path = located(path)
    return is_converted(path) or is_packed(path)


def write_trace(trace: Trace, out: Path, *, overwrite: bool = False) -> str:
    """Writes a folder NAME.trace or a file NAME.parquet, by the name of `out`; returns the sha256 of what it holds."""
    save = save_packed if out.suffix == SUFFIX else save_trace
    return save(trace, out, overwrite=overwrite)


def check_output(out: Path, *, overwrite: bool) -> None:
    """Raises InputError where `write_trace` would refuse the place, so that long work need not be done first."""
    check = check_packable if out.suffix == SUFFIX else check_writable
    check(out, overwrite=overwrite)
