"""One contract for every stream log: what a writer appended is what readers get, from wherever they begin, and no
writer goes on who was taken for dead."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from caches.stream import Fenced, Part, StreamLog, StreamRules, StreamState, TooLong

QUICKLY = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
LASTING = StreamRules(largest_bytes=10_000, kept_seconds=600.0, lease_seconds=600.0)
NAME = b"tenant\0namespace\0fingerprint"
EVENTS = st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=5)
# An append of these events, so many places before the end of what is there; or a read after so many.
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), EVENTS, st.integers(0, 4)),
        st.tuples(st.just("read"), st.integers(0, 30)),
    ),
    max_size=25,
)


class Make(Protocol):
    """A log of the same server or, where they are in one process, the same log."""

    def __call__(self, rules: StreamRules = ...) -> StreamLog: ...


class Subject(Protocol):
    """several: whether logs that it makes are different writers of the same streams."""

    several: bool

    def made(self) -> AbstractAsyncContextManager[Make]: ...


def with_logs(subject: Subject, scenario: Callable[[Make], Awaitable[None]]) -> None:
    async def run() -> None:
        async with subject.made() as make:
            await scenario(make)

    asyncio.run(run())


def new_id() -> str:
    return secrets.token_urlsafe(16)


async def read(log: StreamLog, stream_id: str, after: int = 0) -> Part:
    part = await log.read(stream_id, after)
    assert part is not None
    return part


async def ends(log: StreamLog, stream_id: str) -> Part:
    """What is found when it runs no longer."""
    async with asyncio.timeout(20):
        while (part := await read(log, stream_id)).state is StreamState.RUNNING:
            await asyncio.sleep(0.02)
    return part


class StreamContract:
    """Subclass it in a test module, with a fixture or attribute `subject`."""

    subject: Subject

    @QUICKLY
    @given(steps=STEPS, end=st.sampled_from([StreamState.DONE, StreamState.FAILED]))
    def test_readers_get_what_was_appended(self, steps: list[tuple[object, ...]], end: StreamState) -> None:
        """Whatever is said again, and wherever they begin."""

        async def scenario(make: Make) -> None:
            log, stream_id, there = make(LASTING), new_id(), list[bytes]()
            await log.open(stream_id, NAME)
            for step in steps:
                if step[0] == "append":
                    await append_again(log, stream_id, there, step[1], step[2])  # type: ignore[arg-type]
                else:
                    after = int(step[1])  # type: ignore[call-overload]
                    part = await read(log, stream_id, after)
                    assert part == Part(NAME, tuple(there[after:]), StreamState.RUNNING)
            why = b"" if end is StreamState.DONE else b"data: {}\n\n"
            for _ in range(2):
                await (log.finish(stream_id, NAME) if not why else log.fail(stream_id, NAME, why))
            for after in range(len(there) + 2):
                assert await read(log, stream_id, after) == Part(NAME, tuple(there[after:]), end, why)

        with_logs(self.subject, scenario)

    def test_a_gap_is_an_error_and_changes_nothing(self) -> None:
        async def scenario(make: Make) -> None:
            log, stream_id = make(LASTING), new_id()
            await log.open(stream_id, NAME)
            with pytest.raises(ValueError, match="offset"):
                await log.append(stream_id, 1, [b"second"])
            await log.append(stream_id, 0, [b"first"])
            assert (await read(log, stream_id)).events == (b"first",)

        with_logs(self.subject, scenario)

    def test_what_has_ended_stays_as_it_was(self) -> None:
        async def scenario(make: Make) -> None:
            log, stream_id = make(LASTING), new_id()
            await log.open(stream_id, NAME)
            await log.append(stream_id, 0, [b"one"])
            await log.finish(stream_id, NAME)
            for call in (
                log.append(stream_id, 1, [b"two"]),
                log.renew(stream_id, NAME),
                log.fail(stream_id, NAME, b"why"),
                log.open(stream_id, NAME),
            ):
                with pytest.raises(Fenced):
                    await call
            assert await read(log, stream_id) == Part(NAME, (b"one",), StreamState.DONE)

        with_logs(self.subject, scenario)

    def test_nobody_writes_to_what_was_never_opened(self) -> None:
        async def scenario(make: Make) -> None:
            log, stream_id = make(LASTING), new_id()
            for call in (
                log.append(stream_id, 0, [b"one"]),
                log.renew(stream_id, NAME),
                log.finish(stream_id, NAME),
                log.fail(stream_id, NAME, b"why"),
            ):
                with pytest.raises(Fenced):
                    await call
            assert await log.read(stream_id, 0) is None
            assert not await log.wanted(stream_id)

        with_logs(self.subject, scenario)

    def test_another_writer_is_kept_out(self) -> None:
        async def scenario(make: Make) -> None:
            writer, other, stream_id = make(LASTING), make(LASTING), new_id()
            await writer.open(stream_id, NAME)
            await writer.append(stream_id, 0, [b"one"])
            for call in (
                other.open(stream_id, NAME),
                other.append(stream_id, 1, [b"two"]),
                other.renew(stream_id, NAME),
                other.finish(stream_id, NAME),
                other.fail(stream_id, NAME, b"why"),
            ):
                with pytest.raises(Fenced):
                    await call
            assert await read(other, stream_id) == Part(NAME, (b"one",), StreamState.RUNNING)

        if not self.subject.several:
            pytest.skip("in one process there is one writer")
        with_logs(self.subject, scenario)

    def test_a_writer_that_says_nothing_is_dead_and_stays_so(self) -> None:
        async def scenario(make: Make) -> None:
            rules = StreamRules(10_000, 600.0, lease_seconds=0.2)
            log, stream_id = make(rules), new_id()
            await log.open(stream_id, NAME)
            assert await log.current(NAME) in {stream_id, None}  # it may be dead already
            part = await ends(log, stream_id)
            assert (part.state, part.why) == (StreamState.ABANDONED, b"")
            with pytest.raises(Fenced):
                await log.append(stream_id, 0, [b"late"])
            with pytest.raises(Fenced):
                await log.finish(stream_id, NAME)
            assert (await read(log, stream_id)).state is StreamState.ABANDONED
            async with asyncio.timeout(20):
                while await log.current(NAME) is not None:
                    await asyncio.sleep(0.02)

        with_logs(self.subject, scenario)

    @pytest.mark.slow
    def test_a_writer_that_is_heard_of_lives(self) -> None:
        async def scenario(make: Make) -> None:
            log, stream_id = make(StreamRules(10_000, 600.0, lease_seconds=4.0)), new_id()
            await log.open(stream_id, NAME)
            for _ in range(25):
                await asyncio.sleep(0.2)
                await log.renew(stream_id, NAME)
            assert await log.current(NAME) == stream_id
            for offset in range(25):
                await asyncio.sleep(0.2)
                await log.append(stream_id, offset, [b"event"])
            assert (await read(log, stream_id)).state is StreamState.RUNNING

        with_logs(self.subject, scenario)

    def test_a_stream_that_has_ended_goes_after_a_while(self) -> None:
        async def scenario(make: Make) -> None:
            log, stream_id = make(StreamRules(10_000, kept_seconds=0.2, lease_seconds=600.0)), new_id()
            await log.open(stream_id, NAME)
            await log.finish(stream_id, NAME)
            async with asyncio.timeout(20):
                while await log.read(stream_id, 0) is not None:
                    await asyncio.sleep(0.02)

        with_logs(self.subject, scenario)

    def test_the_first_that_runs_under_a_name_is_found(self) -> None:
        async def scenario(make: Make) -> None:
            log, first, second = make(LASTING), new_id(), new_id()
            assert await log.current(NAME) is None
            await log.open(first, NAME)
            await log.open(second, NAME)
            assert await log.current(NAME) == first
            assert await log.current(NAME + b"other") is None
            await log.finish(first, NAME)
            assert await log.current(NAME) is None
            await log.renew(second, NAME)
            assert await log.current(NAME) == second
            await log.fail(second, NAME, b"why")
            assert await log.current(NAME) is None

        with_logs(self.subject, scenario)

    def test_what_is_hidden_is_not_found_but_read(self) -> None:
        async def scenario(make: Make) -> None:
            log, stream_id, other = make(LASTING), new_id(), new_id()
            await log.open(stream_id, NAME)
            await log.hide(stream_id, NAME)
            await log.renew(stream_id, NAME)
            assert await log.current(NAME) is None
            await log.append(stream_id, 0, [b"one"])
            assert (await read(log, stream_id)).events == (b"one",)
            await log.open(other, NAME)
            await log.hide(stream_id, NAME)
            assert await log.current(NAME) == other

        with_logs(self.subject, scenario)

    def test_a_reader_waits_for_more_and_for_the_end(self) -> None:
        async def scenario(make: Make) -> None:
            log, stream_id = make(LASTING), new_id()
            await log.open(stream_id, NAME)
            waiting = asyncio.ensure_future(log.read(stream_id, 0, 20.0))
            await asyncio.sleep(0.05)
            assert not waiting.done()
            await log.append(stream_id, 0, [b"one"])
            part = await waiting
            assert part is not None
            assert (part.events, part.state) == ((b"one",), StreamState.RUNNING)
            waiting = asyncio.ensure_future(log.read(stream_id, 1, 20.0))
            await asyncio.sleep(0.05)
            await log.finish(stream_id, NAME)
            assert await waiting == Part(NAME, (), StreamState.DONE)

        with_logs(self.subject, scenario)

    def test_a_reader_that_waits_for_nothing_gets_nothing(self) -> None:
        async def scenario(make: Make) -> None:
            log, stream_id = make(LASTING), new_id()
            await log.open(stream_id, NAME)
            async with asyncio.timeout(20):
                assert await log.read(stream_id, 0, 0.1) == Part(NAME, (), StreamState.RUNNING)

        with_logs(self.subject, scenario)

    def test_who_reads_counts_as_wanting_more(self) -> None:
        async def scenario(make: Make) -> None:
            log, stream_id = make(LASTING), new_id()
            log.wanted_seconds = 600.0
            await log.open(stream_id, NAME)
            assert not await log.wanted(stream_id)
            await log.read(stream_id, 0)
            assert await log.wanted(stream_id)

        with_logs(self.subject, scenario)

    def test_interest_ends(self) -> None:
        async def scenario(make: Make) -> None:
            log, stream_id = make(LASTING), new_id()
            log.wanted_seconds = 0.1
            await log.open(stream_id, NAME)
            await log.read(stream_id, 0)
            async with asyncio.timeout(20):
                while await log.wanted(stream_id):
                    await asyncio.sleep(0.02)

        with_logs(self.subject, scenario)

    def test_what_is_too_long_keeps_what_came(self) -> None:
        async def scenario(make: Make) -> None:
            log, stream_id = make(StreamRules(10, 600.0, 600.0)), new_id()
            await log.open(stream_id, NAME)
            await log.append(stream_id, 0, [b"12345", b"67890"])
            with pytest.raises(TooLong):
                await log.append(stream_id, 2, [b"", b"1"])
            assert (await read(log, stream_id)).events == (b"12345", b"67890")
            await log.append(stream_id, 0, [b"12345", b"67890"])  # nothing more
            await log.fail(stream_id, NAME, b"too long")
            assert (await read(log, stream_id, 1)).why == b"too long"

        with_logs(self.subject, scenario)

    def test_many_events_come_in_order(self) -> None:
        """More than one answer of a server holds."""

        async def scenario(make: Make) -> None:
            log, stream_id = make(StreamRules(10**7, 600.0, 600.0)), new_id()
            await log.open(stream_id, NAME)
            events = [b"%d" % number for number in range(1_300)]
            for offset in range(0, len(events), 100):
                await log.append(stream_id, offset, events[offset : offset + 100])
            assert (await read(log, stream_id)).events == tuple(events)
            assert (await read(log, stream_id, 1_299)).events == (b"1299",)

        with_logs(self.subject, scenario)


async def append_again(log: StreamLog, stream_id: str, there: list[bytes], new: Sequence[bytes], before: int) -> None:
    """New events, and with them some that are there already."""
    before = min(before, len(there))
    offset = len(there) - before
    await log.append(stream_id, offset, [*there[offset:], *new])
    there += new
