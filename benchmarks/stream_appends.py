"""What it takes to write a stream to Redis while it comes: appending each event, or writing the whole anew."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence

from caches.stream import StreamRules
from caches.streams.redis_log import RedisStreamLog
from caches.tiers.redis_connection import connect

EVENT_BYTES, PAUSE_SECONDS = 250, 0.02
WARM = 5  # events of each stream that connect and load the script; they are not counted
NAME = b"default\0default\0benchmark"
Write = Callable[[int, Sequence[bytes]], Awaitable[object]]  # of all events so far, the last of which is new


async def _written(write: Write, share: float, events: int, taken: list[float]) -> None:
    """share: of a pause by which it begins later than the first, since no backend's streams go in step."""
    there: list[bytes] = []
    await asyncio.sleep(share * PAUSE_SECONDS)
    for number in range(WARM + events):
        there.append(b"%0*d" % (EVENT_BYTES, number))
        began = time.perf_counter()
        await write(number, there)
        if number >= WARM:
            taken.append(time.perf_counter() - began)
        await asyncio.sleep(PAUSE_SECONDS)


async def appends(url: str, streams: int, events: int) -> list[float]:
    """Seconds of each write."""
    connection, taken = connect(url, 5.0), list[float]()
    log = RedisStreamLog(connection, "benchmark", StreamRules())

    async def one(number: int) -> None:
        stream_id = secrets.token_urlsafe(16)
        await log.open(stream_id, NAME + stream_id.encode())
        share = number / streams
        await _written(lambda at, there: log.append(stream_id, at, there[at:]), share, events, taken)
        await log.finish(stream_id, NAME + stream_id.encode())

    await asyncio.gather(*(one(number) for number in range(streams)))
    await connection.aclose()
    return taken


async def rewrites(url: str, streams: int, events: int) -> list[float]:
    """As `appends`."""
    connection, taken = connect(url, 5.0), list[float]()

    async def one(number: int) -> None:
        key = f"benchmark:{secrets.token_urlsafe(16)}"
        share = number / streams
        await _written(lambda _at, there: connection.set(key, b"".join(there), ex=60), share, events, taken)

    await asyncio.gather(*(one(number) for number in range(streams)))
    await connection.aclose()
    return taken
