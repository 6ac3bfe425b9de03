"""The ledger in SQLite and in PostgreSQL: what a commit and a read take, empty and with a year in it."""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from sqlalchemy import insert, text

from benchmarks.harness import Benchmark, Goal, Report, Table, at_most, main, say
from benchmarks.postgres_process import postgres_process, postgres_version, why_not
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
SETTINGS = KnobSettings(2.0**30, 3_600.0, 0.1)
PLAN = Plan(Split("salt", 0.05), SETTINGS, SETTINGS)
BOUNDS = tuple(0.001 * 1.5**power for power in range(24))


@dataclass(frozen=True)
class Kind:
    """A database that a ledger may lie in. ledger: URL of an empty one, for as long as the block lasts. why_not: why it
    cannot be had here; None where it can."""

    name: str
    ledger: Callable[[], AbstractContextManager[str]]
    why_not: str | None


@dataclass(frozen=True)
class Taken:
    """Seconds of each call, by what it was. reads: in the full one, of which size_bytes says how large it is."""

    empty: Mapping[str, Sequence[float]]
    full: Mapping[str, Sequence[float]]
    reads: Mapping[str, Sequence[float]]
    size_bytes: int


def measure(quick: bool) -> Report:
    held, commits, most = (2_000, 30, 500) if quick else (YEAR, 2_000, MANY)
    kinds = (Kind("SQLite", _file, None), Kind("PostgreSQL", postgres_process, why_not()))
    taken = {kind.name: _taken(kind, held, commits, most) for kind in kinds if kind.why_not is None}
    sizes = ", ".join(f"{one.size_bytes / 2**20:,.0f} MiB in {name}" for name, one in taken.items())
    server = "" if kinds[1].why_not else f" PostgreSQL {postgres_version()} with its own settings, over loopback."
    return Report(
        [
            f"Intervals of a minute; each tick writes both arms' intervals with {len(NAMES)} statistics and two "
            f"histograms of {len(BOUNDS)} bounds, and both arms' decisions. {commits:,} ticks, one after the other, "
            f"each committed and confirmed; every commit waits for the disk.{server}",
            f"The full ledger holds {held:,} intervals of the control arm and the decisions for them: {sizes}.",
        ],
        [table for name, one in taken.items() for table in _tables(name, one)],
        [goal for kind in kinds for goal in _goals(kind, taken.get(kind.name), most)],
    )


def _taken(kind: Kind, held: int, commits: int, most: int) -> Taken:
    say(f"{kind.name}: an empty one")
    with kind.ledger() as url:
        empty = _times(url, 1, commits)
    with kind.ledger() as url:
        say(f"{kind.name}: one with {held:,} intervals")
        _fill(url, held)
        full = _times(url, held + 1, commits)
        say(f"{kind.name}: reads")
        size_bytes = _size_bytes(url)
        return Taken(empty, full, _reads(url, held + commits, most), size_bytes)


def _tables(name: str, taken: Taken) -> list[Table]:
    return [
        Table(
            f"{name}: milliseconds for each call",
            ("what", "empty p50", "empty p99", "full p50", "full p99"),
            [[what, *_percentiles(taken.empty[what]), *_percentiles(taken.full[what])] for what in taken.empty],
        ),
        Table(
            f"{name}: milliseconds for each call, full ledger, median of nine",
            ("what", "ms"),
            [[what, statistics.median(seconds) * 1e3] for what, seconds in taken.reads.items()],
        ),
    ]


def _goals(kind: Kind, taken: Taken | None, most: int) -> list[Goal]:
    commit, read = f"{kind.name}: p99 of a commit after a year", f"{kind.name}: read of {most:,} intervals"
    if taken is None:
        return [Goal(commit, str(kind.why_not), None), Goal(read, str(kind.why_not), None)]
    return [
        at_most(commit, 20, _percentiles(taken.full["commit"])[1], "ms"),
        at_most(read, 1_000, statistics.median(next(iter(taken.reads.values()))) * 1e3, "ms"),
    ]


@contextmanager
def _file() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        yield f"sqlite:///{folder}/setpoint.db"


def _size_bytes(url: str) -> int:
    """With what lies beside the file, and of the whole database."""
    if url.startswith("sqlite"):
        return sum(file.stat().st_size for file in Path(url.removeprefix("sqlite:///")).parent.iterdir())
    database = opened(url, Path())
    with database.reading() as connection:
        size: int = connection.execute(text("SELECT pg_database_size(current_database())")).scalar_one()
    database.engine.dispose()
    return size


def _percentiles(seconds: Sequence[float]) -> tuple[float, float]:
    """p50 and p99 in ms."""
    cuts = statistics.quantiles(seconds, n=100)
    return cuts[49] * 1e3, cuts[98] * 1e3


@contextmanager
def _opened(url: str) -> Iterator[tuple[Ledger, Lease]]:
    ledger = open_ledger(url, Path())
    lease = ledger.take_lease(CACHE, "benchmark", START, 1e9)
    assert lease is not None
    yield ledger, lease
    ledger.close()


def _times(url: str, first: int, number: int) -> dict[str, list[float]]:
    """Seconds of each call."""
    taken: dict[str, list[float]] = {"commit": [], "confirm": []}
    generator = random.Random(1)
    with _opened(url) as (ledger, lease):
        for index in range(first, first + number):
            tick, counted = _tick(index, generator), _counted(index)
            standing = Standing(PLAN, dict.fromkeys(Arm, SETTINGS), lease.fence, START)
            taken["commit"].append(_seconds(lambda tick=tick: ledger.commit(lease, tick, START)))  # type: ignore[misc]
            began = time.perf_counter()
            ledger.confirm(lease, index, standing, counted, START)
            taken["confirm"].append(time.perf_counter() - began)
    return taken


def _reads(url: str, last: int, most: int) -> dict[str, list[float]]:
    with _opened(url) as (ledger, _):
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


def _fill(url: str, number: int) -> None:
    """History of the control arm, many rows in a transaction, which a ledger itself never does."""
    generator = random.Random(0)
    samples = [interval_row(_interval(0, Arm.CONTROL, generator)) for _ in range(100)]
    decision = decision_row(_decision(0, Arm.CONTROL), changed=False)
    database = opened(url, Path())
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
    if database.engine.dialect.name == "postgresql":  # which does it by itself within a minute
        with database.writing() as connection:
            connection.execute(text("ANALYZE"))
    database.engine.dispose()


def _tick(index: int, generator: random.Random) -> Tick:
    state = ControlState(CACHE, index, _at(index), None, PLAN, False, memory={"ppo": {"seen": list(range(50))}})
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
    counters = ArmCounters(*range(index, index + 18), seconds, seconds, seconds)
    return Counted(START, _at(index), dict.fromkeys(Arm, counters))


if __name__ == "__main__":
    main(Benchmark("ledger", "The ledger", ("sqlalchemy",), measure))
