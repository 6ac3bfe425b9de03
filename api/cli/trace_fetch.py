"""`setpoint trace fetch`: turn an access log in a Redis stream into a trace."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Annotated

import typer

from api.cli.options import AsJson
from api.cli.trace import report
from caches.errors import InputError
from traces.catalog import check_output, write_trace
from traces.reader import ReadOptions

try:
    from traces.access.stream_log import stream_place
    from traces.access.stream_reading import read_stream
except ModuleNotFoundError as error:
    if error.name != "redis":
        raise
    raise InputError("setpoint trace fetch needs redis: install it with pip install 'setpoint[live]'") from error


def fetch(
    url: Annotated[str, typer.Argument(help="As of `setpoint serve --access-log`: redis://HOST:6379/0?stream=NAME.")],
    out: Annotated[Path, typer.Argument(help="Folder NAME.trace to write, or one file NAME.parquet.")],
    limit: Annotated[int | None, typer.Option(help="Read only so many requests.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a converted trace.")] = False,
    as_json: AsJson = False,
) -> None:
    """Convert the access log in a Redis stream, as it is now."""
    check_output(out, overwrite=overwrite)
    start = perf_counter()
    fetched = read_stream(stream_place(url), ReadOptions(limit=limit))
    digest = write_trace(fetched, out, overwrite=overwrite)
    report(replace(fetched, sha256=digest), out, perf_counter() - start, as_json=as_json)
