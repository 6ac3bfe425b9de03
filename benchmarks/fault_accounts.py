"""Whether a ledger is whole, and agrees with the cache and with who asked it: what must hold whatever was killed.

Triggers keep every row that the ledger's state and lease ever had, in the transaction that wrote it. So what each
interval was opened with is known, and each request can be followed from the client to an interval or between two.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.fault_traffic import Asked, outside
from benchmarks.fault_world import CACHE, World
from caches.knobs import KNOB_NAMES, KnobSettings
from caches.target import Arm
from tuner.ledgers.sql import open_ledger
from tuner.records import ControlState

NOBODY = "No daemon was at work in this interval."
NOW = "(julianday('now') - 2440587.5) * 86400.0"
WATCH = f"""
CREATE TABLE seen_states (number INTEGER PRIMARY KEY, at_seconds, interval_index, opened_seconds, confirmed, opened);
CREATE TABLE seen_leases (number INTEGER PRIMARY KEY, holder, fence);
CREATE TRIGGER states_new AFTER INSERT ON states BEGIN
  INSERT INTO seen_states VALUES (NULL, {NOW}, NEW.interval_index, NEW.opened_seconds, NEW.confirmed, NEW.opened); END;
CREATE TRIGGER states_more AFTER UPDATE ON states BEGIN
  INSERT INTO seen_states VALUES (NULL, {NOW}, NEW.interval_index, NEW.opened_seconds, NEW.confirmed, NEW.opened); END;
CREATE TRIGGER leases_new AFTER INSERT ON leases BEGIN
  INSERT INTO seen_leases VALUES (NULL, NEW.holder, NEW.fence); END;
CREATE TRIGGER leases_more AFTER UPDATE OF holder, fence ON leases BEGIN
  INSERT INTO seen_leases VALUES (NULL, NEW.holder, NEW.fence); END;
"""


def watched(path: Path) -> None:
    """Makes the ledger, with these triggers."""
    open_ledger(f"sqlite:///{path}", path.parent).close()
    with closing(sqlite3.connect(path)) as database:
        database.executescript(WATCH)


@dataclass(frozen=True)
class Account:
    """Of intervals from the first to the last that is over. counted: with numbers. unknown: recorded as such, with the
    reason; nobody: without a daemon. missing: not recorded. doubled: recorded again, or by arms that are not all keys.
    between: requests that the cache counted after one interval was read and before the next was. disagreements:
    whatever does not agree, in sentences. effects: from a decision to its confirmed effect, s."""

    intervals: int
    counted: int
    unknown: int
    nobody: int
    missing: int
    doubled: int
    requests: int
    between: int
    fences: int
    disagreements: tuple[str, ...]
    effects: tuple[float, ...]


@dataclass(frozen=True)
class Opened:
    """An interval's first reading: of the cache's clock, and requests of both arms."""

    at_seconds: float
    requests: int


def account(world: World) -> Account:
    """Of a world whose daemons have ended or rest."""
    with closing(sqlite3.connect(world.ledger)) as database:
        database.row_factory = sqlite3.Row
        rows, opened = _intervals(database), _opened(database)
        first, last = min(rows), max(rows)
        between, faults = _between(rows, opened, world.traffic.all())
        faults += [*_fences(database, world), *_decisions(database, world), *_agreement(world)]
        told = [row for index in rows for row in rows[index]]
        effects = _effects(database)
    by_index = {index: [row["reason"] for row in found] for index, found in rows.items()}
    reasons = [found[0] for found in by_index.values()]
    return Account(
        intervals=last - first + 1,
        counted=reasons.count(None),
        unknown=len([one for one in reasons if one not in (None, NOBODY)]),
        nobody=reasons.count(NOBODY),
        missing=last - first + 1 - len(rows),
        doubled=sum(not 0.999 < sum(row["share"] for row in found) < 1.001 for found in rows.values()),
        requests=sum(_requests(row) for row in told),
        between=between,
        fences=max(row[0] for row in _all(world.ledger, "SELECT fence FROM seen_leases")),
        disagreements=tuple(faults),
        effects=tuple(effects),
    )


def state_of(path: Path) -> ControlState:
    ledger = open_ledger(f"sqlite:///{path}", path.parent)
    try:
        state = ledger.state(CACHE)
    finally:
        ledger.close()
    assert state is not None
    return state


def _all(path: Path, query: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as database:
        return database.execute(query).fetchall()


def _intervals(database: sqlite3.Connection) -> dict[int, list[sqlite3.Row]]:
    rows: dict[int, list[sqlite3.Row]] = {}
    for row in database.execute("SELECT * FROM intervals ORDER BY interval_index, arm"):
        rows.setdefault(row["interval_index"], []).append(row)
    return rows


def _opened(database: sqlite3.Connection) -> dict[int, Opened]:
    """The last reading that each interval was opened with: an interval that was opened anew counts from there."""
    found: dict[int, Opened] = {}
    for row in database.execute(
        "SELECT interval_index, opened FROM seen_states WHERE opened IS NOT NULL ORDER BY number"
    ):
        told = json.loads(row["opened"])
        requests = sum(told["arms"][arm]["requests"] for arm in Arm)
        found[row["interval_index"]] = Opened(told["at_seconds"], requests)
    return found


def _requests(row: sqlite3.Row) -> int:
    return 0 if row["statistics"] is None else int(json.loads(row["statistics"])["requests"])


def _between(
    rows: dict[int, list[sqlite3.Row]], opened: dict[int, Opened], asked: Sequence[Asked]
) -> tuple[int, list[str]]:
    """Requests that the cache counted between two intervals, and where these cannot be: fewer than none, when one was
    counted twice; more than clients had under way from the end of an interval until the next was opened, when one was
    lost."""
    total, faults, clients = 0, [], 8
    for index, found in rows.items():
        here, there = opened.get(index), opened.get(index + 1)
        if here is None or there is None or any(row["statistics"] is None for row in found):
            continue
        counted = sum(_requests(row) for row in found)
        left, ended = there.requests - here.requests - counted, found[0]["ended_seconds"]
        most = clients + sum(one.sent <= there.at_seconds and one.answered >= ended for one in asked)
        total += left
        if not 0 <= left <= most:
            faults.append(f"interval {index}: got {left} requests between it and the next, expected 0 to {most}")
    return total, faults


def _fences(database: sqlite3.Connection, world: World) -> list[str]:
    fences = [row["fence"] for row in database.execute("SELECT fence FROM seen_leases ORDER BY number")]
    holders = database.execute(
        "SELECT count(*) FROM (SELECT fence FROM seen_leases GROUP BY fence HAVING count(DISTINCT holder) > 1)"
    )
    faults = [f"fence {fence} fell in the cache" for fence in world.looked.fell]
    if fences != sorted(fences):
        faults.append("a lease was given with a lower fence than one before")
    if holders.fetchone()[0]:
        faults.append("two daemons had one fence")
    return faults


def _decisions(database: sqlite3.Connection, world: World) -> list[str]:
    """Everything that was decided or applied lies in the operator's ranges; each arm is decided for once."""
    faults = []
    for row in database.execute("SELECT * FROM decisions"):
        for what in ("limited", "applied"):
            if row[f"{what}_cache_size"] is not None:
                settings = KnobSettings(*(row[f"{what}_{name}"] for name in KNOB_NAMES))
                faults += [f"interval {row['interval_index']}: {one}" for one in outside(settings, world.looked.space)]
    return faults


def _agreement(world: World) -> list[str]:
    """The cache goes by the plan of the ledger, under its lease, and went by allowed settings all along."""
    state, standing = state_of(world.ledger), world.looked.standing()
    fence = max(row[0] for row in _all(world.ledger, "SELECT fence FROM seen_leases"))
    faults = [*world.looked.outside]
    if state.confirmed and state.plan != standing.plan:
        faults.append(f"the cache goes by {standing.plan}, the ledger by {state.plan}")
    if not standing.fence <= fence:
        faults.append(f"the cache has seen fence {standing.fence}, the ledger gave {fence} at most")
    return faults


def _effects(database: sqlite3.Connection) -> list[float]:
    """By interval: from when it was decided until the ledger knew that the cache had taken it; of what was applied at
    the first attempt, as it says of itself."""
    query = (
        "SELECT interval_index, opened_seconds, min(at_seconds) AS at FROM seen_states WHERE confirmed GROUP BY 1, 2"
    )
    found = {row["interval_index"]: row["at"] - row["opened_seconds"] for row in database.execute(query)}
    return [found[index] for index in sorted(found)]
