"""`setpoint trace info`: what a trace looks like, as tables and one picture."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from api.cli.loading import load_with_progress
from api.cli.options import AT_MOST, AsJson, AtMost, FormatName, RequestsPerSecond
from api.cli.output import print_json, print_table, result_console
from api.cli.trace_drift import drift_as_dict, drift_of, print_drift
from caches.errors import InputError
from traces.plots import save_workload
from traces.reader import ReadOptions
from traces.streams import uncompressed_name
from traces.workload import Distribution, PromptBlocks, Workload, analyse
from traces.workload_sample import scaled_up

PICTURES = Path("out")


def info(
    file: Annotated[Path, typer.Argument(help="A converted trace, or a trace file as for `convert`.")],
    png: Annotated[
        Path | None, typer.Option(help=f"Where to write the picture; {PICTURES}/NAME.info.png by default.")
    ] = None,
    window: Annotated[
        float | None,
        typer.Option(help="Seconds of the windows whose keys are compared; 12 to 36 by default."),
    ] = None,
    format_name: FormatName = None,
    requests_per_second: RequestsPerSecond = None,
    at_most: AtMost = AT_MOST,
    capacity_bytes: Annotated[
        int | None,
        typer.Option("--capacity-bytes", min=1, help="Of a cache, to say what key drift costs it in hits."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Describe a trace as tables and a picture: rates, keys, repeats, sizes, tokens, entropy and drift."""
    path = _picture_path(file, png)
    options = ReadOptions(requests_per_second=requests_per_second, at_most=at_most)
    trace = load_with_progress(file, format_name, options)
    workload = analyse(trace, window)
    if trace.sample is not None:
        workload = scaled_up(workload, trace.sample)
    drift = drift_of(file, format_name, options, capacity_bytes)
    path.parent.mkdir(exist_ok=True)
    save_workload(workload, path)
    if as_json:
        told = None if drift is None else drift_as_dict(drift)
        print_json({**workload.as_dict(), "key_drift": told, "picture": path})
        return
    _print(workload, path)
    if drift is not None:
        print_drift(drift)


def _picture_path(file: Path, png: Path | None) -> Path:
    """Raises InputError if the folder asked for does not exist; only the default one is made."""
    if png is None:
        return PICTURES / f"{Path(uncompressed_name(file)).stem}.info.png"
    if not png.parent.is_dir():
        raise InputError(f"--png: got {png}, expected a name in a folder that exists")
    return png


def _print(workload: Workload, path: Path) -> None:
    print_table(None, ("trace", workload.name), _summary(workload))
    columns = ("over requests", "p50", "p90", "p99", "max")
    lines = [
        ("response size, bytes", workload.size_bytes),
        ("prompt tokens", workload.prompt_tokens),
        ("output tokens", workload.output_tokens),
        ("time to the next request of the key, s", workload.reuse_seconds),
    ]
    if (blocks := workload.blocks) is not None:
        lines += [
            ("blocks of a prompt", blocks.per_prompt),
            ("time since a block's last use, s (over blocks used again)", blocks.reuse_seconds),
            ("time between requests of a session, s", blocks.session_gap_seconds),
        ]
    print_table(None, columns, [(label, *_quantiles(column)) for label, column in lines])
    console = result_console()
    for sentence in workload.assumptions:
        console.print(f"Assumption: {sentence}", markup=False)
    console.print(f"Picture: {path}", markup=False)


def _summary(workload: Workload) -> list[tuple[str, str]]:
    windows = "" if workload.window_seconds is None else f" between windows of {workload.window_seconds:g} s"
    composed = " (composed of several sources)" if workload.composed else ""
    rows = [
        ("source", workload.source + composed),
        *_sampled_row(workload),
        ("requests", f"{workload.requests:,}"),
        ("span", f"{workload.span_seconds:,.1f} s"),
        ("mean rate", _number(workload.mean_rate_rps, ",.2f", " requests/s")),
        ("unique keys", f"{workload.unique_keys:,}"),
        ("re-reference ratio", f"{workload.rereference_ratio:.4f}"),
        ("one-hit share of keys", f"{workload.one_hit_share:.4f}"),
        ("footprint", _number(workload.footprint_bytes, ",", " bytes")),
        ("entropy of keys", _number(workload.entropy_bits, ".3f", " bits")),
        (f"entropy change{windows}, mean", _number(workload.entropy_change_bits, ".3f", " bits")),
        (f"Jensen-Shannon distance{windows}, mean", _number(workload.js_distance, ".3f", "")),
        ("the same from sampling alone", _number(workload.js_floor, ".3f", "")),
    ]
    return rows if workload.blocks is None else [*rows, *_block_rows(workload.blocks)]


def _sampled_row(workload: Workload) -> list[tuple[str, str]]:
    if workload.sampled is None:
        return []
    found = workload.sampled
    return [("estimated from", f"{found.requests:,} requests, those of {found.share:.3%} of the keys")]


def _block_rows(blocks: PromptBlocks) -> list[tuple[str, str]]:
    return [
        ("prompt blocks", f"{blocks.references:,} of {_number(blocks.block_size_tokens, ',', ' tokens')}"),
        ("different prompt blocks", f"{blocks.different:,}"),
        ("token hit ratio of an endless cache", _number(blocks.token_hit_ratio, ".4f", "")),
        ("sessions", _number(blocks.sessions, ",", "")),
    ]


def _quantiles(column: Distribution | None) -> tuple[str, ...]:
    if column is None:
        return ("none",) * 4
    q = column.quantiles
    return tuple(f"{value:,.6g}" for value in (q.p50, q.p90, q.p99, q.max))


def _number(value: float | None, form: str, unit: str) -> str:
    return "none" if value is None else f"{value:{form}}{unit}"
