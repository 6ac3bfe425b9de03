"""The record of the benchmarks, and that each of them still runs. Their figures are not tested: machines differ."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from datetime import date
from pathlib import Path

import numpy as np
import pytest

from benchmarks.harness import (
    RESULTS,
    Benchmark,
    Report,
    Table,
    at_least,
    at_most,
    median_ratio,
    record,
    section,
    shown,
    take_turns,
)
from benchmarks.workloads import CROWDS, LAUNCHES, UNSEEN, WORKLOADS
from tuner.config import TunerConfig

ROOT = Path(__file__).parents[1]
QUICK = (
    "replay",
    "eviction",
    "prefix_cache",
    "prefix_eviction",
    "calibration",
    "environment",
    "training",
    "ablation",
    "tuners",
    "placements",
    "whatif",
    "streaming",
    "stream_join",
    "semantic",
    "keys",
    "fidelity",
    "stack",
    "disk_tier",
    "freshness",
    "ledger",
    "gateway",
    "routing",
    "tracing",
    "ticks",
    "experiments",
    "faults",
    "resilience",
    "techniques",
)
REPORT = Report(["Two requests."], [Table("Speed", ("what", "s"), [["ours", 2.0], ["theirs", None]])], [])


def test_a_record_replaces_its_own_section_and_no_other(tmp_path: Path) -> None:
    results = tmp_path / "RESULTS.md"
    record(results, "replay", "old replay")
    record(results, "training", r"training, with a \1 in it")
    before = results.read_text()
    record(results, "replay", "new replay")
    assert results.read_text() == before.replace("old replay", "new replay")
    assert list(tmp_path.iterdir()) == [results]


def test_sections_are_separated_by_an_empty_line(tmp_path: Path) -> None:
    results = tmp_path / "RESULTS.md"
    results.write_text("# Head\n")
    record(results, "a", "A")
    record(results, "b", "B")
    assert (
        results.read_text() == "# Head\n\n<!-- begin a -->\nA\n<!-- end a -->\n\n<!-- begin b -->\nB\n<!-- end b -->\n"
    )


def test_a_goal_is_reached_at_its_bound() -> None:
    assert at_least("speed", 10.0, 10.0, "x").reached
    assert not at_least("speed", 10.0, 9.99, "x").reached
    assert at_most("time", 180.0, 180.0, "s").reached
    assert not at_most("time", 180.0, 181.0, "s").reached


def test_a_section_says_when_how_and_whether() -> None:
    goal = at_least("speed", 10.0, 7.5, "x")
    text = section(
        Benchmark("replay", "Replay", ("numpy",), lambda _: REPORT),
        Report(REPORT.workload, REPORT.tables, [goal]),
        date(2026, 11, 29),
        "0.1",
        61.0,
    )
    assert "Date: 2026-11-29. Command: `python benchmarks/replay.py --record`, 61 s." in text
    assert "| ours   | 2.00 |" in text
    assert "| theirs | -    |" in text
    assert "| speed: at least 10 x | 7.50 x   | no      |" in text
    assert os.uname().nodename not in text


def test_ratios_are_taken_within_a_round() -> None:
    assert median_ratio([2.0, 30.0, 8.0], [1.0, 10.0, 2.0]) == 3.0  # of 2, 3 and 4
    order: list[str] = []
    clocks = {name: lambda name=name: order.append(name) or 1.0 for name in "ab"}
    assert take_turns(clocks, 2) == {"a": [1.0, 1.0], "b": [1.0, 1.0]}
    assert order == ["a", "b", "a", "b"]


def test_numbers_keep_three_digits() -> None:
    cells = (None, 0.0, 0.1234, 1.234, 12.34, 1234.5, 1234567, "as it is")
    assert [shown(cell) for cell in cells] == ["-", "0", "0.12", "1.23", "12.3", "1,234", "1,234,567", "as it is"]


def test_every_workload_has_a_name_of_its_own_and_valid_settings() -> None:
    workloads = (*WORKLOADS, UNSEEN)
    assert len({workload.name for workload in workloads}) == len(workloads)
    kinds = [TunerConfig.model_validate(workload.settings).cache.kind for workload in WORKLOADS]
    assert kinds == ["prefix", "prefix", "response", "response", "response"]
    assert all(pickle.loads(pickle.dumps(workload)).make.args == workload.make.args for workload in workloads)


def test_events_fall_into_every_part_of_the_trace() -> None:
    """Training ends at hour 201.6, validation at 268.8 of 336."""
    for at in (LAUNCHES, [crowd[0] for crowd in CROWDS]):
        parts = np.searchsorted([201.6, 268.8], at)
        assert np.bincount(parts, minlength=3).min() >= 2


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK)
def test_a_quick_run_prints_its_goals_and_records_nothing(name: str) -> None:
    if name in ("replay", "eviction"):
        pytest.importorskip("libcachesim")
    if name in ("prefix_cache", "prefix_eviction"):
        pytest.importorskip("kvcache_sim")
    before = RESULTS.read_bytes() if RESULTS.exists() else None
    done = subprocess.run(
        [sys.executable, f"benchmarks/{name}.py", "--quick"], cwd=ROOT, capture_output=True, text=True, timeout=400
    )
    assert done.returncode == 0, done.stderr
    assert "**Goals**" in done.stdout
    assert (RESULTS.read_bytes() if RESULTS.exists() else None) == before


def test_a_quick_run_is_not_recorded() -> None:
    done = subprocess.run(
        [sys.executable, "benchmarks/environment.py", "--quick", "--record"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "a quick run is not recorded" in done.stderr
