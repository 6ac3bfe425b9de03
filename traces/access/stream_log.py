"""An access log as a Redis stream, which gateways share and which keeps its latest entries."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit

from caches.errors import InputError
from caches.tiers.redis_connection import Connection, reached
from caches.tiers.tier import TierError
from traces.access.log import NotWritten
from traces.access.record import AccessRecord
from traces.access.secret import KeyHash, key_hash, new_secret

NAME = "access log"  # in messages
STREAM = "setpoint:access"
# Of an entry, by column of the log; what is not known is not there.
COLUMNS = {field: field for field in AccessRecord._fields} | {
    "arrival_seconds": "time",
    "key_id": "key",
    "size_bytes": "size",
    "ttl_seconds": "ttl",
}
T = TypeVar("T")


@dataclass(frozen=True)
class StreamPlace:
    """url: of the server. stream: its name there."""

    url: str
    stream: str = STREAM


def stream_place(url: str) -> StreamPlace:
    """Of redis://…?stream=NAME, where what follows the ? may be missing. Raises InputError."""
    parts = urlsplit(url)
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    stream = options.pop("stream", STREAM)
    if not stream:
        raise InputError("stream: got no name, expected one as in redis://host:6379/0?stream=setpoint:access")
    return StreamPlace(parts._replace(query=urlencode(options)).geturl(), stream)


class RedisStreamAccessLog:
    """A `Destination`. connection: used by this log alone. max_length: entries that the stream keeps, about.

    secret: of the hashes; None for one that lies in Redis beside the stream, made by the first log there. Records are
    sent once: where Redis fails in between, some may be there and count as dropped. Raises InputError.
    """

    def __init__(
        self, connection: Connection, stream: str, max_length: int = 10_000_000, secret: bytes | None = None
    ) -> None:
        if max_length < 1:
            raise InputError(f"max_length: got {max_length}, expected at least 1")
        self._connection: Any = connection
        self._stream, self._max_length = stream, max_length
        self._hashed = None if secret is None else key_hash(secret)
        self._loop = asyncio.Runner()  # of the thread that writes

    def ready(self) -> bool:
        try:
            self._run(self._connection.ping())
        except TierError:
            return False
        return True

    def write(self, records: Sequence[AccessRecord], now_seconds: float) -> None:
        try:
            if self._hashed is None:
                self._hashed = key_hash(self._run(self._shared_secret()))
            self._run(self._add(records, self._hashed))
        except TierError as error:
            raise NotWritten(str(error), len(records)) from error

    def tend(self, now_seconds: float) -> None:
        """The stream is trimmed with each entry."""

    def close(self) -> None:
        with suppress(TierError):  # a connection that is gone is closed
            self._run(self._connection.aclose())
        self._loop.close()

    async def _add(self, records: Sequence[AccessRecord], hashed: KeyHash) -> None:
        pipeline = self._connection.pipeline(transaction=False)
        for record in records:
            pipeline.xadd(self._stream, entry_of(record, hashed), maxlen=self._max_length, approximate=True)
        await pipeline.execute()

    async def _shared_secret(self) -> bytes:
        name = f"{self._stream}:secret"
        await self._connection.set(name, new_secret(), nx=True)
        return bytes(await self._connection.get(name))

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        async def within() -> T:
            async with reached(NAME):
                return await work

        return self._loop.run(within())


def entry_of(record: AccessRecord, hashed: KeyHash) -> dict[str, str | float]:
    """The fields of a stream's entry, which has one key."""
    key = None if record.key_id is None else hashed(record.key_id).hex()
    known = record._asdict() | {"key_id": key, "arrival_seconds": f"{record.arrival_seconds:.6f}"}
    return {COLUMNS[field]: value for field, value in known.items() if value is not None and field != "levels"}
