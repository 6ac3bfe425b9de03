"""Cassandra by URL, for asyncio: `cassandra://host:9042,host:9042/keyspace`, with TLS `cassandras://…`.

User and password stand where URLs have them. `?datacenter=` names the one to ask; without it, that of the first host
reached. The driver does its input and output in a thread of its own, and nothing here waits in the event loop: what
the driver can only do while the caller waits (to connect, to prepare a statement, to stop) runs in another thread.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from caches.errors import InputError
from caches.tiers.tier import TierError

PORT = 9042
SCHEMA_SECONDS = 30.0  # all nodes have to agree on a new table, which is made once
PROTOCOL = 4  # every Cassandra since 2.2 speaks it, so none has to be asked what it speaks
SCHEMES = ("cassandra", "cassandras")
Row = tuple[Any, ...]


class CassandraConnection:
    """All reads and writes are LOCAL_QUORUM, conditional ones LOCAL_SERIAL: so a read sees what was written before it
    in this data centre, and an invalidation that has returned holds."""

    def __init__(self, url: str, timeout_seconds: float = 1.0) -> None:
        """Nothing is sent yet. timeout_seconds: for connecting, and for each answer; tables are given longer.

        Raises InputError for a URL of another form, and where the driver is not installed.
        """
        parts = urlsplit(url)
        keyspace = parts.path.strip("/")
        if parts.scheme not in SCHEMES or not keyspace or "/" in keyspace:
            raise InputError(f"cassandra: got {_hidden(parts)!r}, expected cassandra://host:9042/keyspace")
        self.keyspace, self._parts, self._timeout_seconds = keyspace, parts, timeout_seconds
        self._hosts, self._port = _hosts(parts)
        try:
            from cassandra import cluster, connection, protocol  # not everyone's
        except ImportError as error:
            raise InputError('the tier in Cassandra needs its driver: pip install "setpoint[cassandra]"') from error
        self._errors = (
            *(cluster.DriverException, cluster.NoHostAvailable, cluster.NoConnectionsAvailable, OSError),
            *(connection.ConnectionException, connection.ConnectionBusy, connection.ProtocolError),
            protocol.ErrorMessage,
        )
        self._cluster: Any = None
        self._session: Any = None
        self._statements: dict[str, Any] = {}
        self._opening: asyncio.Future[None] | None = None

    async def open(self) -> None:
        """Connects, where it is not done. All other methods do so first.

        Raises InputError where there is no such keyspace or we may not use it, TierError where nobody answers.
        """
        if self._session is not None:
            return
        if self._opening is None or self._opening.done():
            self._opening = asyncio.ensure_future(asyncio.to_thread(self._connect))
            self._opening.add_done_callback(_seen)
        await asyncio.shield(self._opening)  # whoever gives up leaves it to who asks next

    async def run(self, cql: str, *values: Any) -> list[Row]:
        """The rows that a statement gives; none for one that only writes. One page, so ask for 5,000 at most."""
        await self.open()
        try:
            statement = self._statements.get(cql)
            if statement is None:
                statement = self._statements[cql] = await asyncio.to_thread(self._session.prepare, cql)
            return await self._answer(statement, values, self._timeout_seconds)
        except self._errors as error:
            raise _of_the_tier(error) from error

    async def change_schema(self, cql: str) -> None:
        """Raises InputError where the server refuses."""
        from cassandra import RequestValidationException

        await self.open()
        try:
            await self._answer(cql, None, max(self._timeout_seconds, SCHEMA_SECONDS))
        except RequestValidationException as error:
            raise InputError(f"cassandra: {error}; expected tables, or the right to make them: {cql}") from error
        except self._errors as error:
            raise _of_the_tier(error) from error

    def stamp(self) -> int:
        """The time of a write, in microseconds, larger than all before it in this process. For after `open`."""
        return int(self._cluster.timestamp_generator())

    async def close(self) -> None:
        if self._opening is not None and not self._opening.done():
            await asyncio.wait([self._opening])
        cluster, self._cluster, self._session = self._cluster, None, None
        self._statements = {}
        if cluster is not None:
            await asyncio.to_thread(cluster.shutdown)

    async def _answer(self, statement: Any, values: Any, timeout_seconds: float) -> list[Row]:
        """The driver calls back in its own thread."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        asked = self._session.execute_async(statement, values, timeout=timeout_seconds)
        asked.add_callbacks(
            lambda rows: loop.call_soon_threadsafe(_settle, answer, answer.set_result, rows),
            lambda error: loop.call_soon_threadsafe(_settle, answer, answer.set_exception, error),
        )
        return list(await answer or ())

    def _connect(self) -> None:
        from cassandra import AuthenticationFailed, InvalidRequest, Unauthorized
        from cassandra.cluster import NoHostAvailable

        cluster = self._unconnected()
        try:
            session = cluster.connect()
            session.set_keyspace(self.keyspace)
        except self._errors as error:
            cluster.shutdown()
            by_host = error.errors if isinstance(error, NoHostAvailable) else None
            every = [error, *by_host.values()] if isinstance(by_host, dict) else [error]
            if any(isinstance(one, InvalidRequest | Unauthorized | AuthenticationFailed) for one in every):
                raise InputError(
                    f"cassandra: keyspace {self.keyspace}: {error}; expected a user who may use it, and the keyspace: "
                    f"CREATE KEYSPACE {self.keyspace} WITH replication = {{'class': 'NetworkTopologyStrategy', …}}"
                ) from error
            raise _of_the_tier(error) from error
        self._cluster, self._session = cluster, session

    def _unconnected(self) -> Any:
        """A client of the driver; it looks up the names of the hosts."""
        from cassandra import ConsistencyLevel
        from cassandra.auth import PlainTextAuthProvider
        from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
        from cassandra.policies import DCAwareRoundRobinPolicy, TokenAwarePolicy
        from cassandra.query import tuple_factory

        parts, timeout = self._parts, self._timeout_seconds
        datacenter = parse_qs(parts.query).get("datacenter", [""])[0]
        profile = ExecutionProfile(
            load_balancing_policy=TokenAwarePolicy(DCAwareRoundRobinPolicy(datacenter)),
            consistency_level=ConsistencyLevel.LOCAL_QUORUM,
            serial_consistency_level=ConsistencyLevel.LOCAL_SERIAL,
            request_timeout=timeout,
            row_factory=tuple_factory,
        )
        known = {"username": unquote(parts.username or ""), "password": unquote(parts.password or "")}
        try:
            return Cluster(
                self._hosts,
                self._port,
                protocol_version=PROTOCOL,
                execution_profiles={EXEC_PROFILE_DEFAULT: profile},
                auth_provider=PlainTextAuthProvider(**known) if parts.username else None,
                ssl_context=ssl.create_default_context() if parts.scheme == "cassandras" else None,
                connect_timeout=timeout,
                control_connection_timeout=timeout,
            )
        except self._errors as error:
            raise _of_the_tier(error) from error


def _of_the_tier(error: Exception) -> TierError:
    return TierError(f"cassandra: {type(error).__name__}: {error}")


def _seen(opening: asyncio.Future[None]) -> None:
    """Nobody may be left to be told how it went; who asks next begins anew."""
    if not opening.cancelled():
        opening.exception()


def _settle(answer: asyncio.Future[Any], settle: Callable[[Any], None], outcome: Any) -> None:
    """Whoever waited may have gone."""
    if not answer.done():
        settle(outcome)


def _hosts(parts: SplitResult) -> tuple[list[str], int]:
    """The part between the credentials and the path; all hosts have one port."""
    hosts, ports = [], set()
    for place in parts.netloc.rpartition("@")[2].split(","):
        host, colon, port = place.partition(":")
        if not host or (colon and not port.isdigit()):
            raise InputError(f"cassandra: got {place!r} in {_hidden(parts)!r}, expected host or host:port")
        hosts.append(host)
        ports.add(int(port) if colon else PORT)
    if len(ports) > 1:
        raise InputError(f"cassandra: got the ports {sorted(ports)} in {_hidden(parts)!r}, expected one for all hosts")
    return hosts, ports.pop()


def _hidden(parts: SplitResult) -> str:
    """The URL without its password."""
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
