"""A backend whose connection breaks in the middle of an answer."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import httpx
import pytest

from tests.api.gateway.conftest import ask, chat, gateway, outcome, send

HALF = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n"


@pytest.fixture(scope="module")
def front() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=_answer_by_halves, args=(listener,))
        thread.start()
        with gateway(f"http://127.0.0.1:{listener.getsockname()[1]}") as address:
            yield address
        listener.shutdown(socket.SHUT_RDWR)  # ends the accept that waits
        thread.join(10)


def _answer_by_halves(listener: socket.socket) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection:
            connection.recv(65536)
            connection.sendall(HALF)


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_to_be_kept_is_an_error_and_not_kept(front: str, stream: bool) -> None:
    for _ in range(2):
        answer = ask(front, chat(stream=stream))
        assert (answer.status_code, outcome(answer)) == (502, "miss")
        assert answer.json()["error"]["code"] == "upstream_unreachable"


def test_what_is_passed_through_breaks_off_too(front: str) -> None:
    """Nobody may take half of it for the whole."""
    with pytest.raises(httpx.RemoteProtocolError):
        send("GET", f"{front}/v1/anything")
    assert send("GET", f"{front}/healthz").status_code == 200
