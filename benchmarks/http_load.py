"""A load generator for HTTP on this machine: as many requests as a server takes, or a constant rate of them.

One thread, plain sockets and select, whose timeouts are exact to tens of microseconds where those of event loops are to
a millisecond. Requests are bytes that were made before; of a response it reads only the status, one header, and where
it ends.
"""

from __future__ import annotations

import gc
import math
import re
import select
import socket
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field

HEAD_END, CHUNKS_END = b"\r\n\r\n", b"\r\n0\r\n\r\n"
LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
OUTCOME = re.compile(rb"\r\nx-setpoint-cache: *([a-z0-9-]+)", re.IGNORECASE)
OK = b"200"
MOST_HEAD = 2_000  # bytes that are searched for a header
STUCK_SECONDS = 60.0


@dataclass(frozen=True)
class Load:
    """latencies_seconds: of each response, to its last byte: in a closed loop from when the request was sent, at a
    constant rate from when it was due, so that a server that stalls is charged for those that wait. outcomes: the
    header x-setpoint-cache. busy: share of the time in which the generator itself worked. statuses: of responses, where
    others than 200 are counted; their time counts as all others'."""

    latencies_seconds: list[float]
    seconds: float
    outcomes: Counter[str]
    busy: float
    statuses: Counter[str] = field(default_factory=Counter)

    @property
    def failed(self) -> int:
        """Too many, or an error that is not of the request."""
        return sum(count for status, count in self.statuses.items() if status == "429" or status >= "500")

    @property
    def per_second(self) -> float:
        return len(self.latencies_seconds) / self.seconds


class BadResponse(Exception):
    """A server answered with an error, or not at all; its figures would mean nothing."""


def post(path: str, body: bytes) -> bytes:
    """A whole request, to be sent any number of times."""
    head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
    return head.encode() + HEAD_END + body


def saturate(port: int, requests: Iterator[bytes], connections: int, seconds: float) -> Load:
    """Each connection sends its next request when it has the answer, until the
    time is over; those on their way then count too, since the server works at them as fast."""
    with _opened(port, connections) as loop:
        end, waiting = time.perf_counter() + seconds, connections
        for connection in loop.connections:
            connection.send(next(requests), time.perf_counter())
        while waiting:
            for connection in loop.answered(STUCK_SECONDS):
                if (now := time.perf_counter()) < end:
                    connection.send(next(requests), now)
                else:
                    waiting -= 1
        return loop.load()


def at_rate(
    port: int,
    requests: Iterator[bytes],
    per_second: float,
    connections: int,
    seconds: float,
    *,
    count_failures: bool = False,
) -> Load:
    """A request is due every 1 / per_second; where no connection is free it waits for one, and that counts.
    count_failures: else they raise BadResponse."""
    return _all_of(port, requests, max(int(per_second * seconds), 1), per_second, connections, count_failures)


def each_once(port: int, requests: Sequence[bytes], connections: int = 8, *, count_failures: bool = False) -> Load:
    """As soon as a connection is free."""
    return _all_of(port, iter(requests), len(requests), math.inf, connections, count_failures)


def _all_of(
    port: int,
    requests: Iterator[bytes],
    number: int,
    per_second: float,
    connections: int,
    count_failures: bool = False,
) -> Load:
    with _opened(port, connections, count_failures) as loop:
        began, sent, free = time.perf_counter(), 0, list(loop.connections)
        while sent < number or len(free) < connections:
            now = time.perf_counter()
            while free and sent < number and (due := began + sent / per_second) <= now:
                free.pop().send(next(requests), max(due, began))
                sent += 1
            wait = began + sent / per_second - time.perf_counter() if free and sent < number else STUCK_SECONDS
            free.extend(loop.answered(max(wait, 0.0)))
        return loop.load()


class _Connection:
    """Servers close what was not used for some seconds; it is opened anew then."""

    def __init__(self, port: int) -> None:
        self.since: float | None = None  # of the request that is on its way
        self._port, self._received = port, b""
        self._open()

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, request: bytes, since: float) -> None:
        """Requests are small enough for the buffer of a socket."""
        self.since, self._received = since, b""
        self._socket.sendall(request)

    def receive(self) -> bytes | None:
        """The response when all of it is there."""
        piece = self._socket.recv(1 << 18)
        if not piece:
            self._reopen()
            return None
        received = self._received = self._received + piece if self._received else piece
        head = received.find(HEAD_END)
        if head < 0:
            return None
        length = LENGTH.search(received, 0, head)
        whole = received.endswith(CHUNKS_END) if length is None else len(received) >= head + 4 + int(length[1])
        return received if whole else None

    def close(self) -> None:
        self._socket.close()

    def _open(self) -> None:
        self._socket = socket.create_connection(("127.0.0.1", self._port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def _reopen(self) -> None:
        if self.since is not None:
            raise BadResponse(f"a connection was closed after {self._received[:200]!r}")
        self.close()
        self._open()


class _Loop:
    def __init__(self, connections: Sequence[_Connection], count_failures: bool) -> None:
        self.connections, self._count_failures = connections, count_failures
        self._statuses: Counter[str] = Counter()
        self._latencies: list[float] = []
        self._outcomes: Counter[str] = Counter()
        self._began, self._worked = time.perf_counter(), time.process_time()
        self._last = self._began

    def answered(self, timeout: float) -> list[_Connection]:
        """Those whose response came within that time."""
        ready, _, _ = select.select(self.connections, (), (), timeout)
        if not ready and timeout >= STUCK_SECONDS:
            raise BadResponse(f"no response in {STUCK_SECONDS:g} seconds")
        done = []
        for connection in ready:
            response = connection.receive()
            if response is not None:
                self._count(response, connection)
                done.append(connection)
        return done

    def _count(self, response: bytes, connection: _Connection) -> None:
        assert connection.since is not None  # a response to something
        self._last = time.perf_counter()
        self._latencies.append(self._last - connection.since)
        connection.since = None
        self._statuses[response[9:12].decode()] += 1
        if response[9:12] != OK and not self._count_failures:
            raise BadResponse(response[:600].decode("latin-1"))
        outcome = OUTCOME.search(response, 0, MOST_HEAD)
        if outcome is not None:
            self._outcomes[outcome[1].decode()] += 1

    def load(self) -> Load:
        wall, worked = time.perf_counter() - self._began, time.process_time() - self._worked
        return Load(self._latencies, self._last - self._began, self._outcomes, worked / wall, self._statuses)


@contextmanager
def _opened(port: int, number: int, count_failures: bool = False) -> Iterator[_Loop]:
    """Nothing is collected while requests are on their way: it would be measured as the server's time."""
    with ExitStack() as stack:
        connections = [stack.enter_context(closing(_Connection(port))) for _ in range(number)]
        gc.collect()
        gc.disable()
        stack.callback(gc.enable)
        yield _Loop(connections, count_failures)
