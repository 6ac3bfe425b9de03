"""Opening traces from the command line."""

from __future__ import annotations

from pathlib import Path

from api.cli.output import progress_bar
from traces.catalog import load_trace
from traces.reader import ReadOptions
from traces.store import is_converted
from traces.trace import Trace


def load_with_progress(file: Path, format_name: str | None = None, requests_per_second: float | None = None) -> Trace:
    """As `load_trace`, with a progress bar while a file that is not converted yet is read."""
    if is_converted(file):
        return load_trace(file)
    with progress_bar("bytes") as bar:
        task = bar.add_task(f"reading {file.name}", total=None)

        def advance(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        options = ReadOptions(requests_per_second=requests_per_second, progress=advance)
        return load_trace(file, format_name, options)
