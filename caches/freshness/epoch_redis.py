"""Epochs in Redis, beside the entries of a tier that gateways share: one sorted set, by beginning.

A gateway reads it every second or so and adds what it lacks, so on a server that evicts it is among the last to go, and
comes back from the gateways that know of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from caches.freshness.epoch_lines import name_of, seconds_of, selection_of
from caches.freshness.epochs import EpochsUnavailable
from caches.tiers.redis_connection import Connection, reached
from caches.tiers.selection import Selection
from caches.tiers.tier import TierError


class RedisEpochs:
    """prefix: of the tier's keys. The connection is somebody else's to close."""

    def __init__(self, connection: Connection, prefix: str = "setpoint") -> None:
        self._redis, self._name = connection, f"{prefix}:epochs".encode()

    async def read(self) -> Mapping[Selection, float]:
        rows = await self._sent("ZRANGE", self._name, 0, -1, "WITHSCORES")
        return {selection_of(name): seconds_of(at) for name, at in _pairs(rows)}

    async def join(self, begun: Mapping[Selection, float]) -> None:
        if begun:
            rows = [part for one, at in begun.items() for part in (repr(at), name_of(one))]
            await self._sent("ZADD", self._name, "GT", *rows)

    async def forget(self, before_seconds: float) -> None:
        await self._sent("ZREMRANGEBYSCORE", self._name, "-inf", f"({before_seconds!r}")

    async def close(self) -> None:
        """The connection is the tier's."""

    async def _sent(self, *command: Any) -> Any:
        try:
            async with reached("epochs"):
                return await self._redis.execute_command(*command)
        except TierError as error:
            raise EpochsUnavailable(str(error)) from error


def _pairs(rows: Any) -> list[tuple[bytes, Any]]:
    """Of a flat list, or of pairs, as clients answer."""
    if rows and isinstance(rows[0], list | tuple):
        return [(name, at) for name, at in rows]
    return list(zip(rows[0::2], rows[1::2], strict=True))
