"""The load generator of the benchmarks, against servers whose delays and counts are known."""

from __future__ import annotations

import itertools
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from benchmarks.http_load import BadResponse, at_rate, each_once, post, saturate

WHOLE = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nx-setpoint-cache: hit-l1\r\n\r\nok"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"
ASK = post("/path", b"{}")


@contextmanager
def server(answer: Callable[[socket.socket, int], bool]) -> Iterator[tuple[int, list[int]]]:
    """Port, and the numbers of the requests that came. answer: to one request of that number; whether it goes on."""
    came: list[int] = []
    numbers = itertools.count()

    def converse(connection: socket.socket) -> None:
        with connection:
            try:
                while connection.recv(4_096):
                    number = next(numbers)
                    came.append(number)
                    if not answer(connection, number):
                        return
            except OSError:
                return  # the client has gone

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return  # it was shut down
            threading.Thread(target=converse, args=(connection,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        accepting = threading.Thread(target=accept, daemon=True)
        accepting.start()
        try:
            yield listener.getsockname()[1], came
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            accepting.join(10)


def sends(*pieces: bytes) -> Callable[[socket.socket, int], bool]:
    def answer(connection: socket.socket, _number: int) -> bool:
        for piece in pieces:
            connection.sendall(piece)
            time.sleep(0.001)
        return True

    return answer


def test_a_stalled_server_is_charged_for_all_that_were_due() -> None:
    """Ten are due 50 ms apart and the first takes 0.5 s on the only connection: none of them can end before that."""

    def answer(connection: socket.socket, number: int) -> bool:
        time.sleep(0.5 if number == 0 else 0.0)
        connection.sendall(WHOLE)
        return True

    with server(answer) as (port, came):
        load = at_rate(port, itertools.repeat(ASK), 20.0, 1, 0.5)
    assert len(came) == len(load.latencies_seconds) == 10
    assert all(took >= 0.5 - 0.05 * place for place, took in enumerate(load.latencies_seconds))
    assert load.outcomes == {"hit-l1": 10}


def test_saturation_counts_every_request_that_was_answered() -> None:
    with server(sends(WHOLE)) as (port, came):
        load = saturate(port, itertools.repeat(ASK), 4, 0.2)
    assert len(came) == len(load.latencies_seconds) >= 4
    assert load.per_second == len(came) / load.seconds


@pytest.mark.parametrize("response", [WHOLE, CHUNKED])
def test_a_response_ends_where_it_says_however_it_is_cut(response: bytes) -> None:
    for cut in (5, response.index(b"\r\n\r\n") + 2, len(response) - 1):
        with server(sends(response[:cut], response[cut:])) as (port, came):
            load = each_once(port, [ASK] * 3, connections=1)
        assert len(came) == len(load.latencies_seconds) == 3


def test_a_connection_that_was_closed_unused_is_opened_anew() -> None:
    """The answer and the end of the connection come in one segment, a second before the next request is due."""

    def answer(connection: socket.socket, _number: int) -> bool:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
        connection.sendall(WHOLE)
        connection.shutdown(socket.SHUT_WR)
        return False

    with server(answer) as (port, came):
        load = at_rate(port, itertools.repeat(ASK), 1.0, 1, 2.0)
    assert len(came) == len(load.latencies_seconds) == 2


@pytest.mark.parametrize("response", [b"HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n", b""])
def test_an_error_ends_the_measurement(response: bytes) -> None:
    def answer(connection: socket.socket, _number: int) -> bool:
        connection.sendall(response)
        return False

    with server(answer) as (port, _), pytest.raises(BadResponse):
        each_once(port, [ASK])


def test_failures_are_counted_where_that_is_wanted() -> None:
    statuses = (b"200 OK", b"400 Bad Request", b"429 Too Many Requests", b"503 Service Unavailable")

    def answer(connection: socket.socket, number: int) -> bool:
        connection.sendall(b"HTTP/1.1 " + statuses[number % 4] + b"\r\ncontent-length: 0\r\n\r\n")
        return True

    with server(answer) as (port, _came):
        load = each_once(port, [ASK] * 8, 1, count_failures=True)
        with pytest.raises(BadResponse, match="400"):
            each_once(port, [ASK] * 8, 1)
    assert load.statuses == {"200": 2, "400": 2, "429": 2, "503": 2}
    assert (load.failed, len(load.latencies_seconds)) == (4, 8)
