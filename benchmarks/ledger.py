"""The ledger in SQLite: what a commit and a read take, in one that is empty and in one that holds a year."""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from sqlalchemy import insert

from benchmarks.harness import Benchmark, Report, Table, at_most, main, say
from caches.knobs import KnobSettings
from caches.target import Arm, ArmCounters, Counted, Histogram, Plan, Split, Standing
from envs.interval import NAMES
from tuner.ledger import DecisionFilter, Lease, Ledger
from tuner.ledgers.database import opened
from tuner.ledgers.rows import decision_row, interval_row
from tuner.ledgers.sql import open_ledger
from tuner.ledgers.tables import DECISIONS, INTERVALS
from tuner.records import ControlState, Decision, IntervalRecord, Mode, Tick, Verdict

CACHE, START, STEP_SECONDS = "gateway", 1_790_000_000.0, 60.0
YEAR = 525_600  # intervals of a minute
MANY = 10_000
URL = "sqlite:///setpoint.db"
SETTINGS = KnobSettings(2.0**30, 3_600.0, 0.1)
PLAN = Plan(Split("salt", 0.05), SETTINGS, SETTINGS)
BOUNDS = tuple(0.001 * 1.5**power for power in range(24))


def measure(quick: bool) -> Report:
    held, commits, most = (2_000, 30, 500) if quick else (YEAR, 2_000, MANY)
    with tempfile.TemporaryDirectory() as folder:
        say("an empty one")
        empty = _times(Path(folder) / "empty", 1, commits)
        say(f"one with {held:,} intervals")
        _fill(Path(folder) / "full", held)
        full = _times(Path(folder) / "full", held + 1, commits)
        say("reads")
        reads = _reads(Path(folder) / "full", held + commits, most)
        size = sum(file.stat().st_size for file in (Path(folder) / "full").iterdir())
    return Report(
        [
            f"Intervals of a minute; each tick writes both arms' intervals with {len(NAMES)} statistics and two "
            f"histograms of {len(BOUNDS)} bounds, and both arms' decisions. {commits:,} ticks, one after the other, "
            "each committed and confirmed; every commit waits for the disk.",
            f"The full ledger holds {held:,} intervals of the control arm and the decisions for them, in "
            f"{size / 2**20:,.0f} MiB.",
        ],
        [
            Table(
                "Milliseconds for each call",
                ("what", "empty p50", "empty p99", "full p50", "full p99"),
                [[what, *_percentiles(empty[what]), *_percentiles(full[what])] for what in empty],
            ),
            Table(
                "Milliseconds for each call, full ledger, median of nine",
                ("what", "ms"),
                [[what, statistics.median(taken) * 1e3] for what, taken in reads.items()],
            ),
        ],
        [
            at_most("p99 of a commit after a year", 20, _percentiles(full["commit"])[1], "ms"),
            at_most(f"read of {most:,} intervals", 1_000, statistics.median(next(iter(reads.values()))) * 1e3, "ms"),
        ],
    )


def _percentiles(seconds: list[float]) -> tuple[float, float]:
    """p50 and p99 in ms."""
    cuts = statistics.quantiles(seconds, n=100)
    return cuts[49] * 1e3, cuts[98] * 1e3


@contextmanager
def _opened(folder: Path) -> Iterator[tuple[Ledger, Lease]]:
    ledger = open_ledger(URL, folder)
    lease = ledger.take_lease(CACHE, "benchmark", START, 1e9)
    assert lease is not None
    yield ledger, lease
    ledger.close()


def _times(folder: Path, first: int, number: int) -> dict[str, list[float]]:
    """Seconds of each call."""
    taken: dict[str, list[float]] = {"commit": [], "confirm": []}
    generator = random.Random(1)
    with _opened(folder) as (ledger, lease):
        for index in range(first, first + number):
            tick, counted = _tick(index, generator), _counted(index)
            standing = Standing(PLAN, dict.fromkeys(Arm, SETTINGS), lease.fence, START)
            taken["commit"].append(_seconds(lambda tick=tick: ledger.commit(lease, tick, START)))  # type: ignore[misc]
            began = time.perf_counter()
            ledger.confirm(lease, index, standing, counted, START)
            taken["confirm"].append(time.perf_counter() - began)
    return taken


def _reads(folder: Path, last: int, most: int) -> dict[str, list[float]]:
    with _opened(folder) as (ledger, _):
        what: dict[str, Callable[[], object]] = {
            f"the newest {most:,} intervals of the control arm": lambda: ledger.intervals(
                CACHE, last - most, last - 1, Arm.CONTROL
            ),
            "the newest 50 decisions": lambda: ledger.decisions(CACHE),
            "the newest 50 decisions that changed something": lambda: ledger.decisions(
                CACHE, DecisionFilter(changed=True)
            ),
            "the one rollback of the year": lambda: ledger.decisions(CACHE, DecisionFilter(verdict=Verdict.ROLLBACK)),
            "the state": lambda: ledger.state(CACHE),
            "the revision": ledger.revision,
            "one call of prune, which removes 1,000 intervals and 1,000 decisions": lambda: ledger.prune(START + 1e9),
        }
        return {name: [_seconds(call) for _ in range(9)] for name, call in what.items()}


def _seconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def _fill(folder: Path, number: int) -> None:
    """History of the control arm, many rows in a transaction, which a ledger itself never does."""
    generator = random.Random(0)
    samples = [interval_row(_interval(0, Arm.CONTROL, generator)) for _ in range(100)]
    decision = decision_row(_decision(0, Arm.CONTROL), changed=False)
    database = opened(URL, folder)
    for first in range(0, number, MANY):
        some = range(first, min(first + MANY, number))
        intervals = [
            samples[index % 100]
            | {"interval_index": index, "began_seconds": _at(index), "ended_seconds": _at(index + 1)}
            for index in some
        ]
        decisions = [
            decision
            | {"interval_index": index, "at_seconds": _at(index), "changed": index % 10 == 0}
            | {"verdict": "rollback" if index == number // 2 else "allow"}
            for index in some
        ]
        with database.writing() as connection:
            connection.execute(insert(INTERVALS), intervals)
            connection.execute(insert(DECISIONS), decisions)
    database.engine.dispose()


def _tick(index: int, generator: random.Random) -> Tick:
    state = ControlState(CACHE, index, _at(index), None, PLAN, False, PLAN, memory={"ppo": {"seen": list(range(50))}})
    intervals = tuple(_interval(index - 1, arm, generator) for arm in Arm)
    return Tick(state, intervals, tuple(_decision(index, arm) for arm in Arm))


def _at(index: int) -> float:
    return START + index * STEP_SECONDS


def _interval(index: int, arm: Arm, generator: random.Random) -> IntervalRecord:
    window = {name: generator.random() for name in NAMES}
    histogram = Histogram(BOUNDS, tuple(generator.randrange(1_000) for _ in range(len(BOUNDS) + 1)), 12.5)
    return IntervalRecord(
        cache=CACHE,
        index=index,
        arm=arm,
        began_seconds=_at(index),
        ended_seconds=_at(index + 1),
        settings=SETTINGS,
        share=0.95,
        window=window,
        reference_usd=0.5,
        reward=0.1,
        ttft_seconds=histogram,
        latency_seconds=histogram,
    )


def _decision(index: int, arm: Arm) -> Decision:
    return Decision(
        cache=CACHE,
        index=index,
        arm=arm,
        at_seconds=_at(index),
        policy="ppo",
        version=3,
        mode=Mode.LIVE,
        verdict=Verdict.ALLOW,
        reasons=("a larger cache saves 0.8 % on the last 12 intervals",),
        proposed=SETTINGS,
        limited=replace(SETTINGS, ttl_seconds=float(index)),
        applied=SETTINGS,
        predicted_usd_per_1000=0.01,
    )


def _counted(index: int) -> Counted:
    seconds = Histogram(BOUNDS, (index,) * (len(BOUNDS) + 1), 12.5)
    counters = ArmCounters(*range(index, index + 16), seconds, seconds, seconds)
    return Counted(START, _at(index), dict.fromkeys(Arm, counters))


if __name__ == "__main__":
    main(Benchmark("ledger", "The ledger", ("sqlalchemy",), measure))
