"""The tables of the ledger, the same in SQLite and PostgreSQL. docs/ledger.md says what is in them, for whoever reads
them with SQL: what they are called is an interface. Columns avoid the words that SQL keeps for itself.
"""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
)

from caches.knobs import KNOB_NAMES

TABLES = MetaData()
_NUMBER = BigInteger().with_variant(Integer, "sqlite")  # SQLite numbers rows by itself only under this name
_TREE = JSON(none_as_null=True)


POLICY = "eviction_policy"


def _settings(prefix: str = "", *, nullable: bool = False) -> list[Column[Any]]:
    """The knobs, and the eviction policy where one is named."""
    knobs = [Column(prefix + name, Double, nullable=nullable) for name in KNOB_NAMES]
    return [*knobs, Column(prefix + POLICY, Text)]


# one row
LEDGER = Table(
    "ledger",
    TABLES,
    Column("one", Integer, CheckConstraint("one = 1"), primary_key=True),
    Column("version", Integer, nullable=False),
    Column("revision", BigInteger, nullable=False),
)

LEASES = Table(
    "leases",
    TABLES,
    Column("cache", Text, primary_key=True),
    Column("holder", Text, nullable=False),
    Column("fence", BigInteger, nullable=False),
    Column("until_seconds", Double, nullable=False),
)

# tick: a digest of what was committed, by which the same tick is known when it comes again
STATES = Table(
    "states",
    TABLES,
    Column("cache", Text, primary_key=True),
    Column("interval_index", BigInteger, nullable=False),
    Column("opened_seconds", Double, nullable=False),
    Column("phase", Text, nullable=False),
    Column("step", Integer, nullable=False),
    Column("phase_index", BigInteger, nullable=False),
    Column("experiment", Text),
    Column("paused", Text),
    Column("latched", Text),
    Column("confirmed", Boolean, nullable=False),
    Column("plan", _TREE, nullable=False),
    Column("opened", _TREE),
    Column("memory", _TREE, nullable=False),
    Column("tick", Text, nullable=False),
)

INTERVALS = Table(
    "intervals",
    TABLES,
    Column("cache", Text, primary_key=True),
    Column("interval_index", BigInteger, primary_key=True),
    Column("arm", Text, primary_key=True),
    Column("began_seconds", Double, nullable=False),
    Column("ended_seconds", Double, nullable=False),
    *_settings(),
    Column("share", Double, nullable=False),
    Column("statistics", _TREE),
    Column("reason", Text),
    Column("reference_usd", Double),
    Column("reward", Double),
    Column("ttft_seconds", _TREE),
    Column("latency_seconds", _TREE),
    Index("intervals_by_end", "ended_seconds"),
)

DECISIONS = Table(
    "decisions",
    TABLES,
    Column("cache", Text, primary_key=True),
    Column("interval_index", BigInteger, primary_key=True),
    Column("arm", Text, primary_key=True),
    Column("at_seconds", Double, nullable=False),
    Column("policy", Text, nullable=False),
    Column("version", Integer),
    Column("mode", Text, nullable=False),
    Column("verdict", Text, nullable=False),
    Column("changed", Boolean, nullable=False),
    Column("reasons", _TREE, nullable=False),
    *_settings("proposed_", nullable=True),
    *_settings("limited_"),
    *_settings("applied_", nullable=True),
    Column("predicted_usd_per_1000", Double),
    Index("decisions_by_time", "at_seconds"),
    Index("decisions_by_verdict", "cache", "verdict", "interval_index"),
    Index("decisions_by_change", "cache", "changed", "interval_index"),
)

_DONE = Column("done_index", BigInteger)
WISHES = Table(
    "wishes",
    TABLES,
    Column("id", _NUMBER, primary_key=True),
    Column("cache", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("asked_by", Text, nullable=False),
    Column("at_seconds", Double, nullable=False),
    Column("reason", Text, nullable=False),
    Column("arguments", _TREE, nullable=False),
    _DONE,
    Column("answer", Text),
    Index("wishes_by_cache", "cache", "id"),
    Index("wishes_open", "cache", "id", sqlite_where=_DONE.is_(None), postgresql_where=_DONE.is_(None)),
    sqlite_autoincrement=True,  # the number of a wish that was removed is not given again
)

# by which a wish that is asked for again is done once
WISH_KEYS = Table(
    "wish_keys",
    TABLES,
    Column("asked_by", Text, primary_key=True),
    Column("wish_key", Text, primary_key=True),
    Column("fingerprint", Text, nullable=False),
    Column("wish_id", _NUMBER, nullable=False),
    Column("at_seconds", Double, nullable=False),
    Index("wish_keys_by_time", "at_seconds"),
)

EXPERIMENTS = Table(
    "experiments",
    TABLES,
    Column("id", Text, primary_key=True),
    Column("cache", Text, nullable=False),
    Column("began_seconds", Double, nullable=False),
    Column("champion", Integer),
    Column("challenger", Integer),
    Column("design", _TREE, nullable=False),
    Column("ended_seconds", Double),
    Column("outcome", Text),
    Column("answer", Text),
    Index("experiments_by_begin", "cache", "began_seconds"),
)

JUDGEMENTS = Table(
    "judgements",
    TABLES,
    Column("experiment", Text, ForeignKey(EXPERIMENTS.c.id), primary_key=True),
    Column("interval_index", BigInteger, primary_key=True),
    Column("cache", Text, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("reasons", _TREE, nullable=False),
    Column("numbers", _TREE, nullable=False),
)


def compact(tree: object) -> str:
    """JSON as it is written into a column."""
    return json.dumps(tree, allow_nan=False, separators=(",", ":"))
