"""What is written into the ledger, on a connection whose transaction has the lock of all writers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, Table, and_, insert, select, update

from caches.errors import InputError
from caches.target import Arm, Counted, Standing
from tuner.ledger import Lease, LeaseLost
from tuner.ledgers import rows
from tuner.ledgers.lease import GIVEN_BACK, binds, granted
from tuner.ledgers.tables import DECISIONS, EXPERIMENTS, INTERVALS, JUDGEMENTS, LEASES, STATES, WISHES
from tuner.records import ControlState, Decision, Mode, Tick, Wish

# --- leases -----------------------------------------------------------------------------------------------------------


def lease_of(connection: Connection, cache: str) -> Lease | None:
    row = connection.execute(select(LEASES).where(LEASES.c.cache == cache)).mappings().first()
    return None if row is None else Lease(**row)


def take(connection: Connection, asked: Lease, now: float, skew: float, *, force: bool) -> Lease | None:
    lease = granted(lease_of(connection, asked.cache), asked, now, skew, force=force)
    if lease is not None:
        _put(connection, LEASES, rows.row_of(lease, "lease"))
    return lease


def give_back(connection: Connection, lease: Lease) -> bool:
    """Whether it was the current one."""
    ours = and_(LEASES.c.cache == lease.cache, LEASES.c.holder == lease.holder, LEASES.c.fence == lease.fence)
    return connection.execute(update(LEASES).where(ours).values(until_seconds=GIVEN_BACK)).rowcount == 1


def demand(connection: Connection, lease: Lease, now: float) -> None:
    """Raises LeaseLost unless it is the current one and has not run out."""
    current = lease_of(connection, lease.cache)
    if not binds(current, lease, now):
        there = "none" if current is None else f"{current.fence} of {current.holder} until {current.until_seconds:.3f}"
        raise LeaseLost(
            f"{lease.cache}: got lease {lease.fence} of {lease.holder} at {now:.3f}, expected the current one: {there}"
        )


# --- the tick ---------------------------------------------------------------------------------------------------------


def commit(connection: Connection, tick: Tick, digest: str) -> bool:
    """Whether there was anything to do: not where this very tick was committed before. digest: of the tick.

    Raises LeaseLost where the state has gone on.
    """
    state = tick.state
    before = connection.execute(select(STATES).where(STATES.c.cache == state.cache)).mappings().first()
    if before is not None and before["interval_index"] >= state.index:
        if (before["interval_index"], before["tick"]) == (state.index, digest):
            return False
        raise LeaseLost(
            f"{state.cache}: got a tick that opens interval {state.index}, expected one after "
            f"{before['interval_index']}, which is committed"
        )
    _write_history(connection, tick)
    _put(connection, STATES, rows.state_row(state) | {"tick": digest})
    return True


def _write_history(connection: Connection, tick: Tick) -> None:
    for experiment in tick.experiments:
        _put(connection, EXPERIMENTS, rows.experiment_row(experiment))
    for interval in tick.intervals:
        _new(connection, INTERVALS, rows.interval_row(interval))
    for decision in tick.decisions:
        _new(connection, DECISIONS, rows.decision_row(decision, changed=_is_change(connection, decision)))
    if tick.judgement is not None:
        _new(connection, JUDGEMENTS, rows.judgement_row(tick.judgement))
    for wish in tick.wishes:
        _answer(connection, wish)


def _is_change(connection: Connection, decision: Decision) -> bool:
    """Whether it decides for other settings than the one before it for this arm. The first of all does."""
    its = and_(DECISIONS.c.cache == decision.cache, DECISIONS.c.arm == decision.arm.value)
    last = select(DECISIONS).where(its).order_by(DECISIONS.c.interval_index.desc()).limit(1)
    before = connection.execute(last).mappings().first()
    return before is None or rows.decision_of(before).limited != decision.limited


def _answer(connection: Connection, wish: Wish) -> None:
    this = and_(WISHES.c.id == wish.id, WISHES.c.cache == wish.cache)
    answered = update(WISHES).where(this, WISHES.c.done_index.is_(None))
    if connection.execute(answered.values(done_index=wish.done_index, answer=wish.answer)).rowcount == 1:
        return
    there = connection.execute(select(WISHES).where(this)).mappings().first()
    if there is None:
        raise InputError(f"tick.wishes: got the id {wish.id}, expected one of a wish for {wish.cache!r}")
    if rows.wish_of(there) != wish:
        raise LeaseLost(f"{wish.cache}: wish {wish.id} was answered in the meantime: {there['answer']}")


def confirm(connection: Connection, cache: str, index: int, standing: Standing, counted: Counted | None) -> None:
    """As taken counts what the cache aims at within its own limits, not what binds while it still shrinks towards it.

    Raises LeaseLost where the state is of another interval.
    """
    opened = rows.plain(counted, "counted")
    its_state = and_(STATES.c.cache == cache, STATES.c.interval_index == index)
    if connection.execute(update(STATES).where(its_state).values(opened=opened, confirmed=True)).rowcount != 1:
        raise LeaseLost(f"{cache}: got a confirmation of interval {index}, expected one of the interval that is open")
    for arm in Arm:
        its = and_(DECISIONS.c.cache == cache, DECISIONS.c.interval_index == index, DECISIONS.c.arm == arm.value)
        taken = rows.spread(standing.plan.settings(arm), "applied_")
        connection.execute(update(DECISIONS).where(its, DECISIONS.c.mode != Mode.SHADOW.value).values(**taken))


def amend(connection: Connection, state: ControlState) -> None:
    """Raises LeaseLost where the ledger's state is of another interval."""
    its_state = and_(STATES.c.cache == state.cache, STATES.c.interval_index == state.index)
    if connection.execute(update(STATES).where(its_state).values(**rows.state_row(state))).rowcount != 1:
        raise LeaseLost(f"{state.cache}: got a change of interval {state.index}, expected the interval that is open")


def wish(connection: Connection, asked: Wish) -> int:
    """Its id."""
    done = connection.execute(insert(WISHES).values(**rows.wish_row(asked)))
    assert done.inserted_primary_key is not None
    return int(done.inserted_primary_key[0])


def _put(connection: Connection, table: Table, row: Mapping[str, Any]) -> None:
    """In the place of the row with the same key, or as a new one."""
    key = and_(*(column == row[column.name] for column in table.primary_key))
    if connection.execute(update(table).where(key), _checked(table, row)).rowcount == 0:
        _new(connection, table, row)


def _new(connection: Connection, table: Table, row: Mapping[str, Any]) -> None:
    connection.execute(insert(table), _checked(table, row))


def _checked(table: Table, row: Mapping[str, Any]) -> Mapping[str, Any]:
    """The row. What has no column would otherwise be left out without a word."""
    if unknown := row.keys() - table.columns.keys():
        raise TypeError(f"{table.name}: there is no column for {sorted(unknown)}")
    return row
