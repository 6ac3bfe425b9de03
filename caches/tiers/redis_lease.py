"""Leases in Redis, one key each, that expire by themselves when their holder dies."""

from __future__ import annotations

import secrets

from caches.tiers.lease import Claim
from caches.tiers.redis_connection import Connection, evaluated, reached

# ARGV: token, milliseconds, whether a call that was just done is no reason to leave it.
_TAKE = """
local holder = redis.call('GET', KEYS[1])
if holder == 'done' and ARGV[3] == '0' then return 'done' end
if holder and holder ~= 'done' then return 'held' end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 'mine'
"""
_RENEW = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end return 0"
# ARGV: token, milliseconds, whether it was done.
_GIVE = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
if ARGV[3] == '1' then return redis.call('SET', KEYS[1], 'done', 'PX', ARGV[2]) end
return redis.call('DEL', KEYS[1])
"""


class RedisLease:
    """Every object is a holder of its own."""

    def __init__(self, connection: Connection, prefix: str = "setpoint", lifetime_seconds: float = 5.0) -> None:
        self._redis, self._prefix, self.lifetime_seconds = connection, prefix, lifetime_seconds
        self._token = secrets.token_hex(16)

    async def take(self, name: bytes, again: bool = False) -> Claim:
        async with reached("lease"):
            said = await evaluated(self._redis, _TAKE, 1, self._key(name), self._token, self._milliseconds, int(again))
            return Claim(said.decode())

    async def renew(self, name: bytes) -> bool:
        async with reached("lease"):
            return bool(await evaluated(self._redis, _RENEW, 1, self._key(name), self._token, self._milliseconds))

    async def give(self, name: bytes, done: bool) -> None:
        async with reached("lease"):
            await evaluated(self._redis, _GIVE, 1, self._key(name), self._token, self._milliseconds, int(done))

    @property
    def _milliseconds(self) -> int:
        return max(int(1000 * self.lifetime_seconds), 1)

    def _key(self, name: bytes) -> bytes:
        return b"%b:lease:%b" % (self._prefix.encode(), name)
