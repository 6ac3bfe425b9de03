"""The backend behind the gateway: what is sent to it, what goes wrong on the way, what comes back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import TypeAlias
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx

from api.gateway.balancing import Backend, Balanced, pools_of
from api.gateway.errors import Headers, Reply, TooLate, Unreachable
from api.gateway.settings import GatewaySettings
from caches.guards.health import Condition, Health, HealthRule

Reception: TypeAlias = httpx.Response  # by this name elsewhere: httpx stays here and in balancing.py

# Of a connection and not of what travels on it (RFC 9110, section 7.6.1).
HOP_BY_HOP = frozenset(
    {
        *(b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection"),
        *(b"te", b"trailer", b"transfer-encoding", b"upgrade"),
    }
)
NOT_SENT = HOP_BY_HOP | {b"host", b"content-length", b"accept-encoding", b"expect"}
OURS = b"x-setpoint-"
# The server in front adds its own date and name; bodies are passed on as httpx decoded them.
NOT_RETURNED = HOP_BY_HOP | {b"date", b"server", b"content-length", b"content-encoding"}
# Less than the 5 s after which uvicorn, and so vLLM, closes: what is sent on a connection that closes is lost.
KEPT_OPEN_SECONDS = 4.0
REST_SECONDS = 0.05  # for the end of a connection's body after that of the answer


class Client(httpx.AsyncClient):
    """Of all backends. It keeps no cookies: those of one client would be sent for all."""

    def __init__(self, balanced: Balanced, timeout: httpx.Timeout) -> None:
        cookies = CookieJar(DefaultCookiePolicy(allowed_domains=()))
        super().__init__(transport=balanced, base_url="http://backend", timeout=timeout, cookies=cookies)
        self.balanced = balanced


def upstream_client(
    settings: GatewaySettings, rule: HealthRule = HealthRule(), ticks: Callable[[], float] = time.monotonic
) -> Client:
    """Nothing is connected yet. Proxies are those of the environment, as everywhere. rule: what is watched of the
    backends' answers. ticks: a clock that is never set."""
    idle, connect = settings.idle_seconds, settings.connect_seconds
    balanced = Balanced([_backend(url, settings.connections, Health(rule)) for url in settings.base_urls], ticks)
    return Client(balanced, httpx.Timeout(idle, connect=connect, pool=settings.deadline_seconds))


def _backend(url: str, connections: int, health: Health) -> Backend:
    parts = urlsplit(url)
    proxy = None if proxy_bypass(parts.hostname or "") else getproxies().get(parts.scheme)
    # one for all: certificates are long to load, and of no use without TLS
    tls = httpx.create_ssl_context(verify=parts.scheme == "https")

    def make(room: int) -> httpx.AsyncHTTPTransport:
        limits = httpx.Limits(max_connections=room, max_keepalive_connections=room, keepalive_expiry=KEPT_OPEN_SECONDS)
        return httpx.AsyncHTTPTransport(verify=tls, limits=limits, proxy=proxy)

    return Backend(url, pools_of(connections, make), make(1), health)


class Upstream:
    """Raises Unreachable and TooLate where httpx fails; what the backend says is never an exception here."""

    def __init__(self, client: Client, settings: GatewaySettings) -> None:
        self._client = client
        key = settings.upstream_key
        self._authorization = None if key is None else b"Bearer " + key.encode()

    def request_headers(self, given: Iterable[tuple[bytes, bytes]]) -> Headers:
        """Of a client's request, those to send on. What comes back shall not be compressed: it is stored, and read."""
        given = list(given)
        hidden = NOT_SENT | _named_by_connection(given)
        sent = [(name, value) for name, value in given if name not in hidden and not name.startswith(OURS)]
        if self._authorization is not None:
            sent = [(name, value) for name, value in sent if name != b"authorization"]
            sent.append((b"authorization", self._authorization))
        return [*sent, (b"accept-encoding", b"identity")]

    async def send(
        self, method: str, target: str, headers: Headers, content: bytes | AsyncIterator[bytes] | None
    ) -> Reception:
        """The head of a response, whose body is to be read or closed."""
        request = self._client.build_request(method, target, headers=headers, content=content)
        with reached():
            return await self._client.send(request, stream=True)

    @asynccontextmanager
    async def opened(self, target: str, headers: Headers, content: bytes) -> AsyncIterator[Reception]:
        """A POST whose response is closed at the end, read or not."""
        response = await self.send("POST", target, headers, content)
        try:
            yield response
        finally:
            await response.aclose()

    @property
    def backends(self) -> tuple[Backend, ...]:
        return self._client.balanced.backends

    def condition(self) -> Condition:
        """That of the best backend, now."""
        now = self._client.balanced.ticks()
        return min(backend.health.condition(now) for backend in self.backends)

    async def close(self) -> None:
        await self._client.aclose()

    async def check(self) -> None:
        """Asks all backends how they are."""
        await self._client.balanced.check(self.request_headers([]))


async def whole(response: Reception) -> Reply:
    with reached():
        body = await response.aread()
    return Reply(response.status_code, returned_headers(response), body)


async def read_out(pieces: AsyncIterator[bytes]) -> None:
    """What follows the end of a stream, hardly more than an empty chunk: only then can the connection be used again.
    Whether the backend keeps it open or breaks it, the answer is complete."""
    with suppress(httpx.HTTPError, TimeoutError):
        async with asyncio.timeout(REST_SECONDS):
            async for _ in pieces:
                pass


async def raw_pieces(response: Reception) -> AsyncGenerator[bytes, None]:
    """The body as it is on the wire. Raises Unreachable and TooLate."""
    with reached():
        async for piece in response.aiter_raw():
            yield piece


def returned_headers(response: Reception, hidden: frozenset[bytes] = NOT_RETURNED) -> Headers:
    given = [(name.lower(), value) for name, value in response.headers.raw]
    hidden |= _named_by_connection(given)
    return [(name, value) for name, value in given if name not in hidden]


@contextmanager
def reached() -> Iterator[None]:
    """What goes wrong between us and the backend, as an error to answer with. Names no address: clients read it."""
    try:
        yield
    except httpx.TimeoutException as error:
        raise TooLate(f"The backend did not answer in time ({type(error).__name__}).") from error
    except httpx.HTTPError as error:
        raise Unreachable(f"The backend could not be reached, or broke off ({type(error).__name__}).") from error


def _named_by_connection(headers: Iterable[tuple[bytes, bytes]]) -> frozenset[bytes]:
    named = (value for name, value in headers if name == b"connection")
    return frozenset(part.strip().lower() for value in named for part in value.split(b","))
