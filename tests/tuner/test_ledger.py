"""The ledger in SQLite, by the contract of all ledgers."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contracts.ledger_contract import LedgerContract
from tests.contracts.ledger_opened import Opener
from tuner.ledgers.sql import SKEW_SECONDS, open_ledger

MEMORY = Path("/dev/shm")
FOLDER = MEMORY if MEMORY.is_dir() else None  # each commit waits for the disk, and a busy one takes long


class TestLedgerInSqlite(LedgerContract):
    skew_seconds = SKEW_SECONDS

    @pytest.fixture
    def opener(self) -> Iterator[Opener]:
        with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
            yield lambda: open_ledger("sqlite:///setpoint.db", Path(folder))
