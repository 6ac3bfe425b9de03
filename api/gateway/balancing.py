"""Several backends as one: a request goes to the healthy one that has the fewest under way.

One that cannot be connected to is unhealthy until it answers when it is asked how it is; the request goes to the next,
since nothing of it has been sent by then. What fails later is not sent again: it may have been worked on. Where none is
healthy all are tried. What each answer says of a backend is noted in its `health`, which others read too.
"""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from urllib.parse import unquote_to_bytes

import httpx

from api.gateway.settings import shown_url
from caches.breaker import State
from caches.guards.health import Health

HEALTH_PATH = "/v1/models"
POOL_CONNECTIONS = 16
CHECK_SECONDS = 2.0  # how long an answer to that may take
TOO_BUSY = 429
# Of what httpx raises, what a backend did; the rest is of this side, as a pool without room.
ITS_FAULT = (httpx.NetworkError, httpx.RemoteProtocolError, httpx.ConnectTimeout, httpx.ReadTimeout, httpx.WriteTimeout)
EVENTS = "text/event-stream"


@dataclass
class Pool:
    """Connections to a backend. room: how many at most. httpcore goes through all connections of a pool, and all that
    wait for one, at each request: in one pool, a thousand at once cost more than what they are for."""

    transport: httpx.AsyncBaseTransport
    room: int
    under_way: int = 0


def pools_of(connections: int, make: Callable[[int], httpx.AsyncBaseTransport]) -> tuple[Pool, ...]:
    """make: a transport with so many connections at most."""
    rooms = [min(POOL_CONNECTIONS, connections - begun) for begun in range(0, connections, POOL_CONNECTIONS)]
    return tuple(Pool(make(room), room) for room in rooms)


@dataclass
class Backend:
    """base_url: without /v1. pools: to reach it by; a request takes the first with room, so that few requests use few
    connections. asking: a connection apart, to ask it how it is when all others are in use. health: what is known of
    it. under_way: requests whose answer has not been read to its end. failed: that it could not be connected to for, or
    broke off."""

    base_url: str
    pools: Sequence[Pool]
    asking: httpx.AsyncBaseTransport
    health: Health = field(default_factory=Health)
    under_way: int = 0
    sent: int = 0
    failed: int = 0

    @property
    def healthy(self) -> bool:
        """Whether it can be reached, and is not left alone because it failed."""
        failures = self.health.failures
        return self.health.reachable and (failures is None or failures.state is State.CLOSED)

    @property
    def shown(self) -> str:
        """Without a user and password."""
        return shown_url(self.base_url)

    def told(self) -> dict[str, str | bool | int]:
        """What an operator wants to know."""
        numbers = {"healthy": self.healthy, "under_way": self.under_way, "sent": self.sent, "failed": self.failed}
        return {"upstream": self.shown, **numbers}

    def pool(self) -> Pool:
        """For the next request. Where all are full it waits in the one with the fewest."""
        with_room = (pool for pool in self.pools if pool.under_way < pool.room)
        return next(with_room, None) or min(self.pools, key=lambda pool: pool.under_way / pool.room)

    def asked(self, request: httpx.Request) -> httpx.Request:
        """The same of this backend; a user and password in its URL are sent in place of what came."""
        url = httpx.URL(self.base_url)
        there, own = url.copy_with(raw_path=url.raw_path.rstrip(b"/") + request.url.raw_path), [(b"host", url.netloc)]
        if url.userinfo:
            own.append((b"authorization", b"Basic " + base64.b64encode(unquote_to_bytes(url.userinfo))))
        names = {name for name, _ in own}
        headers = own + [one for one in request.headers.raw if one[0].lower() not in names]
        kept, extensions = request.stream, request.extensions
        return httpx.Request(request.method, there, headers=headers, stream=kept, extensions=extensions)


class Balanced(httpx.AsyncBaseTransport):
    """Backends that are equally busy take turns. ticks: a clock that is never set."""

    def __init__(self, backends: Sequence[Backend], ticks: Callable[[], float] = time.monotonic) -> None:
        self.backends, self.ticks = tuple(backends), ticks

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Raises what the last one that was tried failed with."""
        left, now = list(self.backends), self.ticks()
        while True:
            backend = min(left, key=lambda one: (one.health.condition(now), one.under_way, one.sent))
            left.remove(backend)
            try:
                return await self._sent(backend, request)
            except (httpx.ConnectError, httpx.ConnectTimeout):
                backend.health.reachable = False
                if not left:
                    raise

    async def _sent(self, backend: Backend, request: httpx.Request) -> httpx.Response:
        pool, began = backend.pool(), self.ticks()
        backend.health.began(began)
        backend.sent += 1
        backend.under_way += 1
        pool.under_way += 1
        try:
            response = await pool.transport.handle_async_request(backend.asked(request))
        except BaseException as error:
            backend.under_way -= 1
            pool.under_way -= 1
            backend.failed += isinstance(error, httpx.HTTPError)
            (backend.health.failed if isinstance(error, ITS_FAULT) else backend.health.given_up)(self.ticks())
            raise
        assert isinstance(response.stream, httpx.AsyncByteStream)  # of an asynchronous transport
        response.stream = _Counted(response, response.stream, backend, pool, began, self.ticks)
        return response

    async def aclose(self) -> None:
        for backend in self.backends:
            for transport in (backend.asking, *(pool.transport for pool in backend.pools)):
                await transport.aclose()

    async def check(self, headers: Sequence[tuple[bytes, bytes]] = ()) -> None:
        """Asks all of them how they are. That one wants another key is an answer too."""
        await asyncio.gather(*(self._check(backend, headers) for backend in self.backends))

    async def _check(self, backend: Backend, headers: Sequence[tuple[bytes, bytes]]) -> None:
        timeout = httpx.Timeout(CHECK_SECONDS).as_dict()
        request = httpx.Request("GET", "http://any" + HEALTH_PATH, headers=headers, extensions={"timeout": timeout})
        try:
            async with asyncio.timeout(CHECK_SECONDS):
                response = await backend.asking.handle_async_request(backend.asked(request))
                await response.aclose()
        except (httpx.HTTPError, TimeoutError):
            backend.health.reachable = False
        else:
            backend.health.reachable = response.status_code < 500


class _Counted(httpx.AsyncByteStream):
    """A body whose end is the end of a backend's work. How the backend is shows at the head of the response, or, of one
    that went well, at the first byte of its body: servers send the head of a stream before they have begun."""

    def __init__(
        self,
        response: httpx.Response,
        stream: httpx.AsyncByteStream,
        backend: Backend,
        pool: Pool,
        began: float,
        ticks: Callable[[], float],
    ) -> None:
        self._stream, self._backend, self._pool, self._open = stream, backend, pool, True
        self._began, self._ticks = began, ticks
        self._streamed = str(response.headers.get("content-type", "")).startswith(EVENTS)
        self._waiting = response.status_code == 200  # for the first byte
        health = backend.health
        if response.status_code >= 500:
            health.failed(ticks())
            return
        health.reachable = True
        if not self._waiting:
            (health.given_up if response.status_code == TOO_BUSY else health.alive)(ticks())

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for piece in self._stream:
                if self._waiting:
                    now, self._waiting = self._ticks(), False
                    self._backend.health.answered(now - self._began, self._streamed, now)
                yield piece
        except httpx.HTTPError as error:
            self._backend.failed += 1
            self._waiting = False
            (self._backend.health.failed if isinstance(error, ITS_FAULT) else self._backend.health.given_up)(
                self._ticks()
            )
            raise

    async def aclose(self) -> None:
        if self._waiting:
            self._waiting = False
            self._backend.health.given_up(self._ticks())
        if self._open:
            self._open = False
            self._backend.under_way -= 1
            self._pool.under_way -= 1
        await self._stream.aclose()
