"""A real PostgreSQL for tests: one that is named, or one that is started."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.postgres_process import postgres_process, why_not

MEMORY = Path("/dev/shm")


@contextmanager
def postgres_database() -> Iterator[str]:
    """URL of a database: SETPOINT_TEST_POSTGRESQL, or on the newest PostgreSQL that is installed. Without either, or
    without the driver, the test is skipped."""
    pytest.importorskip("psycopg", reason='no driver for PostgreSQL: pip install "setpoint[postgres]" brings one')
    named, reason = os.environ.get("SETPOINT_TEST_POSTGRESQL"), why_not()
    if named:
        yield named
    elif reason is not None:
        pytest.skip(f"{reason}; nor is SETPOINT_TEST_POSTGRESQL=postgresql://… set")
    else:
        with postgres_process(MEMORY if MEMORY.is_dir() else None, durable=False) as url:
            yield url
