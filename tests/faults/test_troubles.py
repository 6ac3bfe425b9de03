"""What can fail around a daemon, one after the other: requests go on being answered, settings stay inside the
operator's limits, the ledger says what was wrong, and the daemon goes on by itself within a number of intervals."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from benchmarks.fault_accounts import account
from benchmarks.fault_daemons import Child
from benchmarks.fault_traffic import wait_until
from benchmarks.fault_troubles import TROUBLES, suffer
from benchmarks.fault_world import CACHE, SETPOINT, World
from benchmarks.processes import free_port
from tests.tuner.prometheus_parts import Page, scraping, send
from tuner.ledger import DecisionFilter, Ledger
from tuner.ledgers.sql import open_ledger
from tuner.records import Verdict

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
LONG_SECONDS = 120.0


@pytest.fixture(autouse=True)
def _requests_are_answered_and_settings_allowed(world: World) -> Iterator[None]:
    began = time.time()
    yield
    assert world.traffic.failed(began) == []
    assert [one for one in world.traffic.all() if one.sent >= began]
    assert world.looked.outside == []
    assert world.looked.fell == []


@pytest.mark.parametrize("name", TROUBLES)
def test_it_goes_on_by_itself(world: World, daemon: Child, ledger: Ledger, name: str) -> None:
    trouble = TROUBLES[name]
    told = suffer(world, ledger, daemon, trouble)
    assert trouble.says is None or any(trouble.says in one for one in told.said)
    assert told.back_seconds <= trouble.intervals * world.interval_seconds + LONG_SECONDS / 4


def test_after_all_of_that_nothing_was_lost_or_counted_twice(world: World, daemon: Child, ledger: Ledger) -> None:
    wait_until(lambda: (now := ledger.state(CACHE)) is not None and now.confirmed, "an interval in order")
    daemon.end()
    found = account(world)
    assert (found.missing, found.doubled, found.disagreements) == (0, 0, ())


def test_a_flushed_redis_has_the_key_stream_again(world: World, daemon: Child, ledger: Ledger) -> None:
    suffer(world, ledger, daemon, TROUBLES["redis flushed"])
    state = ledger.state(CACHE)
    assert state is not None
    records = ledger.intervals(CACHE, state.index - 1, state.index - 1)
    assert all(one.reference_usd is not None for one in records)  # ghosts follow the keys again


# --- a Prometheus that lies -------------------------------------------------------------------------------------------


@contextmanager
def beside(world: World, folder: Path, **sections: Any) -> Iterator[tuple[Child, Ledger]]:
    """A daemon with other settings, which takes the cache over under a ledger of its own in that folder."""
    url = f"sqlite:///{folder / 'beside.db'}"
    with closing(open_ledger(url, folder)) as ledger:
        highest = world.looked.standing().fence
        while (lease := ledger.take_lease(CACHE, "before", time.time(), 60.0, force=True)) and lease.fence <= highest:
            pass
        assert lease is not None
        ledger.drop_lease(lease)
        found = world.nursery.daemon(world.settings(control={"ledger": url}, **sections))
        try:
            yield found, ledger
        finally:
            found.end()
            fence = world.looked.standing().fence
            with closing(sqlite3.connect(world.ledger)) as database, database:  # whoever follows has to be above that
                database.execute("UPDATE leases SET fence = max(fence, ?)", (fence,))


def poison(value: str) -> Any:
    """Answers of a Prometheus that has just this for every series, and knows the time."""

    def answer(handler: Any) -> None:
        now = time.time()
        kind, found = "vector", f'[{{"metric":{{}},"value":[{now},"{value}"]}}]'
        if "query=time%28%29" in handler.path:
            kind, found = "scalar", f'[{now},"{now}"]'
        elif "timestamp" in handler.path:
            rows = ",".join(f'{{"metric":{{"place":"{i}"}},"value":[{now},"{now}"]}}' for i in range(20))
            found = f"[{rows}]"
        send(handler, f'{{"status":"success","data":{{"resultType":"{kind}","result":{found}}}}}')

    return answer


@pytest.mark.parametrize("value", ["NaN", "-5", "+Inf", "1e300"])
def test_poisoned_metrics_hold_the_settings(world: World, tmp_path: Path, value: str) -> None:
    page = Page()
    page.answer = poison(value)
    try:
        with beside(world, tmp_path, signals={"prometheus": page.url}) as (_, ledger):
            found = _decided(ledger, 5)
    finally:
        page.stop()
    held = [one for one in found if one.verdict is Verdict.HOLD]
    assert len(held) >= len(found) - 2
    assert any("signals are missing" in reason for one in held for reason in one.reasons)


def test_series_that_went_stale_hold_the_settings(world: World, tmp_path: Path) -> None:
    page = Page("# TYPE setpoint_gateway_requests_total counter\nsetpoint_gateway_requests_total 5\n")
    with scraping(tmp_path, {"gateway": [page.port]}) as server:
        time.sleep(2.0)
        page.stop()
        with beside(world, tmp_path, signals={"prometheus": server.url}) as (_, ledger):
            found = _decided(ledger, 4)
    assert any("signals are missing" in reason for one in found for reason in one.reasons)


def test_a_registry_that_refuses_leaves_the_operators_settings(world: World, tmp_path: Path) -> None:
    with beside(world, tmp_path, tracking={"uri": f"http://127.0.0.1:{free_port()}"}) as (_, ledger):
        found = _decided(ledger, 3)
    assert {one.limited for one in found} == {world.looked.space.default()}
    assert any("MLflow" in reason for one in found for reason in one.reasons)


def _decided(ledger: Ledger, intervals: int) -> list[Any]:
    """Decisions of the control arm, once there are so many."""
    which = DecisionFilter(limit=50)
    wait_until(
        lambda: len({one.index for one in ledger.decisions(CACHE, which)}) >= intervals, "decisions", LONG_SECONDS
    )
    return [one for one in ledger.decisions(CACHE, which) if one.arm == "control"]


# --- a disk that is full ----------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, of 1 MB."""
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "setpoint-test", str(tmp_path)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("a small file system cannot be mounted here; disk full by a limit of the process is tested above")
    yield tmp_path
    subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)


def test_a_ledger_on_a_full_disk_decides_nothing_and_goes_on_when_there_is_room(world: World, small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    with beside(world, small_disk) as (_, ledger):
        _decided(ledger, 3)
        with pytest.raises(OSError, match="No space left"):
            _fill(ballast)
        time.sleep(2.0 * world.interval_seconds)
        full = ledger.state(CACHE)
        time.sleep(3.0 * world.interval_seconds)
        assert full is not None
        assert ledger.state(CACHE) == full
        assert world.looked.standing().plan == full.plan
        ballast.unlink()
        wait_until(
            lambda: (now := ledger.state(CACHE)) is not None and now.index > full.index + 1, "more", LONG_SECONDS
        )


def _fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4_096))


# --- the command itself -----------------------------------------------------------------------------------------------


def test_the_command_is_killed_and_started_again(world: World, ledger: Ledger) -> None:
    file = world.folder / "setpoint.toml"
    file.write_text(_toml(world.settings()), encoding="utf-8")
    for _ in range(2):
        before = ledger.state(CACHE)
        first = 0 if before is None else before.index
        with (world.folder / "tune.log").open("ab") as log:
            process = subprocess.Popen([SETPOINT, "tune", "--config", str(file)], cwd=world.folder, stderr=log)
        try:
            wait_until(
                lambda first=first: (
                    (now := ledger.state(CACHE)) is not None and now.index > first + 2 and now.confirmed
                ),  # type: ignore[misc]
                "a daemon that decides",
                LONG_SECONDS,
            )
        finally:
            process.kill()
            process.wait()
    found = account(world)
    assert (found.missing, found.doubled) == (0, 0)


def _toml(settings: dict[str, dict[str, object]]) -> str:
    """Tables of plain values; those of no value are left out, as TOML has none."""
    lines = []
    for name, section in settings.items():
        lines.append(f"[{name}]")
        lines += [f"{key} = {_value(value)}" for key, value in section.items() if not isinstance(value, dict)]
    return "\n".join([*lines, ""])


def _value(value: object) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    return str(value).lower() if isinstance(value, bool) else str(value)
