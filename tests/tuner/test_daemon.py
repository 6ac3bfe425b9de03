"""The clock around the control loop."""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from agents.registry import Registry
from caches.clocks import Clocks
from tests.tuner.loops import KNOBS, LARGE, SECONDS, Bench, HandPolicies, policy
from tuner.control import Did, Ticked
from tuner.daemon import Daemon, Pace, describe
from tuner.loop.policies import RegistryPolicies
from tuner.loop.watching import LiveWatch


def daemon(bench: Bench, told: Callable[[Ticked, float], None], registry: Registry) -> Daemon:
    """It finds nothing in the registry; policies come from the bench."""
    nobody = RegistryPolicies(registry, KNOBS, SECONDS)
    pace = Pace(poll_seconds=0.01, refresh_seconds=60.0, keep_seconds=1e6)
    return Daemon(bench.loop, nobody, LiveWatch(), pace, Clocks(lambda: bench.now, time.perf_counter), told)


def test_it_ticks_until_it_is_stopped_and_gives_its_lease_back(
    folder: Path, registry: Registry, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(folder, policies=HandPolicies(policy(1, LARGE)))
    found: list[Did] = []

    def told(ticked: Ticked, seconds: float) -> None:
        assert seconds >= 0.0
        found.append(ticked.did)
        if len(found) in (3, 6):
            bench.traffic()
        if len(found) == 9:
            made.stop()

    made = daemon(bench, told, registry)
    with caplog.at_level(logging.INFO, "setpoint.tuner"):
        made.run()
    assert found.count(Did.DECIDED) == 3
    assert set(found) == {Did.DECIDED, Did.NOTHING}
    assert [line for line in caplog.messages if line.startswith("Interval 2, idle; control 1 of the keys: ")]
    assert bench.started("two").tick(bench.now).did is Did.NOTHING  # another one need not wait


def test_a_ledger_that_is_gone_is_told_once_and_borne(
    folder: Path, registry: Registry, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(folder)
    other = sqlite3.connect(folder / "setpoint.db", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")  # somebody keeps it locked
    made = daemon(bench, lambda _ticked, _seconds: None, registry)
    with caplog.at_level(logging.INFO, "setpoint.tuner"):
        thread = threading.Thread(target=made.run)
        thread.start()
        deadline = time.monotonic() + 60.0
        while not caplog.messages and time.monotonic() < deadline:
            time.sleep(0.01)
        made.stop()
        thread.join()
    other.close()
    told = [line for line in caplog.messages if line.startswith("The ledger cannot be used")]
    assert len(told) == 1
    assert bench.cache.standing().fence == 0


def test_a_line_says_where_it_stands(folder: Path) -> None:
    bench = Bench(folder)
    bench.run(1)
    assert describe(bench.state) == ("Interval 1, idle; control 1 of the keys: 5,000 bytes, TTL 1e+04 s, warm-up 0.")
