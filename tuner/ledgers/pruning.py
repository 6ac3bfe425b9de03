"""What may leave the ledger: history older than a moment, unless an experiment needs it.

An experiment needs all that lies between its begin and its end while it runs, and until its end is that old too. Then
its record stays, with its last judgement. The interval that is open stays, and so do wishes that nobody has acted on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Table, and_, bindparam, delete, exists, func, or_, select

from tuner.ledgers.tables import DECISIONS, EXPERIMENTS, INTERVALS, JUDGEMENTS, STATES, WISHES

Keys = Sequence[Mapping[str, Any]]


def removable(connection: Connection, before: float, most: int) -> dict[Table, Keys]:
    """Keys of what to remove, at most so many of each table; without those tables where there is nothing. Only reads,
    since it may look at much that stays."""
    found: dict[Table, Keys] = {}
    for table, may_go in _MAY_GO.items():
        which = select(*table.primary_key).where(may_go(before)).limit(most)
        if keys := [dict(row) for row in connection.execute(which).mappings()]:
            found[table] = keys
    return found


def count(connection: Connection, before: float) -> dict[Table, int]:
    """Of everything that may be removed."""
    return {
        table: connection.execute(select(func.count()).select_from(table).where(may_go(before))).scalar_one()
        for table, may_go in _MAY_GO.items()
    }


def remove(connection: Connection, table: Table, keys: Keys) -> None:
    key = [column == bindparam(f"the_{column.name}") for column in table.primary_key]
    connection.execute(delete(table).where(*key), [{f"the_{name}": one[name] for name in one} for one in keys])


def _intervals(before: float) -> ColumnElement[bool]:
    table = INTERVALS.c
    return and_(table.ended_seconds < before, ~_needed(table.cache, table.ended_seconds, before))


def _decisions(before: float) -> ColumnElement[bool]:
    table = DECISIONS.c
    is_over = table.interval_index < _open_index(table.cache)
    return and_(table.at_seconds < before, is_over, ~_needed(table.cache, table.at_seconds, before))


def _judgements(before: float) -> ColumnElement[bool]:
    table, other = JUDGEMENTS.c, JUDGEMENTS.alias()
    last = select(func.max(other.c.interval_index)).where(other.c.experiment == table.experiment).scalar_subquery()
    is_old = exists().where(EXPERIMENTS.c.id == table.experiment, EXPERIMENTS.c.ended_seconds < before)
    return and_(table.interval_index < last, is_old)


def _wishes(before: float) -> ColumnElement[bool]:
    return and_(WISHES.c.at_seconds < before, WISHES.c.done_index.is_not(None))


def _needed(cache: ColumnElement[str], at: ColumnElement[float], before: float) -> ColumnElement[bool]:
    """Whether a moment, itself before `before`, lies in an experiment that runs or ended at `before` or later."""
    experiment = EXPERIMENTS.c
    ends_late = or_(experiment.ended_seconds.is_(None), experiment.ended_seconds >= before)
    return exists().where(experiment.cache == cache, experiment.began_seconds <= at, ends_late)


def _open_index(cache: ColumnElement[str]) -> ColumnElement[int]:
    return select(STATES.c.interval_index).where(STATES.c.cache == cache).scalar_subquery()


_MAY_GO: dict[Table, Callable[[float], ColumnElement[bool]]] = {
    INTERVALS: _intervals,
    DECISIONS: _decisions,
    JUDGEMENTS: _judgements,
    WISHES: _wishes,
}
