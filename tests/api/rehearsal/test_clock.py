"""Time of a rehearsal goes on while its loop waits, and not while it works."""

from __future__ import annotations

import asyncio
import socket
import time

import pytest

from api.rehearsal.clock import ReplayClock, WaitingSelector, run_waiting

WORK_SECONDS = 0.2


@pytest.mark.parametrize(
    ("timeout", "took", "counted"),
    [
        (0.25, 0.25, 0.25),
        (0.25, 0.125, 0.125),  # something came before
        (0.25, 3.0, 0.25),  # the machine was busy
        (0.0, 1.0, 0.0),
        (-1.0, 1.0, 0.0),
        (None, 2.0, 2.0),
    ],
)
def test_a_wait_counts_as_long_as_it_was_meant_to_be(timeout: float | None, took: float, counted: float) -> None:
    moments = iter([100.0, 100.0 + took])
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.send(b"ready")  # so that the call itself returns at once
        selector = WaitingSelector(lambda: next(moments))
        selector.register(ours, 1)
        assert [key.fileobj for key, _ in selector.select(timeout)] == [ours]
        selector.close()
    assert selector.waited_seconds == counted


def test_what_the_loop_works_takes_no_time() -> None:
    waited: list[float] = []

    async def work() -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        time.sleep(WORK_SECONDS)
        waited.append(loop.time() - began)
        await asyncio.sleep(0.01)
        waited.append(loop.time() - began)

    run_waiting(work())
    assert waited[0] == 0.0
    assert 0.01 <= waited[1] < WORK_SECONDS


def test_sleepers_wake_in_the_order_of_their_times() -> None:
    order: list[str] = []

    async def sleeper(name: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        order.append(name)
        time.sleep(0.02)  # longer than from one to the next

    async def work() -> None:
        await asyncio.gather(sleeper("third", 0.03), sleeper("first", 0.01), sleeper("second", 0.02))

    run_waiting(work())
    assert order == ["first", "second", "third"]


def test_a_replay_is_faster_than_the_loop_and_begins_where_it_is_told() -> None:
    now = [5.0]
    clock = ReplayClock(1_000.0, 60.0, lambda: now[0])
    assert (clock.unix(), clock.ticks()) == (1_000.0, 0.0)
    now[0] = 7.0
    assert (clock.unix(), clock.ticks()) == (1_120.0, 120.0)
    assert clock.clocks.unix() == 1_120.0
    assert clock.clocks.ticks() == 120.0
    assert clock.until(1_180.0) == 1.0
    assert clock.until(1_100.0) == 0.0
