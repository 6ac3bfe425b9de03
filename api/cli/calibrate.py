"""`setpoint calibrate`: fit a serving profile to measured runs and say how far off it is on runs it did not see."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Annotated, get_args

import typer

from api.cli.options import AsJson
from api.cli.output import print_json, print_table, progress_console, result_console
from api.cli.trace import parse_columns
from caches.errors import InputError
from envs.calibration import Calibration, calibrate
from envs.calibration_report import ErrorRow, error_rows, save_profile, save_qq, sentence
from envs.deployment import Deployment, Reuse, Routing
from envs.measurement import EVERY_SECOND, NONE, measurement_of
from envs.serving import load_profile
from traces.reader import TimeUnit
from traces.request_logs import ROLES, MeasuredRun, read_runs

AUTO = "auto"


def calibrate_command(
    runs: Annotated[list[Path], typer.Argument(help="Logs of measured requests: CSV or JSON lines, also .gz or .zst.")],
    base: Annotated[
        str, typer.Option(help="Profile with the sizes of model and GPU, and a first guess of the rest: name or file.")
    ],
    out: Annotated[Path, typer.Option(help="Profile to write.")] = Path("profile.toml"),
    name: Annotated[str | None, typer.Option(help="Name in the profile; by default that of the file.")] = None,
    picture: Annotated[Path | None, typer.Option(help="QQ plot to write; the profile's name .png by default.")] = None,
    setup: Annotated[str | None, typer.Option(help="Which setup, where the logs hold several.")] = None,
    replicas: Annotated[int, typer.Option(help="GPUs that served the runs.")] = 1,
    routing: Annotated[
        str, typer.Option(help=f"How requests reach replicas: {AUTO} tries all of {', '.join(get_args(Routing))}.")
    ] = AUTO,
    reuse: Annotated[
        str | None,
        typer.Option(
            help=f"Where the prefix of a session is found again: {', '.join(get_args(Reuse))}; gpu by default, none "
            "for logs without sessions."
        ),
    ] = None,
    hold_back: Annotated[
        str, typer.Option(help=f"Runs not used to fit: {EVERY_SECOND}, {NONE}, or names with commas between.")
    ] = EVERY_SECOND,
    column: Annotated[
        list[str] | None,
        typer.Option(help=f"ROLE=COLUMN as in arrival=ts; may be repeated. Roles: {', '.join(ROLES)}."),
    ] = None,
    time_unit: Annotated[TimeUnit, typer.Option(help="Unit of all times in the logs.")] = "s",
    as_json: AsJson = False,
) -> None:
    """Fit a serving profile to measured runs; report its errors on runs that were not used to fit."""
    columns = parse_columns(column or [])
    picture = picture or out.with_suffix(".png")
    for path in (out, picture):
        if not path.parent.is_dir():
            raise InputError(f"{path}: got no folder {str(path.parent)!r}, expected one that exists")
    measured = chosen_setup([run for path in runs for run in read_runs(path, columns, time_unit)], setup)
    measurement = measurement_of(measured, hold_back)
    reuse = reuse or ("gpu" if measurement.has_sessions else "none")
    routings = _routings(routing, replicas, measurement.has_sessions)
    deployment = Deployment(replicas, routings[0], reuse)  # type: ignore[arg-type]  # checked there
    done = calibrate(measurement, load_profile(base), deployment, routings, _told)
    source = ", ".join(dict.fromkeys(run.source.name for run in measured)) + (f", setup {setup}" if setup else "")
    profile = save_profile(done, name or out.stem, source, out, date.today())
    save_qq(done, f"{profile.name}: {source}", picture)
    _report(done, out, picture, as_json=as_json)


def chosen_setup(measured: Sequence[MeasuredRun], setup: str | None) -> list[MeasuredRun]:
    """The runs of one setup. Raises InputError where there are several and none is named."""
    known = list(dict.fromkeys(run.setup for run in measured))
    if setup is None and len(known) > 1:
        raise InputError(f"--setup: got none for logs with several, expected one of {', '.join(known)}")
    if setup is not None and setup not in known:
        raise InputError(f"--setup: got {setup!r}, expected one of {', '.join(known)}")
    return [run for run in measured if setup is None or run.setup == setup]


def _routings(routing: str, replicas: int, sessions: bool) -> list[Routing]:
    known: tuple[Routing, ...] = get_args(Routing)
    if routing != AUTO and routing not in known:
        raise InputError(f"--routing: got {routing!r}, expected {AUTO} or one of {', '.join(known)}")
    if routing != AUTO:
        return [name for name in known if name == routing]
    if replicas == 1:
        return ["queue"]
    return [name for name in known if sessions or name not in {"session", "prefix"}]


def _told(what: str) -> None:
    progress_console().print(what)


def _report(done: Calibration, out: Path, picture: Path, *, as_json: bool) -> None:
    rows = error_rows(done)
    if as_json:
        print_json(
            {
                "profile": out,
                "picture": picture,
                "routing": done.deployment.routing,
                "reuse": done.deployment.reuse,
                "objective_by_routing": done.tried,
                "median_error_held_back": done.median_error(held=True),
                "median_error_fitted": done.median_error(held=False),
                "fitted": [{"name": fit.name, "value": fit.value, "determined": fit.determined} for fit in done.fitted],
                "runs": [row._asdict() for row in rows],
            }
        )
        return
    fitted = [
        (fit.name, f"{fit.value:,.6g}", f"{fit.halved - 1:+.0%}", f"{fit.doubled - 1:+.0%}") for fit in done.fitted
    ]
    print_table(
        "Fitted", ("parameter", "value", "fit worse at half", "at double"), fitted, "0 % and 0 %: not determined"
    )
    header = ("run", "requests", "used", *_columns("TTFT"), *_columns("latency"))
    print_table("Measured (s) and error of the prediction", header, [_cells(row) for row in rows])
    console = result_console()
    if len(done.tried) > 1:
        tried = ", ".join(f"{name} {value:.3f}" for name, value in sorted(done.tried.items(), key=lambda pair: pair[1]))
        console.print(f"Mean log error by routing, after a short search: {tried}")
    console.print(sentence(done))
    console.print(f"Profile: {out}\nPicture: {picture}")


def _columns(what: str) -> tuple[str, ...]:
    return tuple(f"{what} {label}" for label in ("P50", "P90", "P99"))


def _cells(row: ErrorRow) -> tuple[str, ...]:
    cells = [row.run, f"{row.requests:,}", "held back" if row.held else "to fit"]
    for values, errors in ((row.ttft_measured, row.ttft_errors), (row.latency_measured, row.latency_errors)):
        cells += [f"{value:.3g} {error:+.0%}" for value, error in zip(values, errors, strict=True)]
    return tuple(cells)
