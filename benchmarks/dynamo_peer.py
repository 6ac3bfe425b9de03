"""NVIDIA Dynamo's offline replay, in an environment of its own: its dependencies do not all install, and it needs few.

A replay is exact about which blocks are reused and simulates how long that takes. What it reuses is whole blocks of the
prompt; a block that is filled while answering is kept too; the last, partial block needs one block until the request
is done.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness import ROOT, say
from traces.trace import Trace

VERSION = "1.6.1"
FOLDER = ROOT / "out" / "benchmarks" / f"dynamo-{VERSION}"
SCRIPT = Path(__file__).with_name("dynamo_script.py")


class Unavailable(Exception):
    """Dynamo cannot be had here; the message says why."""


@dataclass(frozen=True)
class Wanted:
    """blocks: of the engine's pool. at_once: requests at a time, one after the other; None: as they were recorded."""

    blocks: int
    at_once: int | None


@dataclass(frozen=True)
class Answer:
    """summary: Dynamo's own figures. per_request: as many rows as requests, in the trace's order; empty where requests
    were not replayed as recorded."""

    summary: dict[str, Any]
    per_request: list[dict[str, Any]]


def interpreter() -> Path:
    """The Python of an environment with Dynamo in it, made where there is none. Raises Unavailable."""
    python = FOLDER / "bin" / "python"
    ready = FOLDER / "ready"
    if ready.exists():
        return python
    say(f"making an environment for ai-dynamo {VERSION} in {FOLDER.relative_to(ROOT)} (350 MB)")
    install = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    for command in (
        [sys.executable, "-m", "venv", "--clear", str(FOLDER)],
        [*install, "--no-deps", f"ai-dynamo=={VERSION}", f"ai-dynamo-runtime=={VERSION}"],
        [*install, "numpy", "typing-extensions"],
    ):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise Unavailable(f"ai-dynamo {VERSION} cannot be installed: {done.stderr.strip()[-300:]}")
    ready.touch()
    return python


def replay(trace: Trace, runs: Sequence[Wanted]) -> list[Answer]:
    """One answer per run; the engine's blocks are as large as the trace's. Raises Unavailable."""
    python = interpreter()
    with tempfile.TemporaryDirectory() as folder:
        recorded, source, target = (Path(folder) / name for name in ("trace.jsonl", "wanted.json", "answer.json"))
        times = write(trace, recorded)
        longest = int(trace.prompt_tokens.max() + trace.output_tokens.max()) + 1
        wanted = [
            {
                "trace": str(recorded),
                "blocks": run.blocks,
                "block_tokens": trace.info.block_size_tokens,
                "longest": longest,
                "at_once": run.at_once,
            }
            for run in runs
        ]
        source.write_text(json.dumps(wanted))
        done = subprocess.run([str(python), str(SCRIPT), str(source), str(target)], capture_output=True, text=True)
        if done.returncode:
            raise Unavailable(f"Dynamo's replay failed: {done.stderr.strip()[-500:]}")
        answers = json.loads(target.read_text())
    return [Answer(each["summary"], in_order(each["per_request"] or [], times)) for each in answers]


def write(trace: Trace, path: Path) -> list[float]:
    """Mooncake's format. Arrivals, in ms, are set apart by a microsecond: by them a request is known again."""
    times = [round(1e3 * second) + row / 1e3 for row, second in enumerate(trace.arrival_seconds.tolist())]
    with path.open("w", encoding="utf-8") as file:
        for row, time in enumerate(times):
            chain = trace.block_hashes[trace.block_offsets[row] : trace.block_offsets[row + 1]]
            record = {
                "timestamp": time,
                "input_length": int(trace.prompt_tokens[row]),
                "output_length": int(trace.output_tokens[row]),
                "hash_ids": chain.tolist(),
            }
            file.write(json.dumps(record) + "\n")
    return times


def in_order(rows: list[dict[str, Any]], times: list[float]) -> list[dict[str, Any]]:
    by_time = {round(row["arrival_time_ms"], 3): row for row in rows}
    return [by_time[round(time, 3)] for time in times] if rows else []
