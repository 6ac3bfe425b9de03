"""A Prometheus that is slow, frozen, gone, or none at all: always a reason, in time, and never an exception."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from caches.errors import InputError
from tests.servers import wait_until
from tests.tuner.prometheus_parts import Page, scraping, send, signals_of
from tuner.prometheus.client import LARGEST_ANSWER_BYTES, NotAnswered, PrometheusServer
from tuner.prometheus.source import MOST_THREADS
from tuner.signals import SIGNALS

QUERIES = {"entries": "sum(level)", "used_bytes": "sum(other)"}
SLACK_SECONDS = 10.0  # beside the time that a reading has, on a machine that may be busy
VECTOR = {"status": "success", "data": {"resultType": "vector", "result": []}}


def reasons(url: str, timeout_seconds: float = 15.0) -> set[str]:
    """Why the two signals are missing."""
    began = time.monotonic()
    found = signals_of(url, queries=QUERIES, timeout_seconds=timeout_seconds).read(time.time())
    assert time.monotonic() - began < timeout_seconds + SLACK_SECONDS
    assert list(found) == list(SIGNALS)
    assert [one.value for one in found.values()] == [None] * len(SIGNALS)
    return {str(found[name].missing) for name in QUERIES}


def test_frozen_and_gone(tmp_path: Path) -> None:
    with scraping(tmp_path, {}) as server:
        blind = {f"no series {name}{{}}: see whether" for name in ("level", "other")}
        assert {reason.partition(" Prometheus")[0] for reason in reasons(server.url)} == blind
        server.process.send_signal(signal.SIGSTOP)
        try:
            for _ in range(2):
                assert reasons(server.url, 0.5) == {
                    f"{server.url} did not answer in time: see how busy it is, or wait longer"
                }
        finally:
            server.process.send_signal(signal.SIGCONT)
        assert {reason.partition(" Prometheus")[0] for reason in reasons(server.url)} == blind
        for away_seconds in (3600.0, -3600.0):  # back, it would read the past and find it fresh
            found = signals_of(server.url, queries=QUERIES).read(time.time() + away_seconds)
            assert all("set them right" in str(one.missing) for one in found.values())
        server.process.kill()
        server.process.wait()
        assert reasons(server.url) == {f"{server.url} cannot be reached (ConnectionError): see whether it runs"}


@pytest.fixture
def page() -> Iterator[Page]:
    found = Page()
    yield found
    found.stop()


def says(text: str, kind: str = "application/json", status: int = 200) -> Callable[[BaseHTTPRequestHandler], None]:
    return lambda handler: send(handler, text, kind, status)


def of(**changes: object) -> str:
    return json.dumps(VECTOR | changes)


def data(kind: str, result: object) -> str:
    return of(data={"resultType": kind, "result": result})


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (says("<html>Log in</html>", "text/html"), "answered 200 with text/html and not with JSON"),
        (says("Unauthorized", "text/plain", 401), "answered 401 with text/plain and not with JSON"),
        (says(""), "not with JSON"),
        (says("{"), "not with JSON"),
        (says("[" * 100_000), "not with JSON"),
        (
            says('{"status":"error","errorType":"x","error":"too many\\n samples"}'),
            "refused the query: too many samples",
        ),
        (says(of(), status=503), "answered 503 and refused the query: nothing"),
        (says("[]"), "refused the query: nothing"),
        (says("null"), "refused the query: nothing"),
        (says(of(warnings=["store 3 of 4 did not answer"])), "may not be whole: ['store 3 of 4 did not answer']"),
        (says('{"status":"success"}'), "answered nonsense (KeyError"),
        (says(of(data=[])), "answered nonsense (TypeError"),
        (says(data("vector", None)), "answered nonsense (TypeError"),
        (says(data("vector", [["a"]])), "answered nonsense (IndexError"),
        (says(data("vector", [{"metric": {}, "value": [1, "much"]}])), "answered nonsense (ValueError"),
        (says(data("vector", [{"metric": {}, "histogram": [1, {}]}])), "answered nonsense (KeyError"),
        (says(data("vector", [{"metric": 3, "value": [1, "1"]}])), "answered nonsense (TypeError"),
        (says(data("matrix", [])), "the query gives a matrix"),
        (says(data("string", [1, "x"])), "the query gives a string"),
        (says(data("vector", [])), "does not know what time it is"),
        (says(data("vector", [{"metric": {}, "value": [1, "7"]}])), "away from this machine's: set them right"),
        (says(data("scalar", [1, "NaN"])), "away from this machine's: set them right"),
    ],
)
def test_what_is_no_answer(page: Page, answer: Callable[[BaseHTTPRequestHandler], None], words: str) -> None:
    page.answer = answer
    (reason,) = reasons(page.url)
    assert words in reason


def test_a_way_to_a_login_page(page: Page) -> None:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        if handler.path.startswith("/login"):
            send(handler, "<html>", "text/html")
            return
        handler.send_response(302)
        handler.send_header("Location", "/login")
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    page.answer = answer
    (reason,) = reasons(page.url)
    assert "answered 200 with text/html" in reason


def test_an_answer_without_an_end_is_cut_off(page: Page) -> None:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        try:
            while True:
                handler.wfile.write(b" " * 65536)
        except OSError:
            handler.close_connection = True

    page.answer = answer
    (reason,) = reasons(page.url)
    assert f"sends more than {LARGEST_ANSWER_BYTES} bytes" in reason


def test_an_answer_that_drips_is_given_up_in_time(page: Page) -> None:
    stopped = threading.Event()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        try:
            while not stopped.wait(0.05):
                handler.wfile.write(b" ")
        except OSError:
            handler.close_connection = True

    page.answer = answer
    try:
        (reason,) = reasons(page.url, 0.5)
    finally:
        stopped.set()
    assert "did not answer in time" in reason


def test_one_bad_query_among_good_ones(page: Page) -> None:
    """Only the signal that it belongs to is missing for it; the rest of the answers is true."""
    now = time.time()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        (query,) = parse_qs(urlsplit(handler.path).query)["query"]
        if "other" in query:  # also where it is one of several that are asked together
            send(handler, '{"status":"error","error":"execution timed out"}', status=503)
            return
        value = time.time() if query == "time()" else now - 7.0 if "timestamp" in query else 42.0
        kind, result = ("scalar", [now, str(value)]) if query == "time()" else (
            "vector", [{"metric": {}, "value": [now, str(value)]}],
        )  # fmt: skip
        send(handler, data(kind, result))

    page.answer = answer
    found = signals_of(page.url, queries=QUERIES).read(now)
    assert found["entries"].value == 42.0
    assert found["entries"].age_seconds == pytest.approx(7.0)
    assert "execution timed out" in str(found["used_bytes"].missing)


def test_threads_of_readings_that_were_given_up_do_not_pile_up(page: Page) -> None:
    """Headers that drip are what no timeout of the client ends."""
    stopped = threading.Event()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        try:
            handler.wfile.write(b"HTTP/1.0 200 OK\r\nX-Slow: ")
            while not stopped.wait(0.05):
                handler.wfile.write(b"x")
        except OSError:
            handler.close_connection = True

    page.answer = answer
    queries = {name: f"sum(level{i})" for i, name in enumerate(SIGNALS)}
    source = signals_of(page.url, queries=queries, timeout_seconds=0.5)

    def is_full() -> bool:
        began = time.monotonic()
        found = source.read(time.time())
        assert time.monotonic() - began < SLACK_SECONDS
        assert {one.value for one in found.values()} == {None}
        assert sum(thread.name == "signals" for thread in threading.enumerate()) <= MOST_THREADS
        return "still holds the questions of readings before" in str(found["entries"].missing)

    try:
        wait_until(is_full, "threads to be stuck")
    finally:
        stopped.set()


def test_a_password_in_the_url_is_sent_and_never_shown(page: Page) -> None:
    heard: list[str | None] = []

    def answer(handler: BaseHTTPRequestHandler) -> None:
        heard.append(handler.headers["Authorization"])
        send(handler, "no", "text/plain", 401)

    page.answer = answer
    (reason,) = reasons(page.url.replace("http://", "http://reader:secret@"))
    assert "secret" not in reason
    assert "reader" not in reason
    assert set(heard) == {"Basic cmVhZGVyOnNlY3JldA=="}
    heard.clear()
    with PrometheusServer(page.url, "a-token").inquiry(15.0) as inquiry, pytest.raises(NotAnswered):
        inquiry.ask("1", None)
    assert heard == ["Bearer a-token"]


@pytest.mark.parametrize("url", ["", "127.0.0.1:9090", "ftp://a", "http://", "prometheus"])
def test_what_is_no_url(url: str) -> None:
    with pytest.raises(InputError, match="expected a URL such as"):
        PrometheusServer(url)
