"""Traces larger than memory: time and memory of what-if and trace info as a folder of Parquet files grows."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.harness import Benchmark, Goal, Report, Table, main, say, seconds_of
from benchmarks.workloads import CONVERTED

MILLION = 1_000_000
DAY_SECONDS = 86_400.0
PARTS, KEYS, ALPHA = 24, 20 * MILLION, 0.8
SPREAD = 0x9E3779B97F4A7C15  # an odd factor: different keys stay different
KEPT = 10 * MILLION
SETTINGS = """
[trace]
interval_seconds = 600
[serving]
profile = "qwen-7b-a100"
replicas = 256
[run]
workers = 2
"""
COMMANDS = {
    "trace info": ("trace", "info"),
    "what-if, 16 x 8": ("whatif", "--current", "size=10%,ttl=1h", "--config", "settings.toml"),
}


@dataclass(frozen=True)
class Run:
    """One command on one folder. kept: requests that were held. answer: what it printed as JSON."""

    seconds: float
    peak_bytes: int
    answer: dict[str, object]


def write_day(folder: Path, requests: int, seed: int = 0) -> None:
    """A day of independent draws in hourly partitions: the k-th of 20 million keys has weight k to the power of -0.8;
    keys are texts of 16 hexadecimal digits, sizes 0.2 to 20 kB, fixed per key."""
    random = np.random.default_rng(seed)
    for part in range(PARTS):
        rows = requests // PARTS
        # the inverse of the continuous distribution over ranks
        rank = (1.0 + random.random(rows) * (KEYS ** (1.0 - ALPHA) - 1.0)) ** (1.0 / (1.0 - ALPHA))
        with np.errstate(over="ignore"):
            number = rank.astype(np.uint64) * np.uint64(SPREAD)
        place = folder / f"hour={part:02d}"
        place.mkdir(parents=True)
        table = {
            "time": (part + np.arange(rows) / rows) * DAY_SECONDS / PARTS,
            "key": _hexadecimal(number),
            "size": (200.0 * 100.0 ** ((number >> np.uint64(40)) / 2.0**24)).astype(np.int32),
        }
        pq.write_table(pa.table(table), place / "part.parquet", compression="zstd")


def _hexadecimal(numbers: np.ndarray) -> pa.Array:
    """Texts of 16 digits."""
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)
    shifts = np.arange(60, -4, -4, dtype=np.uint64)
    text = digits[((numbers[:, None] >> shifts) & np.uint64(15)).astype(np.uint8)]
    offsets = np.arange(0, 16 * len(numbers) + 1, 16, dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), len(numbers), [None, pa.py_buffer(offsets), pa.py_buffer(text)])


def run(words: Sequence[str], folder: Path, kept: int) -> Run:
    """A command in a process of its own, its peak resident size as the kernel counted it. Not `getrusage`: what this
    process had when it began the other is in there."""
    code = (
        "import sys; from api.cli.main import main\n"
        "try: main()\n"
        "finally:\n"
        "    told = open('/proc/self/status').read().partition('VmHWM:')[2]\n"
        "    print(told.split()[0], file=sys.stderr)"
    )
    head = words[:2] if words[0] == "trace" else words[:1]
    command = [sys.executable, "-c", code, *head, folder.name, *words[len(head) :], "--at-most", str(kept), "--json"]
    (folder.parent / "settings.toml").write_text(SETTINGS)
    done: list[subprocess.CompletedProcess[str]] = []

    def work() -> None:
        done.append(subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder.parent))

    taken = seconds_of(work)
    return Run(taken, 1024 * int(done[0].stderr.split()[-1]), orjson.loads(done[0].stdout))


def measure(quick: bool) -> Report:
    sizes = (MILLION // 2, MILLION) if quick else (100 * MILLION, 400 * MILLION)
    kept = KEPT // 100 if quick else KEPT
    work = CONVERTED / "streaming"
    rows, peaks, facts = [], {}, []
    try:
        for requests in sizes:
            folder = work / f"day-{requests // 1000}k"
            say(f"writing {requests:,} requests")
            write_day(folder, requests)
            held = sum(path.stat().st_size for path in folder.rglob("*.parquet"))
            facts.append(f"{requests:,} requests: {held / 2**30:.1f} GiB in {PARTS} Parquet files.")
            for name, words in COMMANDS.items():
                say(f"{name} on them")
                one = run(words, folder, kept)
                peaks[name, requests] = one.peak_bytes
                rows.append([name, requests, one.seconds, requests / one.seconds / MILLION, one.peak_bytes / 2**30])
            shutil.rmtree(folder)
        whole = _held_whole(work, min(sizes[0], 20 * MILLION))
    finally:
        shutil.rmtree(work, ignore_errors=True)
    facts.append(whole)
    header = ("command", "requests", "seconds", "million requests/s", "peak memory, GiB")
    growth = max(peaks[name, sizes[-1]] / peaks[name, sizes[0]] for name in COMMANDS)
    goal = Goal(
        f"{sizes[-1] / sizes[0]:g} times the trace: at most 1.3 times the memory", f"{growth:.2f} times", growth <= 1.3
    )
    return Report([*_workload(kept), *facts], [Table("Streaming", header, rows)], [goal])


def _held_whole(work: Path, requests: int) -> str:
    """What the same command needs without sampling."""
    say(f"what-if on all of {requests:,} requests")
    folder = work / "whole"
    write_day(folder, requests)
    one = run(COMMANDS["what-if, 16 x 8"], folder, requests)
    each, physical = one.peak_bytes / requests, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return (
        f"Beside it, what-if that holds all of {requests:,} requests takes {one.seconds:.0f} s and "
        f"{one.peak_bytes / 2**30:.1f} GiB, {each:.0f} bytes a request: the memory of this machine would hold "
        f"{physical / each / MILLION:,.0f} million."
    )


def _workload(kept: int) -> list[str]:
    return [
        f"A day of {KEYS:,} keys, Zipf with alpha {ALPHA}, texts of 16 characters as keys, sizes 0.2 to 20 kB, seed 0.",
        f"`--at-most {kept}`; every other setting is the default.",
    ]


if __name__ == "__main__":
    main(Benchmark("streaming", "Traces larger than memory", ("setpoint", "numba", "pyarrow", "pandas"), measure))
