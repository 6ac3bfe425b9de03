"""Measured requests: what was sent to a serving engine and when its answers came.

One file holds one run or several. Known layouts are those of vLLM's request log as LLMServingSim records it (JSON
lines, with a meta.json beside it that names the engine's limits) and of AIBrix's benchmark results (CSV with the
columns `setup` and `qps`); any other CSV or JSON lines file is read with a mapping of roles to columns.
"""

from __future__ import annotations

import difflib
import gzip
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from caches.errors import BadRecord, InputError
from traces.csv_tables import CsvShape, csv_tables, header_names
from traces.json_rows import json_rows
from traces.reader import SECONDS_PER_UNIT, ReadOptions, TimeUnit
from traces.streams import first_line, record_starts, uncompressed_name

Array = NDArray[Any]

ROLES = {
    "arrival": "time of arrival",
    "prompt": "prompt tokens",
    "output": "output tokens",
    "ttft": "time from arrival to the first token",
    "first_token": "time of the first token, in place of ttft",
    "latency": "time from arrival to the last token",
    "decode": "time from the first token to the last, in place of latency",
    "last_token": "time of the last token, in place of latency",
    "queued": "time at which the engine queued the request, by the clock of first_token and last_token",
    "session": "who asked: requests of one session repeat a growing prompt",
    "run": "which run the request belongs to",
    "setup": "which deployment the run was made on",
}
AIBRIX = {
    "arrival": "launch_time",
    "prompt": "prompt_tokens",
    "output": "generation_tokens",
    "ttft": "ttft",
    "decode": "generation_time",
    "session": "user_id",
    "run": "qps",
    "setup": "setup",
}
VLLM = {
    "arrival": "arrival_time",
    "prompt": "input_toks",
    "output": "output_toks",
    "first_token": "first_token_ts",
    "last_token": "last_token_ts",
    "queued": "queued_ts",
}
LAYOUTS = {"vllm": VLLM, "aibrix": AIBRIX}
TEXT_ROLES = ("session", "run", "setup")


@dataclass(frozen=True)
class EngineLimits:
    """What is known of an engine, None where it is not: sequences at once, KV tokens per replica, prompt tokens per
    iteration."""

    max_sequences: int | None = None
    kv_tokens: int | None = None
    prefill_chunk_tokens: int | None = None
    description: str = ""


@dataclass(frozen=True)
class MeasuredRun:
    """One run, in order of arrival. arrival: s since any origin. prompt, output: tokens. session: as text, None where
    the log has none. ttft, latency: s from arrival to the first and the last token. All but session are float64."""

    source: Path
    name: str
    setup: str
    arrival: Array
    prompt: Array
    output: Array
    ttft: Array
    latency: Array
    session: Array | None = None
    limits: EngineLimits = EngineLimits()

    def __len__(self) -> int:
        return int(self.arrival.size)


def read_runs(path: Path, columns: Mapping[str, str], unit: TimeUnit = "s") -> list[MeasuredRun]:
    """The runs of a file, in order of their names (numbers by value).

    columns: role -> column, over those of a known layout. unit: of every time in the file.
    Raises InputError for a file that is neither CSV nor JSON lines, a role or column that is missing, and BadRecord for
    a value that is not a number, a negative duration or less than one token.
    """
    if unit == "iso":
        raise InputError("time unit: got iso, expected s, ms, us or ns: durations are numbers")
    for role in columns:
        if role not in ROLES:
            raise InputError(f"column role: got {role!r}, expected one of {', '.join(ROLES)}{_hint(role, ROLES)}")
    line = first_line(path)
    if not line.strip():
        raise InputError(f"{path}: got an empty file, expected measured requests")
    json = line.lstrip().startswith(b"{")
    present = _fields(path, line) if json else header_names(line, ",")
    mapping = _mapping(path, columns, present)
    table, lines = (_read_json if json else _read_csv)(path, mapping)
    limits = _limits(path) if mapping.get("queued") == VLLM["queued"] else EngineLimits()
    return _runs(path, _Table(path, mapping, table, lines), SECONDS_PER_UNIT[unit], limits)


def _hint(name: str, known: Mapping[str, str] | Sequence[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _fields(path: Path, line: bytes) -> tuple[str, ...]:
    try:
        return tuple(orjson.loads(line))
    except orjson.JSONDecodeError as error:
        raise BadRecord(path, 1, None, line.decode(errors="replace"), f"JSON ({error})") from error


def _mapping(path: Path, columns: Mapping[str, str], present: Sequence[str]) -> dict[str, str]:
    """The roles that the file fills: those of a layout whose columns it has, else columns named as the roles."""
    layout = next((names for names in LAYOUTS.values() if set(names.values()) <= set(present)), {})
    base = layout or {role: role for role in ROLES if role in present}
    replaced = {"first_token", "ttft"} if {"first_token", "ttft"} & set(columns) else set[str]()
    if {"latency", "decode", "last_token"} & set(columns):
        replaced |= {"latency", "decode", "last_token"}
    mapping = {role: name for role, name in base.items() if role not in replaced} | dict(columns)
    for role, name in mapping.items():
        if name not in present:
            known = ", ".join(present)
            raise InputError(f"{path}, {role}: got the column {name!r}, expected one of {known}{_hint(name, present)}")
    for wanted in (
        ("arrival",),
        ("prompt",),
        ("output",),
        ("ttft", "first_token"),
        ("latency", "decode", "last_token"),
    ):
        if not set(wanted) & set(mapping):
            raise InputError(
                f"{path}: got no column for {' or '.join(wanted)}, expected {wanted[0]}=COLUMN with one of "
                f"{', '.join(present)}"
            )
    return mapping


@dataclass(frozen=True)
class _Table:
    """Columns by role, and the line of each row."""

    path: Path
    mapping: Mapping[str, str]
    columns: Mapping[str, Array]
    lines: Array

    def __getitem__(self, role: str) -> Array:
        return self.columns[role]

    def __contains__(self, role: str) -> bool:
        return role in self.mapping

    def check(self, role: str, values: Array, wrong: Array, expected: str) -> Array:
        """The values; BadRecord for the first row that is wrong."""
        if wrong.any():
            row = int(np.argmax(wrong))
            raise BadRecord(self.path, int(self.lines[row]), self.mapping.get(role, role), float(values[row]), expected)
        return values


def _read_json(path: Path, mapping: Mapping[str, str]) -> tuple[dict[str, Array], Array]:
    rows = [row for batch in json_rows(path, ReadOptions()) for row in batch]
    table = {
        role: np.array([str(row.get(name)) if role in TEXT_ROLES else row.number(name) for row in rows])
        for role, name in mapping.items()
    }
    return table, np.array([row.line for row in rows])


def _read_csv(path: Path, mapping: Mapping[str, str]) -> tuple[dict[str, Array], Array]:
    parts: dict[str, list[Array]] = {role: [] for role in mapping}
    lines: list[int] = []
    for table in csv_tables(path, CsvShape(quoted=True), ReadOptions(), tuple(mapping.values())):
        for role, name in mapping.items():
            text = role in TEXT_ROLES
            parts[role].append(np.array(table.text(name).to_pylist()) if text else table.numbers(name))
        starts = record_starts(table.block.data, quoted=True)
        lines += [table.block.first_line + before for before, _ in starts]
    if not lines:
        raise InputError(f"{path}: got a header without requests, expected measured requests")
    return {role: np.concatenate(values) for role, values in parts.items()}, np.array(lines)


def _runs(path: Path, table: _Table, second: float, limits: EngineLimits) -> list[MeasuredRun]:
    """One run per setup and run name; times in seconds."""
    total = table.lines.size
    setup = table["setup"] if "setup" in table else np.full(total, "")
    run = table["run"] if "run" in table else np.full(total, _stem(path))
    arrival = table.check("arrival", table["arrival"], ~np.isfinite(table["arrival"]), "a time") * second
    prompt, output = (
        table.check(role, table[role], ~(table[role] >= 1), "at least one token") for role in ("prompt", "output")
    )
    ttft, latency = _durations(table, arrival, second)
    found = []
    for key in sorted(set(zip(setup.tolist(), run.tolist(), strict=True)), key=lambda pair: tuple(map(natural, pair))):
        rows = np.flatnonzero((setup == key[0]) & (run == key[1]))
        rows = rows[np.argsort(arrival[rows], kind="stable")]
        session = table["session"][rows] if "session" in table else None
        sent = arrival[rows], prompt[rows], output[rows]
        found.append(MeasuredRun(path, key[1], key[0], *sent, ttft[rows], latency[rows], session, limits))
    return found


def _durations(table: _Table, arrival: Array, second: float) -> tuple[Array, Array]:
    """Seconds to the first and the last token. Where engine and client have clocks of their own, the request that was
    queued soonest after its arrival is taken to have been queued at once."""
    offset = float(np.min(table["queued"] * second - arrival)) if "queued" in table else 0.0
    first = "ttft" if "ttft" in table else "first_token"
    ttft = table[first] * second if first == "ttft" else table[first] * second - arrival - offset
    last = next(role for role in ("latency", "decode", "last_token") if role in table)
    latency = table[last] * second
    if last == "decode":
        latency = ttft + latency
    elif last == "last_token":
        latency = latency - arrival - offset
    table.check(first, ttft, ~(ttft > 0), "a first token after the arrival")
    table.check(last, latency, ~(latency >= ttft), "a last token that is not before the first")
    return ttft, latency


def natural(text: str) -> tuple[tuple[float, str], ...]:
    """A key for sorting that takes digits as numbers: 0.9 before 10."""
    parts = re.findall(r"\d+(?:\.\d+)?|\D+", text)
    return tuple((float(part), "") if part[0].isdigit() else (np.inf, part) for part in parts)


def _stem(path: Path) -> str:
    return re.sub(r"(\.requests)?\.(jsonl|json|csv)$", "", uncompressed_name(path))


def _limits(path: Path) -> EngineLimits:
    """From NAME.meta.json beside NAME.requests.jsonl; what is not in it stays unknown."""
    for suffix, opener in ((".meta.json", open), (".meta.json.gz", gzip.open)):
        meta = path.with_name(_stem(path) + suffix)
        if meta.is_file():
            with opener(meta, "rb") as file:
                return _limits_of(meta, file.read())
    return EngineLimits()


def _limits_of(meta: Path, text: bytes) -> EngineLimits:
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise InputError(f"{meta}: got {text[:40]!r}, expected JSON ({error})") from error
    engine, cache = found.get("engine_kwargs") or {}, found.get("kv_cache") or {}
    limits = EngineLimits(engine.get("max_num_seqs"), cache.get("num_kv_tokens"), engine.get("max_num_batched_tokens"))
    for name in ("max_sequences", "kv_tokens", "prefill_chunk_tokens"):
        value = getattr(limits, name)
        if value is not None and (not isinstance(value, int) or value < 1):
            raise InputError(f"{meta}, {name}: got {value!r}, expected a positive number")
    device = (found.get("hardware") or {}).get("device_name")
    words = [found.get("model"), f"vLLM {found['vllm_version']}" if "vllm_version" in found else None, device]
    return replace(limits, description=", ".join(str(word) for word in words if word))
