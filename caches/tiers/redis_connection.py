"""Redis by URL: one server, Sentinel or Cluster; Valkey speaks the same.

    redis://host:6379/0, rediss://…, unix:///path                       one server
    redis+sentinel://host:26379,host:26379/master_name/0                the master that the sentinels name
    redis+cluster://host:6379,host:6379                                 a cluster

User and password stand where URLs have them; for Sentinel they are those of the data servers.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from typing import Any, cast
from urllib.parse import SplitResult, unquote, urlsplit

from redis.asyncio import BlockingConnectionPool, Redis, RedisCluster
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, RedisClusterException, RedisError

from caches.errors import InputError
from caches.tiers.tier import TierError

CONNECTIONS = 64  # at once to one server; more calls wait for one of them
PLAIN = ("redis", "rediss", "unix")
Connection = Redis | RedisCluster


def connect(url: str, timeout_seconds: float = 0.5) -> Connection:
    """A client; nothing is sent yet. timeout_seconds: for connecting, and for each answer.

    Raises InputError for a URL of another form.
    """
    parts = urlsplit(url)
    options: dict[str, Any] = {"socket_timeout": timeout_seconds, "socket_connect_timeout": timeout_seconds}
    if parts.scheme in PLAIN:
        pool = BlockingConnectionPool.from_url(url, max_connections=CONNECTIONS, timeout=timeout_seconds, **options)
        return Redis.from_pool(pool)
    options |= {name: unquote(value) for name in ("username", "password") if (value := getattr(parts, name))}
    if parts.scheme == "redis+cluster":
        # once more after a redirection or a lost node: by then the client has asked who serves what now
        nodes, again = [ClusterNode(*pair) for pair in _hosts(parts)], Retry(NoBackoff(), 1)
        return _WaitingCluster(startup_nodes=nodes, retry=again, max_connections=CONNECTIONS, **options)
    if parts.scheme == "redis+sentinel":
        return _by_sentinel(parts, options)
    raise InputError(
        f"redis: got {_hidden(parts)!r}, expected redis://, rediss://, unix://, redis+sentinel:// or redis+cluster://"
    )


def _by_sentinel(parts: SplitResult, options: dict[str, Any]) -> Connection:
    names = [part for part in parts.path.split("/") if part]
    if not names or not all(database.isdigit() for database in names[1:]):
        raise InputError(
            f"redis: got {_hidden(parts)!r}, expected the master's name as in redis+sentinel://h:26379/mymaster/0"
        )
    asked = {name: value for name, value in options.items() if name.startswith("socket_")}
    sentinel = cast(Any, Sentinel)(_hosts(parts), sentinel_kwargs=asked | {"retry": Retry(NoBackoff(), 0)})
    database = int(names[1]) if len(names) > 1 else 0
    found = sentinel.master_for(names[0], redis_class=_WaitingRedis, db=database, **options)
    return cast("Redis", found)


class _Waiting:
    """Calls beyond CONNECTIONS wait for one that ends, as in the pool of a single server, where they would fail."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._places = asyncio.Semaphore(CONNECTIONS)

    async def execute_command(self, *arguments: Any, **options: Any) -> Any:
        async with self._places:
            return await super().execute_command(*arguments, **options)  # type: ignore[misc]


class _WaitingCluster(_Waiting, RedisCluster):  # type: ignore[misc]  # two of its own bases disagree
    """Of all nodes together. The first calls wait until it is known which node has what: before that redis-py asks any
    node, and closes the connections of all calls when several of them were sent on to another one."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._knows_nodes = False

    async def execute_command(self, *arguments: Any, **options: Any) -> Any:
        if not self._knows_nodes:
            await self.initialize()  # of calls at the same time one asks, and the others wait for it
            self._knows_nodes = True
        return await super().execute_command(*arguments, **options)


class _WaitingRedis(_Waiting, Redis):  # type: ignore[misc]
    """Its pool knows the sentinels, whose connections end with it."""

    async def aclose(self, close_connection_pool: bool | None = None) -> None:
        await super().aclose(close_connection_pool)
        await cast(Any, self.connection_pool).sentinel_manager.aclose()


async def evaluated(connection: Any, script: str, *rest: Any) -> Any:
    """What a script returns; its text is sent only to a server that has not seen it. rest: as EVAL takes it, the number
    of keys first."""
    try:
        return await connection.evalsha(_digest(script), *rest)
    except NoScriptError:  # it may have been restarted
        return await connection.eval(script, *rest)


@cache
def _digest(script: str) -> str:
    """As Redis names it."""
    return hashlib.sha1(script.encode()).hexdigest()


@asynccontextmanager
async def reached(name: str) -> AsyncIterator[None]:
    """What goes wrong between us and a server becomes a TierError that names the tier."""
    try:
        yield
    except (RedisError, RedisClusterException, OSError, TimeoutError) as error:
        raise TierError(f"tier {name}: {type(error).__name__}: {error}") from error


def _hosts(parts: SplitResult) -> list[tuple[str, int]]:
    """Of the part between the credentials and the path."""
    pairs = []
    for place in parts.netloc.rpartition("@")[2].split(","):
        host, colon, port = place.rpartition(":")
        if not (host and colon and port.isdigit()):
            raise InputError(f"redis: got {place!r} in {_hidden(parts)!r}, expected host:port")
        pairs.append((host, int(port)))
    return pairs


def _hidden(parts: SplitResult) -> str:
    """The URL without its password."""
    place = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=place).geturl()
