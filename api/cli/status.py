"""`setpoint status`: where the tuning of a cache stands, once or as it goes on."""

from __future__ import annotations

import os
import time
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from api.cli.options import AsJson, ConfigFile
from api.cli.output import print_json, result_console
from caches.target import Arm
from tuner.account import usd_per_1000
from tuner.config import load_tuner_config
from tuner.ledgers.sql import open_ledger
from tuner.records import Decision, IntervalRecord
from tuner.service import Status, TunerService

UNKNOWN = "–"
REDRAW_SECONDS = 1.0


def status(
    config_file: ConfigFile = None,
    cache: Annotated[str | None, typer.Option("--cache", help="Which cache, in place of control.cache.")] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Go on showing it, until Ctrl-C.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show phase, settings, last numbers and last decisions of a cache that is tuned."""
    config = load_tuner_config(config_file, Path.cwd(), os.environ, {"control.cache": cache})
    ledger = open_ledger(config.control.ledger, Path.cwd())
    try:
        service, name = TunerService(ledger, None, time.time), config.control.cache
        if as_json:
            print_json(asdict(service.status(name)))
        elif watch:
            _follow(service, name)
        else:
            result_console().print(shown(service.status(name)))
    finally:
        ledger.close()


def _follow(service: TunerService, cache: str) -> None:
    with Live(console=result_console(), auto_refresh=False) as live:
        try:
            while True:
                live.update(shown(service.status(cache)), refresh=True)
                time.sleep(REDRAW_SECONDS)
        except KeyboardInterrupt:
            return


def shown(status: Status) -> RenderableType:
    """As tables and sentences."""
    state = status.state
    parts: list[RenderableType] = [_headline(status), _arms(status)]
    for arm, decision in status.decisions.items():
        parts += [Text(f"{arm.value}: {reason}") for reason in decision.reasons[:2]]
    if state.latched:
        parts.append(Text(f"Latched: {state.latched}", style="bold red"))
    if state.paused:
        parts.append(Text(state.paused, style="bold yellow"))
    parts += [Text(f"Asked for, not answered yet: {wish.kind.value} by {wish.by}") for wish in status.open_wishes]
    return Group(*parts)


def _headline(status: Status) -> Text:
    state, lease = status.state, status.lease
    who = "no daemon is active" if lease is None or not status.active else f"{lease.holder} is active"
    began = datetime.fromtimestamp(state.opened_seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    experiment = "" if state.experiment is None else f", experiment {state.experiment}"
    taken = "" if state.confirmed else "; the cache has not taken the plan yet"
    phase = state.phase.value.replace("_", " ")
    return Text(
        f"{state.cache}: {phase}{experiment}; interval {state.index} since {began}; {who}{taken}.", style="bold"
    )


def _arms(status: Status) -> Table:
    table = Table()
    for title in ("arm", "keys", "cache_size", "ttl_seconds", "warmup_ratio", "policy", "verdict"):
        table.add_column(title)
    for title in ("requests", "hit ratio", "P99 to first token, s", "USD per 1,000"):
        table.add_column(title, justify="right")
    plan = status.state.plan
    for arm in Arm:
        if plan.split.share(arm):
            settings, decision = plan.settings(arm), status.decisions.get(arm)
            table.add_row(
                arm.value,
                f"{plan.split.share(arm):.3g}",
                f"{settings.cache_size:,.0f}",
                f"{settings.ttl_seconds:,.4g}",
                f"{settings.warmup_ratio:.3g}",
                *_decided(decision),
                *_numbers(status.intervals.get(arm)),
            )
    return table


def _decided(decision: Decision | None) -> tuple[str, str]:
    if decision is None:
        return UNKNOWN, UNKNOWN
    version = "" if decision.version is None else f" v{decision.version}"
    return f"{decision.policy}{version}", decision.verdict.value


def _numbers(record: IntervalRecord | None) -> tuple[str, str, str, str]:
    """Of the last interval that is over."""
    if record is None or record.window is None:
        return UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN
    window = record.window
    return (
        _told(window.get("requests"), ",.0f"),
        _told(window.get("hit_ratio"), ".4f"),
        _told(window.get("p99_ttft_seconds"), ".3g"),
        _told(usd_per_1000(record), ".4g"),
    )


def _told(value: float | None, form: str) -> str:
    return UNKNOWN if value is None else format(value, form)
