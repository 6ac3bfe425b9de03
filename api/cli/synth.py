"""`setpoint trace synth`: make a synthetic trace, or compose one from two recordings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from api.cli.loading import load_with_progress
from api.cli.options import AsJson
from api.cli.output import print_json, print_table, progress_console, result_console
from caches.errors import InputError
from traces.catalog import check_output, write_trace
from traces.compose import Arrivals, Span, Volume, compose
from traces.servegen import read_lengths, read_rates
from traces.synthetic.config import load_workload
from traces.synthetic.generate import synthesise
from traces.trace import Trace


def synth(
    out: Annotated[Path, typer.Argument(help="Folder NAME.trace to write, or one file NAME.parquet.")],
    config: Annotated[Path | None, typer.Option(help="TOML file with the parts of the workload.")] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", help="One setting as in TOML, e.g. popularity.alpha=1.1; may be repeated."),
    ] = None,
    days: Annotated[float | None, typer.Option(help="Length of the trace.")] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same trace.")] = 0,
    rates: Annotated[Path | None, typer.Option(help="Compose: CSV of ServeGen arrival rates, gives the times.")] = None,
    keys: Annotated[Path | None, typer.Option(help="Compose: trace that gives keys and sizes.")] = None,
    keys_licence: Annotated[str | None, typer.Option(help="Compose: licence of --keys, to be kept with it.")] = None,
    lengths: Annotated[Path | None, typer.Option(help="Compose: CSV of ServeGen lengths, gives the tokens.")] = None,
    start_day: Annotated[float | None, typer.Option(help="Compose: first day of the rates to use.")] = None,
    requests: Annotated[int | None, typer.Option(help="Compose: how many requests; all of --keys by default.")] = None,
    rate_scale: Annotated[
        float | None, typer.Option(help="Compose: factor on the rates, in place of --requests.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a converted trace.")] = False,
    as_json: AsJson = False,
) -> None:
    """Make a trace: synthetic from named parts, or real arrival rates with the keys of another trace."""
    check_output(out, overwrite=overwrite)
    name = out.name.removesuffix(".trace").removesuffix(".parquet")
    if rates is None:
        compose_only = {
            "--keys": keys,
            "--keys-licence": keys_licence,
            "--lengths": lengths,
            "--start-day": start_day,
            "--requests": requests,
            "--rate-scale": rate_scale,
        }
        _refuse_beside(compose_only, "it together with --rates")
        made = _synthetic(config, setting or [], days, seed, name)
    else:
        _refuse_beside({"--config": config, "--set": setting}, "it without --rates")
        if keys is None:
            raise InputError("--rates: got no --keys beside it, expected the trace that gives the keys")
        span, volume = Span(days, start_day or 0.0), Volume(requests, rate_scale)
        arrivals = Arrivals(read_rates(rates), span, volume, None if lengths is None else read_lengths(lengths))
        made = compose(arrivals, _licensed(load_with_progress(keys), keys_licence), seed, name)
    digest = write_trace(made, out, overwrite=overwrite)
    report(made, out, digest, as_json=as_json)


def _licensed(keys: Trace, licence: str | None) -> Trace:
    return keys if licence is None else replace(keys, info=replace(keys.info, licence=licence))


def _refuse_beside(options: Mapping[str, object], expected: str) -> None:
    for name, value in options.items():
        if value is not None:
            raise InputError(f"{name}: got {value!s}, expected {expected}")


def _synthetic(config: Path | None, settings: list[str], days: float | None, seed: int, name: str) -> Trace:
    length = [] if days is None else [f"days = {days}"]
    workload = load_workload(config, [*settings, *length])
    progress_console().print(f"drawing about {workload.expected_requests:,.0f} requests")
    return synthesise(workload, seed, name)


def report(made: Trace, out: Path, digest: str, *, as_json: bool) -> None:
    """What was made and written to `out`, as a table or as JSON."""
    if as_json:
        print_json(
            {
                "folder": out,
                "source": made.info.source,
                "composed": made.info.composed,
                "requests": len(made),
                "unique_keys": made.num_keys,
                "span_seconds": made.span_seconds,
                "sha256": digest,
                "assumptions": made.info.assumptions,
            }
        )
        return
    rows = [
        ("source", made.info.source),
        ("requests", f"{len(made):,}"),
        ("unique keys", f"{made.num_keys:,}"),
        ("span", f"{made.span_seconds:,.1f} s"),
        ("sha256", digest),
    ]
    print_table(None, ("trace", str(out)), rows)
    for sentence in made.info.assumptions:
        result_console().print(f"Assumption: {sentence}", markup=False)
