"""docs/ledger.md: its tables are those of the code, and its queries run."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from caches.target import Arm
from tests.contracts.ledger_records import (
    CACHE,
    OURS,
    PLAN,
    START,
    THEIRS,
    decision,
    interval,
    standing,
    taken,
    tick,
    wish,
)
from tests.tuner.postgres_server import postgres_database
from tuner.ledger import Ledger
from tuner.ledgers.sql import SKEW_SECONDS, open_ledger
from tuner.ledgers.tables import TABLES
from tuner.records import WishKind

PAGE = (Path(__file__).parents[2] / "docs" / "ledger.md").read_text(encoding="utf-8")
QUERIES = re.findall(r"```sql\n(.*?)```", PAGE, flags=re.DOTALL)
Rows = Sequence[Sequence[Any]]


def test_the_page_lists_every_table_and_column() -> None:
    section = PAGE.split("\n## What is in it\n")[1].split("\n## ")[0]
    listed = {}
    for line in section.splitlines():
        if line.startswith("| `"):
            _, table, _, columns, _ = line.split("|")
            listed[table.strip(" `")] = set(re.findall(r"`(\w+)`", columns))
    assert listed == {name: {column.name for column in table.columns} for name, table in TABLES.tables.items()}


def test_the_page_states_the_allowance_for_clocks() -> None:
    assert f"their own clock is {SKEW_SECONDS:g} s past the end" in PAGE


def test_the_queries_run_on_sqlite(tmp_path: Path) -> None:
    ledger = open_ledger("sqlite:///setpoint.db", tmp_path)
    fill(ledger)
    with closing(sqlite3.connect(tmp_path / "setpoint.db")) as database:
        check([database.execute(query).fetchall() for query in QUERIES])
    ledger.close()


@pytest.fixture
def postgres_url() -> Iterator[str]:
    with postgres_database() as url:
        yield url


def test_the_queries_run_on_postgres(postgres_url: str) -> None:
    engine = create_engine(postgres_url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as connection:
        connection.execute(text("DROP SCHEMA IF EXISTS setpoint CASCADE"))
    ledger = open_ledger(postgres_url, Path())
    fill(ledger)
    ledger.close()
    with engine.connect() as connection:
        connection.execute(text("SET search_path TO setpoint"))
        check([connection.execute(text(query)).fetchall() for query in QUERIES])
    engine.dispose()


def fill(ledger: Ledger) -> None:
    """Intervals 59, 60 and 61, of which 61 is one that nothing is known of; then a change of the control arm."""
    costs = {"compute_usd": 1.0, "warmup_usd": 2.0, "memory_usd": 3.0, "staleness_usd": 4.0, "slow_usd": 5.0}
    lease, asked = taken(ledger), ledger.wish(wish())
    ledger.wish(wish(WishKind.KILL, START + 1))
    for index in (60, 61, 62):
        known = {"requests": 1_000.0 if index == 60 else 500.0, **costs}
        window, reason = (None, "the cache was restarted") if index == 62 else (known, None)
        one = replace(interval(index - 1), window=window, reason=reason)
        decides = decision(index, limited=THEIRS if index == 62 else OURS)
        answers = (replace(asked, done_index=60, answer="paused"),) if index == 60 else ()
        ledger.commit(lease, replace(tick(index), intervals=(one,), decisions=(decides,), wishes=answers), START)
        ledger.confirm(lease, index, standing(replace(PLAN, control=decides.limited)), None, START)
    assert ledger.caches() == [CACHE]


def check(answers: Sequence[Rows]) -> None:
    changed, hours, asked = ([tuple(row) for row in rows] for rows in answers)
    why = "it is cheaper by 3 % — said the ghosts"
    assert changed == [
        (62, Arm.CONTROL, "ppo", "allow", THEIRS.cache_size, THEIRS.ttl_seconds, why),
        (60, Arm.CONTROL, "ppo", "allow", OURS.cache_size, OURS.ttl_seconds, why),
    ]
    assert hours == [(0, Arm.CONTROL, 1_000.0, 15.0), (1, Arm.CONTROL, 500.0, 30.0)]
    assert asked == [
        (START + 1, "ada", "kill", "the launch is today", "open"),
        (START, "ada", "pause", "the launch is today", "paused"),
    ]
