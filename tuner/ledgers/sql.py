"""The ledger in SQLite or PostgreSQL. docs/ledger.md says what is in it, and the rule of the lease."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError
from sqlalchemy import Select, Table, and_, func, or_, select

from caches.errors import InputError
from caches.target import Arm, Counted, Standing
from tuner.ledger import DecisionFilter, Lease, Ledger, Pruned
from tuner.ledgers import pruning as ledger_pruning
from tuner.ledgers import rows as ledger_rows
from tuner.ledgers import wish_keys as ledger_wish_keys
from tuner.ledgers import writes as ledger_writes
from tuner.ledgers.database import Database, opened
from tuner.ledgers.lease import checked_times
from tuner.ledgers.tables import DECISIONS, EXPERIMENTS, INTERVALS, JUDGEMENTS, LEDGER, STATES, WISHES
from tuner.records import ControlState, Decision, ExperimentRecord, IntervalRecord, Judgement, Tick, Wish
from tuner.wish_key import WishKey

T = TypeVar("T")
SKEW_SECONDS = 1.0


def open_ledger(url: str, directory: Path, skew_seconds: float = SKEW_SECONDS) -> Ledger:
    """The ledger at `sqlite:///FILE` or `postgresql://USER@HOST/DATABASE`, made where there is none.

    directory: what FILE is relative to. skew_seconds: by how much the clocks of daemons may differ; nobody takes over a
    lease before so long after its end. Threads may share what is returned; a process that is forked may not use it.

    Raises InputError for a URL of another form, and for a damaged file, one that is no ledger, or that of a newer
    Setpoint, each left as it is; LedgerUnavailable where it cannot be reached or made.
    """
    return SqlLedger(opened(url, directory), skew_seconds)


class SqlLedger:
    """As the seam says. Wherever it raises LedgerUnavailable, InputError or LeaseLost nothing has changed, but that a
    PostgreSQL which went away during a commit may have done it: committing the same tick again says so."""

    def __init__(self, database: Database, skew_seconds: float = SKEW_SECONDS) -> None:
        self._database, self._skew_seconds = database, skew_seconds

    # who acts

    def take_lease(
        self, cache: str, holder: str, now_seconds: float, seconds: float, *, force: bool = False
    ) -> Lease | None:
        checked_times(now_seconds, seconds)
        asked = Lease(cache, holder, 0, now_seconds + seconds)
        with self._database.writing() as connection:
            lease = ledger_writes.take(connection, asked, now_seconds, self._skew_seconds, force=force)
            if lease is None:
                connection.rollback()
            return lease

    def drop_lease(self, lease: Lease) -> None:
        with self._database.writing() as connection:
            if not ledger_writes.give_back(connection, lease):
                connection.rollback()

    def lease(self, cache: str) -> Lease | None:
        with self._database.reading() as connection:
            return ledger_writes.lease_of(connection, cache)

    # what the daemon writes

    def commit(self, lease: Lease, tick: Tick, now_seconds: float) -> None:
        if tick.state.cache != lease.cache:
            raise InputError(f"tick.state.cache: got {tick.state.cache!r}, expected {lease.cache!r}, as of the lease")
        ledger_rows.check_tick(tick)
        digest = ledger_rows.digest(tick)
        with self._database.writing() as connection:
            ledger_writes.demand(connection, lease, now_seconds)
            if not ledger_writes.commit(connection, tick, digest):
                connection.rollback()

    def confirm(
        self, lease: Lease, index: int, standing: Standing, counted: Counted | None, now_seconds: float
    ) -> None:
        with self._database.writing() as connection:
            ledger_writes.demand(connection, lease, now_seconds)
            ledger_writes.confirm(connection, lease.cache, index, standing, counted)

    def amend(self, lease: Lease, state: ControlState, now_seconds: float) -> None:
        if state.cache != lease.cache:
            raise InputError(f"state.cache: got {state.cache!r}, expected {lease.cache!r}, as of the lease")
        with self._database.writing() as connection:
            ledger_writes.demand(connection, lease, now_seconds)
            ledger_writes.amend(connection, state)

    # what anybody may do

    def prune(self, before_seconds: float, most: int = 1_000) -> Pruned:
        _check_time(before_seconds)
        with self._database.reading() as connection:
            found = ledger_pruning.removable(connection, before_seconds, most)
        if found:
            with self._database.writing() as connection:
                for table, keys in found.items():
                    ledger_pruning.remove(connection, table, keys)
        return _pruned({table: len(keys) for table, keys in found.items()})

    def prunable(self, before_seconds: float) -> Pruned:
        _check_time(before_seconds)
        with self._database.reading() as connection:
            return _pruned(ledger_pruning.count(connection, before_seconds))

    def wish(self, wish: Wish, key: WishKey | None = None) -> Wish:
        with self._database.writing() as connection:
            if key is None:
                return replace(wish, id=ledger_writes.wish(connection, wish))
            return ledger_wish_keys.wish_once(connection, wish, key)

    def wished_before(self, key: WishKey, now_seconds: float) -> Wish | None:
        with self._database.reading() as connection:
            return ledger_wish_keys.wished_before(connection, key, now_seconds)

    def caches(self) -> Sequence[str]:
        return sorted(self._read(select(STATES.c.cache), lambda row: str(row["cache"])))

    def state(self, cache: str) -> ControlState | None:
        found = self._read(select(STATES).where(STATES.c.cache == cache), ledger_rows.state_of)
        return found[0] if found else None

    def open_wishes(self, cache: str) -> Sequence[Wish]:
        which = select(WISHES).where(WISHES.c.cache == cache, WISHES.c.done_index.is_(None))
        return self._read(which.order_by(WISHES.c.id), ledger_rows.wish_of)

    def wishes(self, cache: str, limit: int = 50, before_id: int | None = None) -> Sequence[Wish]:
        which = select(WISHES).where(WISHES.c.cache == cache).order_by(WISHES.c.id.desc())
        if before_id is not None:
            which = which.where(WISHES.c.id < before_id)
        return self._read(which.limit(_checked(limit)), ledger_rows.wish_of)

    def intervals(self, cache: str, first: int, last: int, arm: Arm | None = None) -> Sequence[IntervalRecord]:
        table = INTERVALS.c
        which = select(INTERVALS).where(table.cache == cache, table.interval_index.between(first, last))
        if arm is not None:
            which = which.where(table.arm == arm.value)
        return self._read(which.order_by(table.interval_index, table.arm), ledger_rows.interval_of)

    def first_index(self, cache: str) -> int | None:
        which = select(func.min(INTERVALS.c.interval_index).label("first")).where(INTERVALS.c.cache == cache)
        return self._read(which, lambda row: None if row["first"] is None else int(row["first"]))[0]

    def decisions(self, cache: str, which: DecisionFilter = DecisionFilter()) -> Sequence[Decision]:
        table = DECISIONS.c
        found = select(DECISIONS).where(table.cache == cache)
        if which.arm is not None:
            found = found.where(table.arm == which.arm.value)
        if which.verdict is not None:
            found = found.where(table.verdict == which.verdict.value)
        if which.changed is not None:
            found = found.where(table.changed.is_(which.changed))
        if which.before is not None:
            index, arm = which.before
            is_later = or_(table.interval_index < index, and_(table.interval_index == index, table.arm > arm.value))
            found = found.where(is_later)
        found = found.order_by(table.interval_index.desc(), table.arm).limit(_checked(which.limit))
        return self._read(found, ledger_rows.decision_of)

    def judgements(self, experiment: str) -> Sequence[Judgement]:
        which = select(JUDGEMENTS).where(JUDGEMENTS.c.experiment == experiment)
        return self._read(which.order_by(JUDGEMENTS.c.interval_index), ledger_rows.judgement_of)

    def experiment(self, experiment: str) -> ExperimentRecord | None:
        found = self._read(select(EXPERIMENTS).where(EXPERIMENTS.c.id == experiment), ledger_rows.experiment_of)
        return found[0] if found else None

    def experiments(
        self, cache: str | None = None, limit: int = 50, before_seconds: float | None = None
    ) -> Sequence[ExperimentRecord]:
        table = EXPERIMENTS.c
        which = select(EXPERIMENTS).order_by(table.began_seconds.desc(), table.id.desc()).limit(_checked(limit))
        if cache is not None:
            which = which.where(table.cache == cache)
        if before_seconds is not None:
            which = which.where(table.began_seconds < before_seconds)
        return self._read(which, ledger_rows.experiment_of)

    def revision(self) -> int:
        return self._read(select(LEDGER.c.revision), lambda row: int(row["revision"]))[0]

    def close(self) -> None:
        self._database.engine.dispose()

    def _read(self, which: Select[Any], record_of: Callable[[ledger_rows.Row], T]) -> list[T]:
        with self._database.reading() as connection:
            try:
                return [record_of(row) for row in connection.execute(which).mappings()]
            except (InputError, ValidationError, ValueError, TypeError) as error:
                raise InputError(f"{self._database.where}: got a row that no Setpoint has written: {error}") from error


def _check_time(before_seconds: float) -> None:
    if not math.isfinite(before_seconds):
        raise InputError(f"before_seconds: got {before_seconds}, expected Unix time")


def _pruned(rows: Mapping[Table, int]) -> Pruned:
    """By table; none of one that is not there."""
    intervals, decisions, judgements, wishes = (rows.get(one, 0) for one in (INTERVALS, DECISIONS, JUDGEMENTS, WISHES))
    return Pruned(intervals, decisions, judgements, wishes)


def _checked(limit: int) -> int:
    if limit < 1:
        raise InputError(f"limit: got {limit}, expected at least 1")
    return limit
