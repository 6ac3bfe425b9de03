"""`setpoint trace convert`: turn a trace or a log into a folder that opens at once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Annotated

import typer

from api.cli.loading import read_with_progress
from api.cli.options import AsJson, RequestsPerSecond
from api.cli.output import print_json, print_table, result_console
from caches.errors import InputError
from traces.catalog import FORMATS, check_output, opens_at_once, write_trace
from traces.reader import ReadOptions, TimeUnit
from traces.trace import Trace


def convert(
    file: Annotated[Path, typer.Argument(help="Trace or log, also .gz or .zst; or a folder of Parquet files.")],
    out: Annotated[Path, typer.Argument(help="Folder NAME.trace to write, or one file NAME.parquet.")],
    format_name: Annotated[
        str | None, typer.Option("--format", help=f"One of {', '.join(FORMATS)}; detected by default.")
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(help="ROLE=COLUMN for csv, jsonl and parquet, as in time=ts; may be repeated."),
    ] = None,
    time_unit: Annotated[TimeUnit | None, typer.Option(help="Unit of the arrival times.")] = None,
    requests_per_second: RequestsPerSecond = None,
    sessions_per_day: Annotated[
        float | None, typer.Option(help="Even spacing for a source of sessions without start times.")
    ] = None,
    coarsen: Annotated[int, typer.Option(help="How many consecutive prompt blocks to join into one.")] = 1,
    sort: Annotated[bool, typer.Option("--sort", help="Put requests in order of time.")] = False,
    limit: Annotated[int | None, typer.Option(help="Read only so many requests.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a converted trace.")] = False,
    as_json: AsJson = False,
) -> None:
    """Convert a trace or a log once, so that every later command opens it at once."""
    if opens_at_once(file):
        raise InputError(f"{file}: is a converted trace already, expected a file in another format")
    check_output(out, overwrite=overwrite)
    options = ReadOptions(
        columns=parse_columns(column or []),
        time_unit=time_unit,
        requests_per_second=requests_per_second,
        sort=sort,
        limit=limit,
        sessions_per_day=sessions_per_day,
        coarsen=coarsen,
    )
    start = perf_counter()
    converted = read_with_progress(file, format_name, options)
    digest = write_trace(converted, out, overwrite=overwrite)
    report(replace(converted, sha256=digest), out, perf_counter() - start, as_json=as_json)


def parse_columns(pairs: list[str]) -> dict[str, str]:
    """["time=ts"] to {"time": "ts"}. Raises InputError for anything else and for a role given twice."""
    columns: dict[str, str] = {}
    for pair in pairs:
        role, equals, name = pair.partition("=")
        if not (role and equals and name):
            raise InputError(f"--column: got {pair!r}, expected ROLE=COLUMN as in time=ts")
        if role in columns:
            raise InputError(f"--column: got {role} twice, expected each role once")
        columns[role] = name
    return columns


def report(converted: Trace, out: Path, seconds: float, *, as_json: bool) -> None:
    result = {
        "folder": out,
        "source": converted.info.source,
        "requests": len(converted),
        "unique_keys": converted.num_keys,
        "span_seconds": converted.span_seconds,
        "sha256": converted.sha256,
        "assumptions": converted.info.assumptions,
        "seconds": round(seconds, 3),
    }
    if as_json:
        print_json(result)
        return
    rows = [
        ("source", converted.info.source),
        ("requests", f"{len(converted):,}"),
        ("unique keys", f"{converted.num_keys:,}"),
        ("span", f"{converted.span_seconds:,.1f} s"),
        ("sha256", converted.sha256),
        ("converted in", f"{seconds:.1f} s"),
    ]
    print_table(None, ("trace", str(out)), rows)
    for sentence in converted.info.assumptions:
        result_console().print(f"Assumption: {sentence}")
