"""What a gateway writes down of its flights, how long it keeps them going, and what it does when the log fails."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from caches.breaker import BreakerRule
from caches.flight import Flight, LeaderGone
from caches.stream import Part, StreamLog, StreamRules, StreamState, TooLong
from caches.streams.memory_log import MemoryStreamLog
from caches.streams.streams import Streams
from caches.tiers.tier import TierError

NAME = b"default\0default\0fingerprint"
RULES = StreamRules(kept_seconds=600.0, lease_seconds=30.0)


class Troubled(MemoryStreamLog):
    """Fails the next appends."""

    failing: int = 0

    async def append(self, stream_id: str, offset: int, events: Sequence[bytes]) -> None:
        if self.failing:
            self.failing -= 1
            raise TierError("told to fail")
        await super().append(stream_id, offset, events)


class GivenUp:
    """Counts how often the work is ended; the flight then says that its leader left."""

    def __init__(self, flight: Flight[str]) -> None:
        self.flight, self.times = flight, 0

    def __call__(self) -> None:
        self.times += 1
        self.flight.leave()


def told(error: BaseException) -> bytes | None:
    return None if str(error) == "in order" else f"told: {type(error).__name__}".encode()


def streams_on(log: StreamLog, grace_seconds: float = 30.0, **options: Any) -> Streams:
    return Streams(log, grace_seconds, told, **options)


def recorded(streams: Streams) -> tuple[Flight[str], str]:
    flight: Flight[str] = Flight()
    flight.watched = True
    streams.record(flight, NAME)
    assert flight.stream is not None
    return flight, flight.stream


async def part_of(log: StreamLog, stream_id: str) -> Part | None:
    return await log.read(stream_id, 0)


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not true():
            await asyncio.sleep(0.005)


async def ended(log: StreamLog, stream_id: str) -> Part:
    async with asyncio.timeout(20):
        while (part := await part_of(log, stream_id)) is None or part.state is StreamState.RUNNING:
            await asyncio.sleep(0.005)
    return part


async def test_pieces_are_there_as_they_come_and_the_end_too() -> None:
    streams = streams_on(MemoryStreamLog(RULES))
    flight, stream_id = recorded(streams)
    flight.publish(b"1")
    reading = asyncio.ensure_future(streams.read(stream_id, 0, 20.0))
    await asyncio.sleep(0.05)
    part = reading.result() if reading.done() else None
    flight.publish(b"2")
    flight.finish("answer")
    assert part is None or part.events in {(), (b"1",)}
    assert await ended(streams.log, stream_id) == Part(NAME, (b"1", b"2"), StreamState.DONE)
    await until(lambda: streams.running == 0)
    assert (streams.counts.recorded, streams.counts.lost) == (1, 0)
    await asyncio.gather(reading)
    await streams.close()


@pytest.mark.parametrize(
    ("error", "state", "why"),
    [
        (ValueError("broke"), StreamState.FAILED, b"told: ValueError"),
        (ValueError("in order"), StreamState.DONE, b""),
        (LeaderGone("left"), StreamState.FAILED, b"told: LeaderGone"),
    ],
)
async def test_an_error_is_told_as_those_who_wait_are_told(error: Exception, state: StreamState, why: bytes) -> None:
    streams = streams_on(MemoryStreamLog(RULES))
    flight, stream_id = recorded(streams)
    flight.publish(b"1")
    flight.fail(error)
    assert await ended(streams.log, stream_id) == Part(NAME, (b"1",), state, why)
    await streams.close()


async def test_nobody_watches_so_nothing_is_written() -> None:
    streams, flight = streams_on(MemoryStreamLog(RULES)), Flight[str]()
    streams.record(flight, NAME)
    assert (flight.stream, streams.running) == (None, 0)


async def test_ids_are_long_and_differ() -> None:
    streams = streams_on(MemoryStreamLog(RULES))
    made = [recorded(streams) for _ in range(100)]
    ids = {stream_id for _, stream_id in made}
    assert len(ids) == 100
    for flight, _ in made:
        flight.finish("answer")
    assert {len(one) for one in ids} == {22}  # of 64 characters: 128 bits
    await streams.close()


async def test_a_log_that_fails_for_a_moment_loses_nothing() -> None:
    """Appends are repeated: from the same offset, with what came in the meantime."""
    log = Troubled(RULES)
    streams = streams_on(log, rule=BreakerRule(first_seconds=0.01))
    flight, stream_id = recorded(streams)
    log.failing = 2
    for piece in (b"1", b"2", b"3"):
        flight.publish(piece)
        await asyncio.sleep(0.02)
    flight.finish("answer")
    assert (await ended(log, stream_id)).events == (b"1", b"2", b"3")
    assert streams.counts.lost == 0
    await streams.close()


async def test_a_log_that_stays_away_costs_the_recording_and_not_the_flight() -> None:
    log = Troubled(StreamRules(lease_seconds=0.2))
    streams = streams_on(log)
    flight, stream_id = recorded(streams)
    log.failing = 10**9
    flight.publish(b"1")
    await until(lambda: streams.counts.lost == 1)
    flight.publish(b"2")
    flight.finish("answer")
    assert await flight.result() == "answer"
    assert await log.read(stream_id, 0) is None or (await ended(log, stream_id)).state is StreamState.ABANDONED
    other: Flight[str] = Flight()
    other.watched = True
    streams.record(other, NAME)
    assert other.stream is None  # no promise while the log is left alone
    await streams.close()


async def test_what_is_too_long_ends_the_recording_and_not_the_flight() -> None:
    log = MemoryStreamLog(StreamRules(largest_bytes=3))
    streams = streams_on(log)
    flight, stream_id = recorded(streams)
    flight.publish(b"12")
    await asyncio.sleep(0.02)
    flight.publish(b"34")
    part = await ended(log, stream_id)
    assert (part.state, part.why) == (StreamState.FAILED, f"told: {TooLong.__name__}".encode())
    await until(lambda: streams.counts.lost == 1)
    flight.finish("answer")
    assert await flight.result() == "answer"
    await streams.close()


async def test_a_flight_goes_on_for_the_grace_and_then_no_longer() -> None:
    log = MemoryStreamLog(RULES)
    log.wanted_seconds = 0.0  # or looking for its end would keep it going
    streams = streams_on(log, grace_seconds=0.3)
    flight, stream_id = recorded(streams)
    give_up = GivenUp(flight)
    await asyncio.sleep(0)
    flight.leave_to_followers(give_up)
    await asyncio.sleep(0.05)
    flight.publish(b"after the client went")
    assert give_up.times == 0
    part = await ended(streams.log, stream_id)
    assert (part.events, part.why) == ((b"after the client went",), b"told: LeaderGone")
    assert give_up.times == 1
    await streams.close()


async def test_without_a_recording_it_ends_at_once() -> None:
    flight: Flight[str] = Flight()
    give_up = GivenUp(flight)
    flight.leave_to_followers(give_up)
    assert give_up.times == 1


async def test_who_reads_keeps_it_going() -> None:
    log = MemoryStreamLog(RULES)
    log.wanted_seconds = 0.5
    streams = streams_on(log, grace_seconds=0.05)
    flight, stream_id = recorded(streams)
    give_up = GivenUp(flight)
    flight.publish(b"1")
    await until(lambda: len(log) == 1)
    reading = asyncio.ensure_future(_read_on(streams, stream_id))
    flight.leave_to_followers(give_up)
    await asyncio.sleep(0.4)
    assert give_up.times == 0
    reading.cancel()
    await until(lambda: give_up.times == 1)
    await asyncio.gather(reading, return_exceptions=True)
    await streams.close()


async def _read_on(streams: Streams, stream_id: str) -> None:
    while True:
        await streams.read(stream_id, 1, 0.02)


async def test_who_comes_and_goes_again_begins_the_grace_anew() -> None:
    streams = streams_on(MemoryStreamLog(RULES), grace_seconds=0.4)
    flight, _ = recorded(streams)
    give_up = GivenUp(flight)
    await asyncio.sleep(0)
    flight.followers += 1
    flight.leave_to_followers(give_up)
    flight.unfollow()  # 0.4 s from now
    await asyncio.sleep(0.2)
    flight.followers += 1
    await asyncio.sleep(0.4)
    assert give_up.times == 0
    flight.unfollow()
    await asyncio.sleep(0.2)
    assert give_up.times == 0
    await until(lambda: give_up.times == 1)
    await streams.close()


async def test_a_lost_recording_does_not_keep_what_nobody_waits_for() -> None:
    log = Troubled(StreamRules(lease_seconds=0.1))
    streams = streams_on(log, grace_seconds=600.0)
    flight, _ = recorded(streams)
    give_up = GivenUp(flight)
    await asyncio.sleep(0.02)
    flight.leave_to_followers(give_up)
    log.failing = 10**9
    flight.publish(b"1")
    await until(lambda: give_up.times == 1)
    await streams.close()


async def test_what_is_hidden_is_not_joined() -> None:
    log = MemoryStreamLog(RULES)
    here, elsewhere = streams_on(log), streams_on(log)
    flight, stream_id = recorded(here)
    async with asyncio.timeout(20):
        while await elsewhere.elsewhere(NAME) != stream_id:
            await asyncio.sleep(0.005)
    assert await here.elsewhere(NAME) is None  # its own
    here.hide(b"another")
    here.hide(NAME)
    async with asyncio.timeout(20):
        while await elsewhere.elsewhere(NAME) is not None:
            await asyncio.sleep(0.005)
    flight.finish("answer")
    assert (await ended(log, stream_id)).state is StreamState.DONE
    for streams in (here, elsewhere):
        await streams.close()
