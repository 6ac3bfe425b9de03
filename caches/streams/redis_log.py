"""A stream log in Redis: streams that other gateways can join, and that can be resumed there."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Sequence
from typing import Any

from caches.stream import Fenced, Part, StreamRules, StreamState, TooLong
from caches.streams import redis_scripts as scripts
from caches.tiers.redis_connection import Connection, evaluated, reached

WANTED_SECONDS = 3.0
MOST_EVENTS = 512  # that one call brings
# Between two looks for more: short while events come, longer when they do not.
SHORTEST_POLL_SECONDS, LONGEST_POLL_SECONDS, SLOWER = 0.01, 0.05, 1.3


class RedisStreamLog:
    """Every object is a writer of its own. prefix: of all its keys."""

    def __init__(self, connection: Connection, prefix: str = "setpoint", rules: StreamRules = StreamRules()) -> None:
        self._redis, self._prefix = connection, prefix.encode()
        self.rules, self.wanted_seconds = rules, WANTED_SECONDS
        self._writer = secrets.token_hex(16)
        self._lease, self._kept = _milliseconds(rules.lease_seconds), _milliseconds(rules.kept_seconds)
        self._hidden: set[str] = set()

    async def open(self, stream_id: str, name: bytes) -> None:
        await self._write(scripts.OPEN, stream_id, name)
        await self._point(stream_id, name)

    async def append(self, stream_id: str, offset: int, events: Sequence[bytes]) -> None:
        await self._write(scripts.APPEND, stream_id, self.rules.largest_bytes, offset, *events)

    async def renew(self, stream_id: str, name: bytes) -> None:
        await self._write(scripts.RENEW, stream_id)
        await self._point(stream_id, name)

    async def finish(self, stream_id: str, name: bytes) -> None:
        await self._end(stream_id, name, StreamState.DONE, b"")

    async def fail(self, stream_id: str, name: bytes, why: bytes) -> None:
        await self._end(stream_id, name, StreamState.FAILED, why)

    async def hide(self, stream_id: str, name: bytes) -> None:
        self._hidden.add(stream_id)
        await self._named(scripts.UNPOINT, name, stream_id)

    async def current(self, name: bytes) -> str | None:
        async with reached("streams"):
            found: Any = await self._redis.get(self._name_key(name))
        return None if found is None else str(found.decode())

    async def read(self, stream_id: str, after: int, wait_seconds: float = 0.0) -> Part | None:
        deadline, pause = time.monotonic() + wait_seconds, SHORTEST_POLL_SECONDS
        while True:
            part = await self._read(stream_id, after)
            left = deadline - time.monotonic()
            if part is None or part.events or part.state is not StreamState.RUNNING or left <= 0:
                return part
            await asyncio.sleep(min(pause, left))
            pause = min(SLOWER * pause, LONGEST_POLL_SECONDS)

    async def wanted(self, stream_id: str) -> bool:
        async with reached("streams"):
            return bool(await evaluated(self._redis, scripts.WANTED, 1, self._key(stream_id)))

    async def _read(self, stream_id: str, after: int) -> Part | None:
        events: list[bytes] = []
        told = (self._kept, MOST_EVENTS, _milliseconds(self.wanted_seconds))
        while True:
            known = after + len(events)
            async with reached("streams"):
                found = await evaluated(self._redis, scripts.READ, 1, self._key(stream_id), told[0], known, *told[1:])
            if found is None:
                return None
            name, state, n, why, more = found
            events += more
            if after + len(events) >= int(n):
                return Part(name, tuple(events), StreamState(state.decode()), why)

    async def _end(self, stream_id: str, name: bytes, state: StreamState, why: bytes) -> None:
        try:
            await self._write(scripts.END, stream_id, state.value, why)
        finally:
            self._hidden.discard(stream_id)
        await self._named(scripts.UNPOINT, name, stream_id)

    async def _write(self, script: str, stream_id: str, *rest: str | int | bytes) -> None:
        async with reached("streams"):
            own = (self._kept, self._lease, self._writer)
            said = await evaluated(self._redis, script, 1, self._key(stream_id), *own, *rest)
        if said == b"fenced":
            raise Fenced(f"stream {stream_id}: it is not this writer's, or has ended")
        if said == b"long":
            raise TooLong(f"stream {stream_id}: more than {self.rules.largest_bytes} bytes")
        if said == b"gap":
            raise ValueError(f"offset: got one beyond stream {stream_id}, expected that of its next event or earlier")

    async def _point(self, stream_id: str, name: bytes) -> None:
        if stream_id not in self._hidden:
            await self._named(scripts.POINT, name, stream_id, self._lease)

    async def _named(self, script: str, name: bytes, *rest: str | int) -> None:
        async with reached("streams"):
            await evaluated(self._redis, script, 1, self._name_key(name), *rest)

    def _key(self, stream_id: str) -> bytes:
        return b"%b:stream:%b" % (self._prefix, stream_id.encode())

    def _name_key(self, name: bytes) -> bytes:
        return b"%b:stream-of:%b" % (self._prefix, name)


def _milliseconds(seconds: float) -> int:
    return max(int(1000 * seconds), 1)
