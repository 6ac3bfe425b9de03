"""The first run: train on the trace that comes with Setpoint, judge on traffic that the policies never saw, promote the
best policy or say why not, and let it challenge the static settings beside a live cache.

It gives the commands that a person would give, one after the other, in one process. What was done before is not done
again. With --once, or where nobody looks at a terminal, it ends with the report.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import typer
from typer.main import get_command

from agents.registry import Registry
from api.cli.main import app
from api.report.evaluation import REPORT_FILE
from caches.errors import SetpointError
from traces.catalog import load_trace
from traces.trace import Trace
from tuner.config import TunerConfig, load_tuner_config
from tuner.training import find_training, training_key

CONFIG = Path(__file__).with_name("first_run.toml")


def first_run(*options: str) -> None:
    """Not to promote is a result, not a failure. options: of the rehearsal."""
    config = str(CONFIG.relative_to(Path.cwd())) if CONFIG.is_relative_to(Path.cwd()) else str(CONFIG)
    _run(["train", "--config", config])
    settings = load_tuner_config(CONFIG, Path.cwd(), os.environ, {})
    assert settings.trace.path is not None
    trace = load_trace(settings.trace.path)
    best = str(_best_version(settings, trace))
    _run(["evaluate", best, "--config", config])
    _run(["promote", best, "--config", config])
    _say_what_next(best, config, settings.tracking.output / Path(trace.info.name).name / REPORT_FILE)
    _run(["rehearse", best, "--config", config, *options])


def _run(arguments: list[str]) -> None:
    typer.secho(f"\n$ setpoint {' '.join(arguments)}", bold=True)
    get_command(app).main(arguments, prog_name="setpoint", standalone_mode=False)


def _best_version(config: TunerConfig, trace: Trace) -> int:
    """Of the training that has just run or was there; by version, because a champion is no longer the challenger."""
    registry = Registry(config.tracking.resolved_uri(Path.cwd()), config.tracking.experiment, config.tracking.model)
    training = find_training(registry, training_key(config, trace), config.run.seeds)
    assert training is not None
    return training.best.version


def _say_what_next(version: str, config: str, report: Path) -> None:
    typer.echo(f"\nTo read, in a browser: {report}")
    typer.echo("Next, try:")
    typer.echo("  .venv/bin/setpoint trace info YOUR-TRACE    # what your own traffic looks like")
    typer.echo("  .venv/bin/mlflow ui --backend-store-uri sqlite:///mlruns/mlflow.db")
    typer.echo(f"  .venv/bin/setpoint evaluate {version} --config {config} --json")


if __name__ == "__main__":
    try:
        first_run(*sys.argv[1:])
    except SetpointError as error:
        typer.echo(f"error: {' '.join(str(error).split())}", err=True)
        sys.exit(error.exit_code)
