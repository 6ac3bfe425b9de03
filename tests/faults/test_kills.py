"""SIGKILL at random moments of the tick, hundreds of times."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest

from benchmarks.fault_accounts import account
from benchmarks.fault_kills import Slaughter
from tests.faults.conftest import worlds
from tests.stores import FirstUse

KILLS, INTERVAL_SECONDS = 200, 0.5


@pytest.mark.slow
@pytest.mark.timeout(2_400)
def test_killed_at_any_moment_nothing_is_lost_and_all_agree(tmp_path: Path, first_use: FirstUse) -> None:
    with worlds(tmp_path, INTERVAL_SECONDS, first_use) as world:
        slaughter = Slaughter(world, seed=KILLS)
        slaughter.go_on(KILLS)
        slaughter.rest()
        found = account(world)
        assert slaughter.kills.number == KILLS
        assert slaughter.kills.in_tick >= KILLS // 10
        assert (found.missing, found.doubled, found.disagreements) == (0, 0, ())
        assert found.counted > 0
        assert len(world.looked.seen) > 10  # settings have changed all along
        assert world.looked.outside == []
        assert world.traffic.failed() == []
        assert statistics.median(found.effects) < INTERVAL_SECONDS
