"""`setpoint signals`: what can be seen of a cache and its backends through Prometheus."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from api.cli.exit_codes import ExitCode
from api.cli.options import AsJson, ConfigFile
from api.cli.output import print_json, print_table, result_console
from caches.errors import InputError
from tuner.config import load_tuner_config
from tuner.signal_sections import SignalsConfig
from tuner.signals import SIGNALS, Signal

try:
    from tuner.prometheus.source import Asked, PrometheusSignals, prometheus_signals
except ModuleNotFoundError as error:
    if error.name not in {"prometheus_api_client", "promql_parser"}:
        raise
    raise InputError(f"setpoint signals needs {error.name}: install it with pip install 'setpoint[live]'") from error

NONE = "–"


def check(
    prometheus: Annotated[str | None, typer.Option(help="URL of Prometheus, in place of signals.prometheus.")] = None,
    preset: Annotated[
        list[str] | None,
        typer.Option(help="Preset to ask, in place of signals.preset; given again, others after it."),
    ] = None,
    config_file: ConfigFile = None,
    as_json: AsJson = False,
) -> None:
    """Read every signal once: its value and age, or why it is missing. Exit code 4 if a required one is."""
    overrides = {"signals.prometheus": prometheus, "signals.preset": preset or None}
    settings = load_tuner_config(config_file, Path.cwd(), os.environ, overrides).signals
    if settings.prometheus is None:
        raise InputError("signals.prometheus: not set, expected the URL of a Prometheus there or as --prometheus")
    source = prometheus_signals(settings, settings.token())
    found = source.read(time.time())
    if as_json:
        print_json([_described(signal, source, settings) for signal in found.values()])
    else:
        _print(found, source, settings.required)
    if any(found[name].missing for name in settings.required):
        raise typer.Exit(ExitCode.NOTHING_FOUND)


def _described(signal: Signal, source: PrometheusSignals, settings: SignalsConfig) -> Mapping[str, object]:
    asked = source.asked.get(signal.name)
    return {
        "signal": signal.name,
        "unit": SIGNALS[signal.name].unit,
        "value": signal.value,
        "age_seconds": signal.age_seconds,
        "missing": signal.missing,
        "required": signal.name in settings.required,
        "from": asked.origin if asked else None,
        "query": asked.query if asked else None,
    }


def _print(found: Mapping[str, Signal], source: PrometheusSignals, required: Sequence[str]) -> None:
    shown = [signal for signal in found.values() if signal.name in source.asked or signal.name in required]
    rows = [_row(signal, source.asked.get(signal.name), signal.name in required) for signal in shown]
    print_table(None, ("signal", "value", "unit", "age", "from", "required"), rows)
    reasons: dict[str, list[str]] = {}
    for signal in shown:
        if signal.missing:
            reasons.setdefault(signal.missing, []).append(signal.name)
    _list("Missing", {", ".join(names): reason for reason, names in reasons.items()})
    _list("Queries", {signal.name: source.asked[signal.name].query for signal in shown if signal.name in source.asked})
    if unasked := [name for name in SIGNALS if name not in source.asked]:
        result_console().print(f"Not asked for: {', '.join(unasked)}", soft_wrap=True)


def _row(signal: Signal, asked: Asked | None, required: bool) -> tuple[str, ...]:
    return (
        signal.name,
        "missing" if signal.value is None else _number(signal.value),
        SIGNALS[signal.name].unit,
        NONE if signal.age_seconds is None else f"{signal.age_seconds:.1f} s",
        asked.origin if asked else NONE,
        "yes" if required else "",
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def _list(title: str, lines: Mapping[str, str]) -> None:
    """A heading and a line for each; nothing where there are none."""
    if not lines:
        return
    console = result_console()
    console.print(f"{title}:")
    for name, text in lines.items():
        console.print(f"  {name}: {escape(' '.join(text.split()))}", soft_wrap=True)
    console.print()
