"""Everything around a tuning daemon, for real: see benchmarks/fault_world.py."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from benchmarks.fault_accounts import watched
from benchmarks.fault_daemons import Child
from benchmarks.fault_world import World, world_running
from tests.servers import require
from tests.stores import FirstUse
from tuner.ledger import Ledger
from tuner.ledgers.sql import open_ledger


@contextmanager
def worlds(folder: Path, interval_seconds: float, first_use: FirstUse) -> Iterator[World]:
    """With a ledger that is watched."""
    for binary in ("redis-server", "prometheus"):
        require(binary)
    with world_running(folder, interval_seconds, first_use.mlruns / "mlflow.db") as found:
        watched(found.ledger)
        yield found


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, first_use: FirstUse) -> Iterator[World]:
    """Shared by a module; intervals of a second. Tests leave it as they found it."""
    with worlds(tmp_path_factory.mktemp("world"), 1.0, first_use) as found:
        yield found


@pytest.fixture
def ledger(world: World) -> Iterator[Ledger]:
    with closing(open_ledger(f"sqlite:///{world.ledger}", world.folder)) as found:
        yield found


@pytest.fixture
def daemon(world: World) -> Iterator[Child]:
    found = world.nursery.daemon(world.settings())
    yield found
    found.end()
