"""Wishes that are asked for again and done once: a key of the asker's choice stands for one wish for a day.

A wish and its key are written in one transaction, so that a crash leaves both or neither, and they hold in every
process and after a restart.
"""

from __future__ import annotations

from dataclasses import replace

from sqlalchemy import ColumnElement, Connection, delete, insert, select

from tuner.ledgers import rows as ledger_rows
from tuner.ledgers import writes as ledger_writes
from tuner.ledgers.tables import WISH_KEYS, WISHES
from tuner.records import Wish
from tuner.wish_key import KeyUsed, WishKey

KEPT_SECONDS = 86_400.0


def wish_once(connection: Connection, wish: Wish, key: WishKey) -> Wish:
    """The wish with its id, written now or before with the same key, which changes nothing. Inside a transaction that
    writes; forgets keys that are older than a day. Raises KeyUsed."""
    before = wished_before(connection, key, wish.at_seconds)
    if before is not None:
        connection.rollback()
        return before
    is_old = WISH_KEYS.c.at_seconds <= wish.at_seconds - KEPT_SECONDS
    connection.execute(delete(WISH_KEYS).where(is_old | _is(key)))
    number = ledger_writes.wish(connection, wish)
    row = {"asked_by": key.by, "wish_key": key.key, "fingerprint": key.fingerprint}
    connection.execute(insert(WISH_KEYS).values(**row, wish_id=number, at_seconds=wish.at_seconds))
    return replace(wish, id=number)


def wished_before(connection: Connection, key: WishKey, now_seconds: float) -> Wish | None:
    """As it was when it was asked for: unanswered. A wish that was pruned since is forgotten with its key. Raises
    KeyUsed."""
    row = connection.execute(select(WISH_KEYS).where(_is(key))).mappings().first()
    if row is None or row["at_seconds"] <= now_seconds - KEPT_SECONDS:
        return None
    if row["fingerprint"] != key.fingerprint:
        raise KeyUsed(f"idempotency key {key.key!r}: it was used for another request, expected a new one")
    found = connection.execute(select(WISHES).where(WISHES.c.id == row["wish_id"])).mappings().first()
    return None if found is None else replace(ledger_rows.wish_of(found), done_index=None, answer=None)


def _is(key: WishKey) -> ColumnElement[bool]:
    return (WISH_KEYS.c.asked_by == key.by) & (WISH_KEYS.c.wish_key == key.key)
