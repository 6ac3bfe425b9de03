"""Live change: one look into the ledger at a time for all who listen, and a line for each when something is new."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable

import orjson

from api.errors import Problem
from caches.errors import SetpointError

RETRY_MS = 3_000  # after which a browser comes back


class Revisions:
    """Watches a ledger while somebody listens.

    revision: reads it; it may block, and is asked in a thread. Nobody's request to the ledger waits for this, and the
    ledger is asked once for all listeners. All else is of one event loop.
    """

    def __init__(
        self, revision: Callable[[], int], poll_seconds: float, heartbeat_seconds: float, most_streams: int
    ) -> None:
        self._read, self._poll, self._heartbeat, self._most = revision, poll_seconds, heartbeat_seconds, most_streams
        self._last: int | None = None
        self._lost: str | None = None
        self._streams = 0
        self._watching: asyncio.Task[None] | None = None
        self._changed = asyncio.Condition()
        self._closing = False

    def stream(self, last_event_id: str | None) -> AsyncGenerator[bytes, None]:
        """Server-sent events: `revision` for each that is new to the client, `unavailable` where the ledger cannot be
        read, and a comment after each silence. Raises Problem where too many listen."""
        if self._streams >= self._most:
            raise Problem(503, f"{self._most} streams are open, which is as many as may be.", {"retry-after": "30"})
        return self._events(last_event_id)

    async def close(self) -> None:
        """Ends all streams."""
        self._closing = True
        async with self._changed:
            self._changed.notify_all()
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
            self._watching = None

    def _begin(self) -> None:
        self._streams += 1
        if self._watching is None:
            self._watching = asyncio.create_task(self._watch())

    def _end(self) -> None:
        self._streams -= 1
        if self._streams == 0 and self._watching is not None:
            self._watching.cancel()
            self._watching, self._last = None, None

    async def _events(self, last_event_id: str | None) -> AsyncGenerator[bytes, None]:
        seen = int(last_event_id) if last_event_id is not None and last_event_id.isdecimal() else None
        lost: str | None = None
        self._begin()
        try:
            yield f"retry: {RETRY_MS}\n\n".encode()
            while not self._closing:
                before, lost = lost, self._lost  # what is told, which may have changed again by the time it is sent
                if lost is not None and lost != before:
                    yield _event("unavailable", None, {"detail": lost})
                elif lost is None and self._last is not None and self._last != seen:
                    seen = self._last
                    yield _event("revision", seen, {"revision": seen})
                elif not await self._something_new(seen, lost):
                    yield b": still here\n\n"
        finally:
            self._end()

    async def _something_new(self, seen: int | None, lost: str | None) -> bool:
        """False after a silence."""

        def is_new() -> bool:
            return self._closing or self._lost != lost or (self._last is not None and self._last != seen)

        try:
            async with asyncio.timeout(self._heartbeat), self._changed:
                await self._changed.wait_for(is_new)
        except TimeoutError:
            return False
        return True

    async def _watch(self) -> None:
        while True:
            last, lost = self._last, self._lost
            try:
                self._last, self._lost = await asyncio.to_thread(self._read), None
            except SetpointError as error:
                self._lost = str(error)
            if (last, lost) != (self._last, self._lost):
                async with self._changed:
                    self._changed.notify_all()
            await asyncio.sleep(self._poll)


def _event(name: str, number: int | None, told: object) -> bytes:
    head = f"event: {name}\n" if number is None else f"id: {number}\nevent: {name}\n"
    return head.encode() + b"data: " + orjson.dumps(told) + b"\n\n"
