"""The streams of a gateway: those that it writes down, those of others that it joins, and reading either."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from caches.attempt import attempted, patiently
from caches.breaker import Breaker, BreakerRule, State
from caches.cancelling import cancelled
from caches.flight import Flight
from caches.stream import Part, StreamLog
from caches.streams.recording import Recording, RecordingRules, Told
from caches.tiers.tier import TierError

T = TypeVar("T")
ID_BYTES = 16  # drawn at random: nobody guesses one of 2**128
LAST_SECONDS = 2.0  # for what is still to be written when the gateway stops


@dataclass
class StreamCounts:
    """recorded: streams that were written down; lost: of these, those of which the log does not have all. joined: those
    of other gateways that were passed on here."""

    recorded: int = 0
    lost: int = 0
    joined: int = 0


class Streams:
    """log: left alone for a while when it fails. grace_seconds: that a call goes on for its log when nobody waits for
    it any more. told: what an error is to tell those who read. joins: whether requests here join streams of other
    gateways with the same log. ticks: a clock that is never set. timed: is told what each append took, s."""

    def __init__(
        self,
        log: StreamLog,
        grace_seconds: float,
        told: Told,
        joins: bool = False,
        rule: BreakerRule = BreakerRule(),
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        self.log, self.joins, self.counts = log, joins, StreamCounts()
        self.timed: Callable[[float], None] = lambda _seconds: None
        self._grace, self._told, self._ticks = grace_seconds, told, ticks
        self._breaker = Breaker(rule)
        self._recordings: dict[str, Recording] = {}
        self._work: set[asyncio.Task[None]] = set()

    @property
    def running(self) -> int:
        """Streams that are being written down now."""
        return len(self._recordings)

    def record(self, flight: Flight[Any], name: bytes) -> None:
        """To be called before its first piece. Not where nobody passes pieces on, nor while the log is left alone."""
        if not flight.watched:
            return
        if self._breaker.state is not State.CLOSED:
            self._go(self._probe())
            return
        stream_id = secrets.token_urlsafe(ID_BYTES)
        rules = RecordingRules(self._grace, self._told, self.timed, self._ticks)
        recording = Recording(self.log, stream_id, name, rules, self._asked)
        flight.stream, self._recordings[stream_id] = stream_id, recording
        self._go(self._record(recording, flight))

    async def elsewhere(self, name: bytes) -> str | None:
        """Of a stream at another gateway: who asks for one of this gateway shares its flight, if they may."""
        stream_id = await self._asked(lambda: self.log.current(name))
        return None if stream_id in self._recordings else stream_id

    async def read(self, stream_id: str, after: int, wait_seconds: float = 0.0) -> Part | None:
        """As of the log. Who can wait for more also waits, as long as a lease, for a log that cannot be reached."""

        async def read() -> Part | None:
            return await self._asked(lambda: self.log.read(stream_id, after, wait_seconds))

        return await patiently(read, self.log.rules.lease_seconds if wait_seconds else 0.0, self._ticks)

    def joined(self) -> None:
        self.counts.joined += 1

    def hide(self, name: bytes) -> None:
        """Nobody at another gateway joins what runs here under this name. Those who read it go on."""
        for recording in list(self._recordings.values()):
            if recording.name == name:
                self._go(self._hide(recording))

    async def close(self) -> None:
        """When the calls have ended: waits a little for what is still to be written."""
        work = list(self._work)
        if work:
            await asyncio.wait(work, timeout=LAST_SECONDS)
        await cancelled(*work)

    async def _record(self, recording: Recording, flight: Flight[Any]) -> None:
        self.counts.recorded += 1
        try:
            await recording.run(flight)
        finally:
            self._recordings.pop(recording.id, None)
            self.counts.lost += recording.lost is not None

    async def _hide(self, recording: Recording) -> None:
        with suppress(TierError):  # it goes by itself a lease later
            await recording.hide()

    async def _probe(self) -> None:
        with suppress(TierError):  # the next stream tries again
            await self._asked(lambda: self.log.current(b""))

    async def _asked(self, call: Callable[[], Awaitable[T]]) -> T:
        return await attempted(self._breaker, self._ticks, call, "streams: their log")

    def _go(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)
