"""An experiment as CSV (RFC 4180): a row for each arm and interval, for spreadsheets and notebooks."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from envs.interval import NAMES
from tuner.account import usd_per_1000
from tuner.records import IntervalRecord
from tuner.service import Account

FIXED = (
    "experiment",
    "cache",
    "index",
    "arm",
    "began_seconds",
    "ended_seconds",
    "share",
    "cache_size_bytes",
    "ttl_seconds",
    "warmup_ratio",
    "usd_per_1000_requests",
    "reference_usd",
    "predicted_usd_per_1000",
    "outcome",
    "reason",
)


def experiment_csv(account: Account) -> str:
    """What is not known is an empty cell. outcome: what the analysis said after the interval."""
    more = tuple(sorted({name for one in account.intervals for name in one.window or {}} - set(NAMES)))
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow((*FIXED, *NAMES, *more))
    outcomes = {one.index: one.outcome.value for one in account.judgements}
    predicted = {(one.index, one.arm): one.predicted_usd_per_1000 for one in account.decisions}
    for record in account.intervals:
        row = dict(_fixed(account, record))
        row["predicted_usd_per_1000"] = predicted.get((record.index, record.arm))
        row["outcome"] = outcomes.get(record.index)
        window = record.window or {}
        writer.writerow([_cell(row[name]) for name in FIXED] + [_cell(window.get(name)) for name in (*NAMES, *more)])
    return text.getvalue()


def _fixed(account: Account, record: IntervalRecord) -> Iterator[tuple[str, object]]:
    yield "experiment", account.experiment.id
    yield "cache", record.cache
    yield "index", record.index
    yield "arm", record.arm.value
    yield "began_seconds", record.began_seconds
    yield "ended_seconds", record.ended_seconds
    yield "share", record.share
    yield "cache_size_bytes", record.settings.cache_size
    yield "ttl_seconds", record.settings.ttl_seconds
    yield "warmup_ratio", record.settings.warmup_ratio
    yield "usd_per_1000_requests", usd_per_1000(record)
    yield "reference_usd", record.reference_usd
    yield "reason", record.reason


def _cell(value: object) -> str:
    """Text that a spreadsheet would take for a formula gets a quote before it."""
    if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")):
        return f"'{value}"
    return "" if value is None else str(value)
