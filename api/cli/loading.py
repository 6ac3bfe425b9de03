"""Opening traces from the command line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from api.cli.output import progress_bar
from traces.catalog import load_trace, opens_at_once, read_trace
from traces.reader import ReadOptions
from traces.trace import Trace


def load_with_progress(file: Path, format_name: str | None = None, options: ReadOptions | None = None) -> Trace:
    """As `load_trace`, with a progress bar while a file that is not converted yet is read."""
    if opens_at_once(file):
        return load_trace(file)
    return read_with_progress(file, format_name, options)


def read_with_progress(file: Path, format_name: str | None, options: ReadOptions | None = None) -> Trace:
    """As `read_trace`, with a progress bar."""
    with progress_bar("bytes") as bar:
        task = bar.add_task(f"reading {file.name}", total=None)

        def advance(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        return read_trace(file, format_name, replace(options or ReadOptions(), progress=advance))
