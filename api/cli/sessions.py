"""`setpoint trace sessions`: days of agent traffic from recorded sessions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from api.cli.options import AsJson
from api.cli.output import progress_console
from api.cli.synth import report
from caches.errors import InputError
from traces.catalog import check_output, write_trace
from traces.servegen import read_rates
from traces.session_arrivals import Made, SessionStarts, compose_sessions


def sessions(
    file: Annotated[Path, typer.Argument(help="Recorded sessions, as for the format agent_sessions.")],
    out: Annotated[Path, typer.Argument(help="Folder NAME.trace to write.")],
    days: Annotated[float, typer.Option(help="Length of the trace.")] = 3.0,
    per_day: Annotated[
        float | None, typer.Option(help="Mean session starts a day; each recording about once by default.")
    ] = None,
    rates: Annotated[
        Path | None, typer.Option(help="CSV of ServeGen arrival rates that starts follow; a constant rate by default.")
    ] = None,
    start_day: Annotated[float | None, typer.Option(help="First day of --rates to use.")] = None,
    coarsen: Annotated[int, typer.Option(help="How many consecutive prompt blocks to join into one.")] = 1,
    seed: Annotated[int, typer.Option(help="The same seed gives the same trace.")] = 0,
    licence: Annotated[str | None, typer.Option(help="Licence of the recordings, to be kept with them.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a converted trace.")] = False,
    as_json: AsJson = False,
) -> None:
    """Make days of traffic from recorded agent sessions that have no start times: the starts are drawn."""
    check_output(out, overwrite=overwrite)
    if start_day is not None and rates is None:
        raise InputError(f"--start-day: got {start_day:g}, expected it together with --rates")
    starts = SessionStarts(days, per_day, None if rates is None else read_rates(rates), start_day or 0.0)
    progress_console().print(f"reading {file.name}", markup=False)
    made = compose_sessions(file, starts, seed, Made(out.name.removesuffix(".trace"), licence, coarsen))
    report(made, out, write_trace(made, out, overwrite=overwrite), as_json=as_json)
