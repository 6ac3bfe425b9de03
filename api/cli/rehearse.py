"""`setpoint rehearse`: a policy beside a live cache on this machine, with replayed traffic."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from agents.registry import CHALLENGER
from api.cli.options import ConfigFile, TrackingUri
from api.cli.output import result_console
from api.cli.registry import find_version, open_registry
from api.wording import in_words
from caches.errors import InputError
from tuner.config import load_tuner_config
from tuner.problem import make_problem, under

try:
    from api.rehearsal.clock import run_waiting
    from api.rehearsal.enrolling import enrol
    from api.rehearsal.run import Ending, Rehearsal, rehearse
    from api.rehearsal.settings import for_bundle
except ModuleNotFoundError as error:
    if error.name not in {"fastapi", "httptools", "httpx", "prometheus_client", "redis", "starlette", "uvicorn"}:
        raise
    raise InputError(f"setpoint rehearse needs {error.name}: install it with pip install 'setpoint[live]'") from error

FOLDER, MODEL = "rehearsal", "{}-rehearsal"


def rehearse_command(
    policy: Annotated[str, typer.Argument(help="Version or alias of a registered policy.")] = CHALLENGER,
    config_file: ConfigFile = None,
    speed: Annotated[
        float,
        typer.Option(min=1.0, max=10_000.0, help="How many times as fast as recorded, while nothing is to be worked."),
    ] = 600.0,
    intervals: Annotated[
        int, typer.Option(min=3, help="After which it is over in any case; longer than most rollouts take.")
    ] = 60,
    once: Annotated[
        bool, typer.Option("--once", help="End with the report; without it, page and traffic go on until Ctrl-C.")
    ] = False,
    tracking_uri: TrackingUri = None,
) -> None:
    """Let a policy challenge your static settings beside a live cache on this machine.

    Gateway, emulated backend, tuning daemon and page run on loopback, in front of the held-out traffic of the trace.
    The challenger decides in shadow, gets a growing share of the keys, and is promoted or taken out as [rollout],
    [experiment] and [guardrails] say. Where stdout is no terminal it ends by itself, as with --once. The aliases of the
    registry stay as they are.
    """
    config = load_tuner_config(config_file, Path.cwd(), os.environ, {"tracking.uri": tracking_uri})
    logging.getLogger("httpx").setLevel(logging.WARNING)
    registry = open_registry(config, Path.cwd())
    version = find_version(registry, policy).version
    bundle = registry.load(version)
    config = for_bundle(config, bundle)
    problem = make_problem(under(config, bundle.policy))
    model = MODEL.format(config.tracking.model)
    config = config.model_copy(update={"tracking": config.tracking.model_copy(update={"model": model})})
    rehearsal = open_registry(config, Path.cwd())
    enrol(registry, version, rehearsal)
    console = result_console()
    folder = config.tracking.output / Path(problem.trace.info.name).name / FOLDER
    stays = not once and sys.stdout.isatty()

    def tell(line: str) -> None:
        console.print(line, markup=False, soft_wrap=True)

    tell(
        f"Version {version} challenges your static settings on held-out traffic of {problem.trace.info.name}, "
        f"{speed:g} times as fast as recorded: an interval of {problem.interval_seconds:g} s takes "
        f"{problem.interval_seconds / speed:.3g} s, and what this process works on top: time stands still meanwhile."
    )
    wanted = Rehearsal(config, problem, rehearsal, folder.absolute(), speed, intervals, stays)
    try:
        run_waiting(rehearse(wanted, tell, lambda ending: _say(tell, ending, stays)))
    except KeyboardInterrupt:
        tell("Stopped.")


def _say(tell: Callable[[str], None], ending: Ending, stays: bool) -> None:
    tell(in_words(ending.state))
    if ending.page is not None:
        for sentence in (ending.page.title, *ending.page.lead):
            tell(sentence)
        for figure in ending.page.figures:
            tell(f"{figure.label}: {figure.value} ({figure.note}).")
        tell(f"Report to read: {ending.report}")
    sent = ending.sent
    told = ", ".join(f"{number:,} {outcome}" for outcome, number in sent.outcomes.most_common())
    tell(f"Requests answered: {sent.answered:,} ({told}).")
    if stays:
        tell("Page and traffic go on; Ctrl-C ends them.")
