"""The part of `setpoint trace info` about key drift: what keeps equal requests apart, where a source says so."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from api.cli.output import print_table, result_console
from caches.keys.levels import LEVELS
from traces.catalog import load_trace, opens_at_once, trace_format
from traces.key_drift import CAUSES, DriftLevel, KeyDrift, Reach, key_drift
from traces.reader import ReadOptions

Row = tuple[str, str, str, str, str, str, str]


def drift_of(file: Path, format_name: str | None, options: ReadOptions, capacity_bytes: int | None) -> KeyDrift | None:
    """Of the first `options.at_most` requests; None for a source that has one key for each request. Reads it once for
    each level."""
    levels = None if opens_at_once(file) else trace_format(file, format_name, options).levels
    if levels is None or not levels(file):
        return None
    options = replace(options, limit=options.at_most, at_most=None)
    by_level = {level: load_trace(file, format_name, replace(options, key_level=level)) for level in LEVELS}
    return key_drift(by_level, load_trace(file, format_name, options), capacity_bytes)


def drift_as_dict(drift: KeyDrift) -> dict[str, Any]:
    causes = {level.level.value: CAUSES.get(level.level) for level in drift.levels}
    levels = [
        {**asdict(level), "level": level.level.value, "cause": causes[level.level.value]} for level in drift.levels
    ]
    return {**asdict(drift), "levels": levels, "drift_bits": drift.drift_bits}


def print_drift(drift: KeyDrift) -> None:
    title = f"key drift, bits (over {drift.requests:,} requests)"
    header = (title, "without", "drift", "keys", "endless hits", "won", "hits at capacity")
    lowest = drift.levels[0].reach
    rows = [_row(level, lowest) for level in drift.levels]
    if drift.in_use is not None:
        rows.append(_figures("key in use", "", "", drift.in_use, lowest))
    print_table(None, header, rows)
    result_console().print(f"Drift in all: {drift.drift_bits:.3f} bits.", markup=False)


def _row(level: DriftLevel, lowest: Reach) -> Row:
    drift = "" if level.drift_bits is None else f"{level.drift_bits:.3f}"
    return _figures(level.level.value, CAUSES.get(level.level, ""), drift, level.reach, lowest)


def _figures(name: str, cause: str, drift: str, reach: Reach, lowest: Reach) -> Row:
    at_capacity = "" if reach.at_capacity is None else f"{reach.at_capacity:.4f}"
    won = f"{reach.hit_ratio - lowest.hit_ratio:+.4f}"
    return name, cause, drift, f"{reach.keys:,}", f"{reach.hit_ratio:.4f}", won, at_capacity
