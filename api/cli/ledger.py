"""`setpoint ledger`: the room that the ledger takes."""

from __future__ import annotations

import os
import time
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from api.cli.options import AsJson, ConfigFile
from api.cli.output import print_json, print_table, result_console
from tuner.config import load_tuner_config
from tuner.ledger import Ledger, Pruned
from tuner.ledgers.sql import open_ledger

DAY_SECONDS = 86_400.0


def prune(
    config_file: ConfigFile = None,
    days: Annotated[
        float | None, typer.Option(min=0, help="Keep what is younger than so many days, in place of control.keep_days.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say how much it would be, and remove nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Remove intervals, decisions, judgements and answered wishes that are old and that no experiment needs.

    Of all caches in the ledger. The daemon does the same all the time, by control.keep_days; a shorter --days makes
    room at once, also while a daemon runs. What stays is listed in docs/ledger.md.
    """
    config = load_tuner_config(config_file, Path.cwd(), os.environ, {})
    kept_days = config.control.keep_days if days is None else days
    before_seconds = time.time() - kept_days * DAY_SECONDS
    ledger = open_ledger(config.control.ledger, Path.cwd())
    try:
        told = ledger.prunable(before_seconds) if dry_run else _removed(ledger, before_seconds)
    finally:
        ledger.close()
    if as_json:
        print_json({"before_seconds": before_seconds, "dry_run": dry_run} | asdict(told))
        return
    before = datetime.fromtimestamp(before_seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    what = f"of what is from before {before} and no experiment needs:"
    result_console().print(f"{'Would be removed' if dry_run else 'Removed'}, {what}")
    print_table(None, ("what", "rows"), [(name, f"{rows:,}") for name, rows in asdict(told).items()])


def _removed(ledger: Ledger, before_seconds: float) -> Pruned:
    """In many small steps, between which a daemon can commit."""
    every = Pruned(0, 0, 0, 0)
    while (some := ledger.prune(before_seconds)).total:
        every = Pruned(
            every.intervals + some.intervals,
            every.decisions + some.decisions,
            every.judgements + some.judgements,
            every.wishes + some.wishes,
        )
    return every
