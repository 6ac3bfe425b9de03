"""`setpoint evaluate`: judge a registered policy on traffic that it never saw."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from agents.registry import CHALLENGER, Registry
from agents.summary import Table, behaviour, causes, comparison, sentences
from agents.tracks import Depth
from agents.uncertainty import Resampling
from api.cli.loading import load_with_progress
from api.cli.options import AsJson, ConfigFile, TrackingUri
from api.cli.output import print_json, print_table, progress_bar, result_console
from api.cli.registry import find_version, open_registry, parse_policy
from api.report.evaluation import REPORT_FILE, evaluation_page
from api.report.material import material_of
from api.report.page import write_page
from caches.errors import InputError
from tuner.config import TunerConfig, load_tuner_config
from tuner.evaluating import JSON_FILE, Evaluated, evaluate_and_record


def evaluate(
    policy: Annotated[str, typer.Argument(help="Version or alias of a registered policy.")] = CHALLENGER,
    trace: Annotated[
        Path | None, typer.Option(help="Trace whose test part judges; trace.path of the settings by default.")
    ] = None,
    config_file: ConfigFile = None,
    ray: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS", help="Ray cluster that replays settings and fits rules: host:port, auto or local."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the resampling and the random baseline.")] = 0,
    resamples: Annotated[int, typer.Option(min=100, help="Of the bootstrap over time.")] = 2000,
    block: Annotated[
        int | None, typer.Option(min=1, help="Intervals per block of the bootstrap; follows from the costs by default.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Leave out the fitted rules and the clairvoyant bound, most of the work.")
    ] = False,
    tracking_uri: TrackingUri = None,
    as_json: AsJson = False,
) -> None:
    """Judge a policy and the other seeds of its training on held-out traffic, beside simple baselines and a bound.

    Prints a table and what it says in sentences, writes one page to read (report.html), pictures and evaluation.json,
    logs numbers and pictures to MLflow and notes with the version what `setpoint promote` decides by.
    """
    overrides: dict[str, object] = {"trace.path": trace, "run.ray": ray, "tracking.uri": tracking_uri}
    config = load_tuner_config(config_file, Path.cwd(), os.environ, overrides)
    registry = open_registry(config, Path.cwd())
    find_version(registry, policy)  # before a long trace is read
    depth = Depth.QUICK if quick else Depth.FULL
    evaluated = evaluate_with_progress(config, registry, policy, Resampling(resamples, seed, block), depth)
    report = write_report(evaluated, f"{datetime.now(UTC):%Y-%m-%d}")
    if as_json:
        print_json({**evaluated.as_dict(), "report": report})
    else:
        print_evaluated(evaluated, report)


def write_report(evaluated: Evaluated, made_on: str) -> Path:
    """Writes the page beside evaluation.json and returns its path. made_on: the date that it shows."""
    return write_page(evaluation_page(material_of(evaluated, made_on)), evaluated.folder / REPORT_FILE)


def evaluate_with_progress(
    config: TunerConfig, registry: Registry, policy: str, resampling: Resampling, depth: Depth = Depth.FULL
) -> Evaluated:
    """`evaluate_and_record` on the trace of the settings, with a progress bar."""
    if config.trace.path is None:
        raise InputError("trace: got none, expected --trace, trace.path in a file or a variable")
    recording = load_with_progress(config.trace.path)
    with progress_bar("settings") as bar:
        search = "" if depth is Depth.QUICK else ", searching for the bound"
        task = bar.add_task(f"replaying static settings{search}", total=None)

        def advance(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        return evaluate_and_record(config, recording, registry, parse_policy(policy), resampling, advance, depth)


def print_evaluated(evaluated: Evaluated, report: Path) -> None:
    """Tables, sentences, and where the rest is."""
    evaluation = evaluated.evaluation
    setting, console = evaluation.setting, result_console()
    first, last = setting.test
    composed = ", composed of several sources" if setting.composed else ""
    title = (
        f"Version {evaluated.version} on intervals {first} to {last} of {setting.trace}{composed}: "
        f"{evaluation.requests:,} requests held out"
    )
    _print(title, comparison(evaluation))
    _print(None, behaviour(evaluation))
    _print(None, causes(evaluation))
    console.print(" ".join(sentences(evaluation)), markup=False)
    for sentence in (*evaluation.notes, *(f"Assumption: {one}" for one in setting.assumptions)):
        console.print(sentence, markup=False, style="dim")
    console.print(f"Report to read: {report}", markup=False)
    console.print(f"Pictures and numbers: {evaluated.folder}/ ({JSON_FILE} and PNG); MLflow run {evaluated.run_id}")
    console.print(f"Next: setpoint promote {evaluated.version}")


def _print(title: str | None, table: Table) -> None:
    print_table(title, table.columns, table.rows)
