"""A stream log in this process, for resuming at the same gateway."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from caches.stream import Fenced, Part, StreamRules, StreamState, TooLong

WANTED_SECONDS = 3.0


@dataclass
class _Stream:
    """until: when its writer counts as dead; once it has ended, when it goes."""

    name: bytes
    until: float
    events: list[bytes] = field(default_factory=list)
    used_bytes: int = 0
    state: StreamState = StreamState.RUNNING
    why: bytes = b""
    read_at: float = -math.inf
    hidden: bool = False
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def wake(self) -> None:
        news, self.news = self.news, asyncio.Event()
        news.set()


class MemoryStreamLog:
    """An event loop's. capacity_bytes: of the events of all streams; for a new event those that ended first go first,
    and where only running ones are left it is too long. ticks: a clock that is never set, s."""

    def __init__(
        self,
        rules: StreamRules = StreamRules(),
        capacity_bytes: int = 64 * 2**20,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        self.rules, self.wanted_seconds = rules, WANTED_SECONDS
        self._capacity, self._ticks = capacity_bytes, ticks
        self._running: dict[str, _Stream] = {}
        self._ended: dict[str, _Stream] = {}  # in the order of their ends
        self._current: dict[bytes, str] = {}
        self.used_bytes = 0

    def __len__(self) -> int:
        """Streams that are kept, running or not."""
        return len(self._running) + len(self._ended)

    async def open(self, stream_id: str, name: bytes) -> None:
        self._sweep()
        if stream_id in self._running:
            return
        if stream_id in self._ended:
            raise Fenced(f"stream {stream_id}: it has ended")
        self._running[stream_id] = _Stream(name, self._ticks() + self.rules.lease_seconds)
        self._current.setdefault(name, stream_id)

    async def append(self, stream_id: str, offset: int, events: Sequence[bytes]) -> None:
        stream = self._own(stream_id)
        have = len(stream.events)
        if offset > have:
            raise ValueError(f"offset: got {offset}, expected at most {have}")
        new = list(events[have - offset :])
        size = sum(map(len, new))
        if stream.used_bytes + size > self.rules.largest_bytes or not self._room(size):
            raise TooLong(f"stream {stream_id}: no room for {size} bytes more")
        stream.events += new
        stream.used_bytes += size
        self.used_bytes += size
        stream.until = self._ticks() + self.rules.lease_seconds
        stream.wake()

    async def renew(self, stream_id: str, name: bytes) -> None:
        stream = self._own(stream_id)
        stream.until = self._ticks() + self.rules.lease_seconds
        if not stream.hidden:
            self._current.setdefault(name, stream_id)

    async def finish(self, stream_id: str, name: bytes) -> None:
        if not self._is(stream_id, StreamState.DONE):
            self._end(stream_id, self._own(stream_id), StreamState.DONE)

    async def fail(self, stream_id: str, name: bytes, why: bytes) -> None:
        if not self._is(stream_id, StreamState.FAILED):
            stream = self._own(stream_id)
            stream.why = why
            self._end(stream_id, stream, StreamState.FAILED)

    async def hide(self, stream_id: str, name: bytes) -> None:
        if stream_id in self._running:
            self._running[stream_id].hidden = True
        self._unlist(stream_id, name)

    async def current(self, name: bytes) -> str | None:
        stream_id = self._current.get(name)
        if stream_id is not None:
            self._look_at(stream_id)
        return self._current.get(name)

    async def read(self, stream_id: str, after: int, wait_seconds: float = 0.0) -> Part | None:
        deadline = self._ticks() + wait_seconds
        while True:
            self._look_at(stream_id)
            stream = self._running.get(stream_id) or self._ended.get(stream_id)
            if stream is None:
                return None
            now = stream.read_at = self._ticks()
            events = tuple(stream.events[after:])
            if events or stream.state is not StreamState.RUNNING or now >= deadline:
                return Part(stream.name, events, stream.state, stream.why)
            news = stream.news.wait()
            try:
                await asyncio.wait_for(news, max(min(deadline, stream.until) - now, 0.001))
            except TimeoutError:
                continue  # its writer may be dead by now, or the time is over

    async def wanted(self, stream_id: str) -> bool:
        stream = self._running.get(stream_id)
        return stream is not None and self._ticks() - stream.read_at < self.wanted_seconds

    def _own(self, stream_id: str) -> _Stream:
        """That still runs."""
        self._look_at(stream_id)
        if stream_id not in self._running:
            raise Fenced(f"stream {stream_id}: it does not run here")
        return self._running[stream_id]

    def _is(self, stream_id: str, state: StreamState) -> bool:
        return stream_id in self._ended and self._ended[stream_id].state is state

    def _end(self, stream_id: str, stream: _Stream, state: StreamState) -> None:
        stream.state, stream.until = state, self._ticks() + self.rules.kept_seconds
        self._ended[stream_id] = self._running.pop(stream_id)
        self._unlist(stream_id, stream.name)
        stream.wake()

    def _unlist(self, stream_id: str, name: bytes) -> None:
        if self._current.get(name) == stream_id:
            del self._current[name]

    def _room(self, size: int) -> bool:
        while self.used_bytes + size > self._capacity and self._ended:
            self._drop(next(iter(self._ended)))
        return self.used_bytes + size <= self._capacity

    def _drop(self, stream_id: str) -> None:
        self.used_bytes -= self._ended.pop(stream_id).used_bytes

    def _sweep(self) -> None:
        for stream_id in list(self._running):
            self._look_at(stream_id)

    def _look_at(self, stream_id: str) -> None:
        """Whether its writer lives; and lets go of what was kept long enough."""
        now, stream = self._ticks(), self._running.get(stream_id)
        if stream is not None and now >= stream.until:
            self._end(stream_id, stream, StreamState.ABANDONED)
        while self._ended and now >= next(iter(self._ended.values())).until:
            self._drop(next(iter(self._ended)))
