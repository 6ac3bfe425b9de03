"""What a process does to a ledger in SQLite as a daemon would, to be killed or to be left without room."""

from __future__ import annotations

import resource
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

from tests.contracts.ledger_records import (
    CACHE,
    EXPERIMENT,
    HOUR,
    START,
    counted,
    experiment,
    judgement,
    standing,
    tick,
)
from tuner.ledger import Ledger, LedgerUnavailable
from tuner.ledgers.sql import open_ledger
from tuner.records import Tick


def whole_tick(index: int) -> Tick:
    """With a part in five tables."""
    begins = (experiment(),) if index == 1 else ()
    return replace(tick(index), experiments=begins, judgement=judgement(index - 1, EXPERIMENT))


def next_index(ledger: Ledger) -> int:
    state = ledger.state(CACHE)
    return 1 if state is None else state.index + 1


def go_on(path: Path, says: Connection) -> None:
    """Ticks without end, from where the ledger stands. Says what it does."""
    ledger = open_ledger(f"sqlite:///{path}", path.parent)
    lease = ledger.take_lease(CACHE, "daemon", START, HOUR)
    assert lease is not None
    while True:
        index = next_index(ledger)
        says.send(("begin", index))
        ledger.commit(lease, whole_tick(index), START)
        says.send(("committed", index))
        ledger.confirm(lease, index, standing(), counted(index), START)
        says.send(("confirmed", index))


def fill(path: Path, says: Connection, most_bytes: int | None) -> None:
    """Ticks until it cannot be written to; then says why, and what can be read all the same: the last tick, and how
    many intervals and judgements. most_bytes: that a file may have; None: as many as fit."""
    ledger = open_ledger(f"sqlite:///{path}", path.parent)
    lease = ledger.take_lease(CACHE, "daemon", START, HOUR)
    assert lease is not None
    if most_bytes is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))
    try:
        while True:
            ledger.commit(lease, whole_tick(next_index(ledger)), START)
    except LedgerUnavailable as error:
        says.send(str(error))
    last = next_index(ledger) - 1
    says.send((last, len(ledger.intervals(CACHE, 0, last)), len(ledger.judgements(EXPERIMENT))))
    ledger.close()
