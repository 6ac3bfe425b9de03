"""Time of a rehearsal goes on while its loop waits, and not while it works."""

from __future__ import annotations

import asyncio
import socket
import threading
import time

import pytest

from api.rehearsal.clock import ReplayClock, WaitingLoop, WaitingSelector, run_waiting

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


@pytest.mark.parametrize(
    ("worked", "counted"),
    [
        ([(0.25, 0.5)], 0.75),  # in the middle of the wait
        ([(-1.0, 0.25)], 0.75),  # since before it
        ([(0.75, 9.0)], 0.75),  # until after it
        ([(-2.0, -1.0), (0.125, 0.25), (0.5, 0.75)], 0.625),
        ([(-1.0, 9.0)], 0.0),
    ],
)
def test_what_is_worked_beside_the_loop_takes_no_time(worked: list[tuple[float, float]], counted: float) -> None:
    """A wait from 0 to 1, of which somebody else works those stretches."""
    now = -3.0
    events = sorted((moment, place == 0) for stretch in worked for place, moment in enumerate(stretch))

    def until(moment: float) -> None:
        nonlocal now
        while events and events[0][0] <= moment:
            now, at_work = events.pop(0)
            selector.works(at_work)
        now = moment

    selector = WaitingSelector(lambda: now)
    until(0.0)
    began, before = selector._now()
    until(1.0)
    after, by_now = selector._now()
    selector.close()
    assert after - began - (by_now - before) == counted


def test_time_stands_still_between_two_rests_of_a_thread() -> None:
    async def work() -> tuple[float, float]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, WaitingLoop)
        clock, stop, told = ReplayClock(0.0, 1.0, loop.time, loop.works), threading.Event(), []

        def beside() -> None:
            with clock.at_work():
                began = loop.time()
                time.sleep(WORK_SECONDS)
                told.append(loop.time() - began)
                clock.clocks.rest(stop, WORK_SECONDS)
                told.append(loop.time() - began)

        thread = asyncio.create_task(asyncio.to_thread(beside))
        while not thread.done():
            await asyncio.sleep(0.005)
        await thread
        return told[0], told[1]

    worked: list[tuple[float, float]] = []

    async def kept() -> None:
        worked.append(await work())

    run_waiting(kept())
    assert worked[0][0] < 0.1 * WORK_SECONDS
    assert 0.5 * WORK_SECONDS < worked[0][1] < 1.5 * WORK_SECONDS


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
