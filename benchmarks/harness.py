"""What the benchmarks share: goals beside measurements, tables on stdout, and their record in RESULTS.md.

A benchmark is a function from "quick or not" to a Report, handed to `main`. A quick run is so small that its figures
mean nothing: it shows that the benchmark works, and is never recorded.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import sys
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).with_name("RESULTS.md")
SHARED_TRACES = ROOT.parent / "shared" / "traces"
INTRODUCTION = """# Results of the benchmarks

Each section is written by its benchmark: `make bench` prints all of them, and a benchmark run with `--record` replaces
its section here. A goal that was not reached says so. Figures depend on the machine and on what else ran on it, so
comparisons are ratios of runs that took turns.
"""
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}

Cell = str | int | float | None
Name = TypeVar("Name", bound=Hashable)


@dataclass(frozen=True)
class Goal:
    """What was wanted and what came out. reached: None where it could not be measured; `measured` says why."""

    wanted: str
    measured: str
    reached: bool | None


@dataclass(frozen=True)
class Table:
    """header and rows of equal length. A cell of None stands for what was not measured."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    note: str = ""


@dataclass(frozen=True)
class Report:
    """workload: one sentence per fact that a reader needs to run the same."""

    workload: Sequence[str]
    tables: Sequence[Table]
    goals: Sequence[Goal]


@dataclass(frozen=True)
class Benchmark:
    """name: of the file here and of the section in RESULTS.md. packages: distributions whose versions matter.
    measure: takes whether the run is quick."""

    name: str
    title: str
    packages: Sequence[str]
    measure: Callable[[bool], Report]


def main(benchmark: Benchmark) -> None:
    """Runs one benchmark as a script. Thread pools of numeric libraries are held at one thread: a process that was
    started otherwise starts itself anew, since they read their variables when they are imported."""
    if any(os.environ.get(name) != value for name, value in ONE_THREAD.items()):
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], os.environ | ONE_THREAD)
    parser = argparse.ArgumentParser(description=benchmark.title)
    parser.add_argument("--record", action="store_true", help="replace this benchmark's section in RESULTS.md")
    parser.add_argument("--quick", action="store_true", help="seconds instead of minutes; the figures mean nothing")
    options = parser.parse_args()
    if options.record and options.quick:
        parser.error("--record: a quick run is not recorded")
    load = os.getloadavg()[0]
    began = time.perf_counter()
    report = benchmark.measure(options.quick)
    text = section(benchmark, report, date.today(), f"{load:.1f}", time.perf_counter() - began)
    print(text)
    if options.record:
        record(RESULTS, benchmark.name, text)


def say(what: str) -> None:
    """Progress, on stderr."""
    print(f"... {what}", file=sys.stderr, flush=True)


# Measuring


def seconds_of(work: Callable[[], object]) -> float:
    """Wall time of one call."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def take_turns(contestants: Mapping[Name, Callable[[], float]], rounds: int) -> dict[Name, list[float]]:
    """Each contestant measures itself (returns seconds) once a round, so that what else the machine does hits all."""
    taken: dict[Name, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, measure in contestants.items():
            taken[name].append(measure())
    return taken


def median_ratio(numerators: Sequence[float], denominators: Sequence[float]) -> float:
    """Median of the ratios of measurements that were made in the same round."""
    return statistics.median(a / b for a, b in zip(numerators, denominators, strict=True))


# Goals


def at_least(what: str, bound: float, value: float, unit: str) -> Goal:
    return Goal(f"{what}: at least {bound:,g} {unit}", f"{shown(value)} {unit}", value >= bound)


def at_most(what: str, bound: float, value: float, unit: str) -> Goal:
    return Goal(f"{what}: at most {bound:,g} {unit}", f"{shown(value)} {unit}", value <= bound)


# Text


def section(benchmark: Benchmark, report: Report, day: date, load: str, seconds: float) -> str:
    """One benchmark's section: its command, machine, workload, figures and goals. load: of the machine at the start."""
    goals = Table(
        "Goals",
        ("goal", "measured", "reached"),
        [
            (goal.wanted, goal.measured, {True: "yes", False: "no", None: "not measured"}[goal.reached])
            for goal in report.goals
        ],
    )
    facts = [
        f"Date: {day.isoformat()}. Command: `python benchmarks/{benchmark.name}.py --record`, {seconds:.0f} s.",
        f"Machine: {machine()}; load average at the start {load}.",
        f"Versions: {versions(benchmark.packages)}.",
        *report.workload,
    ]
    parts = [f"## {benchmark.title}", "\n".join(f"- {fact}" for fact in facts)]
    return "\n\n".join([*parts, *(_table(table) for table in (*report.tables, goals))])


def record(path: Path, name: str, text: str) -> None:
    """Replaces the section of that name between its markers, or adds it at the end; other sections stay as they are."""
    begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
    block = f"{begin}\n{text}\n{end}\n"
    old = path.read_text(encoding="utf-8") if path.exists() else INTRODUCTION
    marked = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}\n", re.DOTALL)
    new = marked.sub(lambda _: block, old) if marked.search(old) else f"{old}\n{block}"
    partial = path.with_name(path.name + ".partial")
    partial.write_text(new, encoding="utf-8")
    partial.replace(path)


def _table(table: Table) -> str:
    """Markdown whose columns also line up on a terminal."""
    rows = [list(table.header), *([shown(cell) for cell in row] for row in table.rows)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(table.header))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join([f"**{table.title}**", "", *lines, *(["", table.note] if table.note else [])])


def shown(value: Cell) -> str:
    """Three digits are all that a measurement here is good for; counts are shown in full."""
    if value is None:
        return "-"
    if isinstance(value, float) and value:
        digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2 if abs(value) >= 0.1 else 4
        return f"{value:,.{digits}f}"
    return value if isinstance(value, str) else f"{value:,.0f}"


def machine() -> str:
    """What the figures depend on; nothing that names the machine."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{models[0] if models else 'unknown processor'}, {os.cpu_count()} cores, {memory:.0f} GiB"


def versions(packages: Sequence[str]) -> str:
    python = ".".join(map(str, sys.version_info[:3]))
    return ", ".join([f"Python {python}", *(f"{name} {version(name)}" for name in packages)])
