"""A stream that runs at another gateway, passed on into a flight of this one while its answer is waited for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Protocol

from caches.cancelling import cancelled
from caches.flight import Flight, LeaderGone
from caches.stream import Part, StreamState
from caches.tiers.tier import TierError

POLL_SECONDS = 0.02  # between two looks for a stream to join
WAIT_SECONDS = 1.0  # of a read; each counts as somebody's interest in the stream


class StreamBroken(LeaderGone):
    """The stream that was joined breaks off. why: what its writer tells who reads it; empty where that is nothing."""

    def __init__(self, why: bytes) -> None:
        super().__init__("a stream that was joined breaks off")
        self.why = why


class StreamComplete(LeaderGone):
    """All of the stream that was joined has been passed on; its answer as a whole is not to be had."""


class Source(Protocol):
    """Where streams of other gateways are. Raises TierError. joins: whether they are to be joined."""

    joins: bool

    async def elsewhere(self, name: bytes) -> str | None:
        """The id of a stream under this name that runs at another gateway."""

    async def read(self, stream_id: str, after: int, wait_seconds: float) -> Part | None:
        """As of a log."""

    def joined(self) -> None:
        """A stream has been joined."""


class Joined:
    """Nobody has seen a piece of it unless `begun`: then no call of our own can take its place."""

    def __init__(self, source: Source, name: bytes, flight: Flight[Any]) -> None:
        self._source, self._name, self._flight = source, name, flight
        self.begun = self._late = False
        self._state, self._why = StreamState.ABANDONED, b""
        self._task = asyncio.ensure_future(self._pass_on())

    async def ended(self) -> None:
        """The answer is there, so all of the stream will be. Raises StreamBroken where it did not come all the same."""
        self._late = True  # who has seen nothing yet gets the answer, and never a beginning of the stream before it
        if self.begun:
            await self._task
            if self._state is not StreamState.DONE:
                raise StreamBroken(self._why)

    async def instead(self) -> None:
        """Before a call of our own. Raises StreamComplete or StreamBroken where pieces have been passed on already."""
        self._late = True
        if not self.begun:
            await self.close()
            return
        await self._task
        if self._state is StreamState.DONE:
            raise StreamComplete("all of it was passed on")
        raise StreamBroken(self._why)

    async def close(self) -> None:
        await cancelled(self._task)

    async def _pass_on(self) -> None:
        """Ends at the latest a lease after the writer's death."""
        try:
            stream_id, after = await self._found(), 0
            while (part := await self._source.read(stream_id, after, WAIT_SECONDS)) is not None:
                if self._late and not self.begun:
                    return
                if part.events and not self.begun:
                    self.begun, self._flight.stream = True, stream_id
                    self._source.joined()
                for piece in part.events:
                    self._flight.publish(piece)
                after += len(part.events)
                self._state, self._why = part.state, part.why
                if part.state is not StreamState.RUNNING:
                    return
            self._state = StreamState.ABANDONED
        except TierError:
            self._state = StreamState.ABANDONED

    async def _found(self) -> str:
        while True:
            if self._flight.watched:
                stream_id = await self._source.elsewhere(self._name)
                if stream_id is not None:
                    return stream_id
            await asyncio.sleep(POLL_SECONDS)


class _NotJoined:
    """Where there are no streams of other gateways."""

    async def ended(self) -> None:
        pass

    async def instead(self) -> None:
        pass


NOT_JOINED = _NotJoined()


@asynccontextmanager
async def joining(source: Source | None, name: bytes, flight: Flight[Any]) -> AsyncIterator[Joined | _NotJoined]:
    """Looks for the stream and passes it on, until the block ends."""
    if source is None or not source.joins:
        yield NOT_JOINED
        return
    joined = Joined(source, name, flight)
    try:
        yield joined
    finally:
        await joined.close()
