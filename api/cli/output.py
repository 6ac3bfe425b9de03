"""How commands print: results on stdout, progress on stderr."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import orjson
from rich import box
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

# A pipe or a file has no width: wide enough that no table row is folded or cut.
PIPE_WIDTH = 200


def result_console() -> Console:
    """For results. Plain text of a fixed width where stdout is not a terminal; obeys NO_COLOR."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else PIPE_WIDTH)


def progress_console() -> Console:
    """For progress and remarks, on stderr, so that a piped result stays clean; obeys NO_COLOR."""
    return Console(stderr=True, highlight=False, width=None if sys.stderr.isatty() else PIPE_WIDTH)


def print_json(value: object) -> None:
    """Print dataclasses, numpy arrays and plain values as JSON on stdout. NaN and infinity become null."""
    options = orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE
    sys.stdout.write(orjson.dumps(value, default=_plain, option=options).decode())


def print_table(
    title: str | None, columns: Sequence[str], rows: Sequence[Sequence[str]], caption: str | None = None
) -> None:
    """Print a table on stdout: the first column left, all others right aligned (they hold numbers)."""
    table = Table(title=title, caption=caption, box=box.SIMPLE_HEAD, title_justify="left", caption_justify="left")
    for position, column in enumerate(columns):
        table.add_column(Text(column), justify="right" if position else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    result_console().print(table)


def progress_bar(unit: str) -> Progress:
    """A bar on stderr with rate and time left; use as a context manager and add tasks to it.

    unit: what is counted, in the plural, as in "1,234 requests/s". Where stderr is not a terminal nothing
    moves: only the final state is printed, once.
    """
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        RateColumn(unit),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=progress_console(),
    )


class RateColumn(ProgressColumn):
    """Units per second over the last measurements; empty until there are two."""

    def __init__(self, unit: str) -> None:
        super().__init__()
        self.unit = unit

    def render(self, task: Task) -> Text:
        rate = task.finished_speed or task.speed
        if rate is None:
            return Text("")
        digits = 0 if rate >= 100 else 1
        return Text(f"{rate:,.{digits}f} {self.unit}/s")


def _plain(value: object) -> object:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, np.ndarray):  # one whose rows do not follow each other in memory
        return value.tolist()
    raise TypeError(f"cannot print {type(value).__name__} as JSON")
