"""The gateway as a live cache, over HTTP: by the contract of all live caches, and what an answer has to be like."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import orjson
import pytest

from api.gateway.app import create_gateway
from api.gateway.service import GatewayService
from api.gateway.settings import GatewaySettings, KeyHolder, Role, key_hash
from api.gateway.upstream import upstream_client
from caches.errors import InputError
from caches.keys.fields import Endpoint
from caches.keys.fingerprint import request_key
from caches.keys.request_key import Partition
from caches.place import Place
from caches.stack import Stack, StackRules
from caches.target import Arm, CacheUnavailable, Plan, Split
from caches.tiers.split import SplitTier
from tests.api.gateway.conftest import ask, chat, emulated, gateway, outcome, serving, until
from tests.contracts.live_cache_contract import DEFAULT, SPACE, LiveCacheContract, LiveSubject, alike
from tests.servers import free_port
from tuner.live.arms_document import PATH
from tuner.live.gateway_cache import MOST_BYTES, GatewayCache
from tuner.live.policies_document import POLICIES_PATH, policies_json
from tuner.router import assigner

SECONDS = 30.0  # nothing here is about being late but where it says so


@pytest.fixture(scope="module")
def backend() -> Iterator[str]:
    with emulated() as one:
        yield one.address


@contextmanager
def tuned_gateway(upstream: str, without: str | None = None, **settings: Any) -> Iterator[str]:
    """One with a tier of two arms, which lets go of five entries in a step, and renews none. without: a path that it
    does not know."""
    told = GatewaySettings(upstream, **settings)
    tier = SplitTier(SPACE, assigner, most_removed=5)
    stack = Stack([Place(tier)], StackRules(ttl_jitter=0.0, refresh_beta=0.0))
    service = GatewayService(told, stack, upstream_client(told), tuned=tier)
    app = create_gateway(service)
    app.router.routes = [route for route in app.routes if getattr(route, "path", None) != without]
    with serving(app, "on") as address:
        yield address


@contextmanager
def cache_at(address: str, **options: Any) -> Iterator[GatewayCache]:
    cache = GatewayCache(address, **{"timeout_seconds": SECONDS, **options})
    try:
        yield cache
    finally:
        cache.close()


def question(number: int) -> dict[str, Any]:
    return chat(f"question {number}", max_tokens=40)


def name_of(number: int) -> bytes:
    return request_key(Endpoint.CHAT, question(number), Partition()).id


class TestGatewayCache(LiveCacheContract):
    @pytest.fixture(autouse=True)
    def _behind(self, backend: str) -> None:
        self.backend = backend

    @contextmanager
    def make(self) -> Iterator[LiveSubject]:
        with tuned_gateway(self.backend) as address, cache_at(address) as cache:

            def asked(number: int) -> bool:
                return outcome(ask(address, question(number))) == "hit-l1"

            def in_time(true: Callable[[], object]) -> None:
                until(true, SECONDS)

            yield LiveSubject(cache, asked, name_of, in_time, threading.Event().wait, largest_bytes=2_048)


def test_what_is_read_and_what_is_done_takes_a_key_of_its_role(backend: str) -> None:
    keys = {key_hash(role.value): KeyHolder("acme", role) for role in Role}
    with tuned_gateway(backend, keys=keys) as address:
        with cache_at(address, api_key="operator") as cache:
            assert cache.apply(alike(Split("a", 0.5)), 1).fence == 1
        with cache_at(f"{address}/v1/", api_key="viewer") as cache:
            assert cache.standing().fence == 1
            with pytest.raises(CacheUnavailable, match="got status 403, this key does not open it"):
                cache.apply(alike(Split("a", 0.5)), 2)
        for key in ("client", None):
            with cache_at(address, api_key=key) as cache, pytest.raises(CacheUnavailable, match="403"):
                cache.counters()


def test_a_gateway_that_is_not_tuned_says_so(backend: str) -> None:
    nothing = "got status 404, nothing is tuned there"
    with gateway(backend) as address, cache_at(address) as cache, pytest.raises(CacheUnavailable, match=nothing):
        cache.standing()


def test_nobody_there_is_unavailable_and_somebody_who_comes_back_is_not(backend: str) -> None:
    with cache_at(f"http://127.0.0.1:{free_port()}") as cache:
        reads = (cache.standing, cache.counters, cache.knob_space, cache.eviction_policies)
        for call in (*reads, lambda: cache.apply(alike(Split()), 1)):
            with pytest.raises(CacheUnavailable, match="gateway: no answer"):
                call()


@contextmanager
def answering(body: bytes, status: int = 200, location: str | None = None) -> Iterator[str]:
    class Answers(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            if location is not None:
                self.send_header("location", location)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Nobody reads it."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(scope="module")
def document(backend: str) -> bytes:
    """What a gateway says."""
    with tuned_gateway(backend) as address, cache_at(address) as cache:
        cache.apply(Plan(Split("a", 0.5), DEFAULT, DEFAULT), 1)
        ask(address, question(1))
        return cache._asked("GET", PATH, None)


def refusal(body: bytes, status: int = 200, location: str | None = None) -> str:
    with (
        answering(body, status, location) as address,
        cache_at(address, name="c") as cache,
        pytest.raises(CacheUnavailable) as refused,
    ):
        cache.standing()
    return str(refused.value)


def with_changed(document: bytes, place: str, value: Any) -> bytes:
    """value: to stand at that place, or `...` for nothing at all."""
    told = orjson.loads(document)
    *path, last = place.split(".")
    part = told
    for name in path:
        part = part[int(name)] if isinstance(part, list) else part[name]
    if value is ...:
        del part[last]
    else:
        part[int(last) if isinstance(part, list) else last] = value
    return orjson.dumps(told)


def test_a_document_is_read_as_it_was_written(document: bytes) -> None:
    with answering(document) as address, cache_at(address) as cache:
        assert cache.knob_space() == SPACE
        assert cache.standing().plan == Plan(Split("a", 0.5), DEFAULT, DEFAULT)
        assert sum(counters.requests for counters in cache.counters().arms.values()) == 1


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("fence", -1),
        ("fence", "1"),
        ("fence", 1.5),
        ("fence", ...),
        ("began_seconds", None),
        ("at_seconds", "now"),
        ("plan.split.treatment", 1.5),
        ("plan.split.salt", 3),
        ("plan.control.ttl_seconds", ...),
        ("plan.control.ttl_seconds", True),
        ("plan.treatment.more", 1.0),
        ("binding.control.cache_size", "1e7"),
        ("binding.other", {"cache_size": 1.0, "ttl_seconds": 1.0, "warmup_ratio": 0.0}),
        ("knobs.cache_size.scale", "cubic"),
        ("knobs.cache_size.low", 1e9),
        ("arms.treatment.requests", -5),
        ("arms.treatment.requests", 2.0),
        ("arms.control.hits", 10**6),
        ("arms.control.ttft_seconds.counts", [1, 2]),
        ("arms.control.ttft_seconds.bounds.0", 7.0),
        ("arms.control.latency_seconds.total", -0.1),
    ],
)
def test_nonsense_is_unavailable_and_named(document: bytes, place: str, value: Any) -> None:
    told = refusal(with_changed(document, place, value))
    assert told.startswith("c: an answer that makes no sense, ")
    named = told.partition("sense, ")[2].partition(":")[0]
    # of what is wrong between fields, the part that they are of
    assert place.startswith(named.removesuffix(".[key]")), told


def test_an_arm_that_is_missing_is_named(document: bytes) -> None:
    assert "arms: got control, expected both" in refusal(with_changed(document, "arms.treatment", ...))


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'"up"', b'{"fence": NaN}', b"<html>"])
def test_what_is_no_such_document_is_unavailable(body: bytes) -> None:
    assert "an answer that makes no sense" in refusal(body)


@pytest.mark.parametrize(
    "body",
    [b"{}", b'{"salt": "a", "imbalance": null, "keys": 1}', b'{"salt": 1, "imbalance": 0.5, "keys": 1}', b"salt"],
)
def test_a_salt_that_makes_no_sense_is_unavailable(body: bytes) -> None:
    senseless = pytest.raises(CacheUnavailable, match="an answer that makes no sense")
    with answering(body) as address, cache_at(address) as cache, senseless:
        cache.balanced_salt(1, (0.5,))


def policies_at(body: bytes, status: int = 200) -> tuple[str, ...]:
    with answering(body, status) as address, cache_at(address) as cache:
        return cache.eviction_policies()


@pytest.mark.parametrize("keys", [{}, {key_hash(role.value): KeyHolder("acme", role) for role in Role}])
def test_an_older_gateway_tells_no_eviction_policies(backend: str, keys: dict[str, KeyHolder]) -> None:
    """It knows no such path, and hands it on to its backend if it is a client who asks."""
    with (
        tuned_gateway(backend, without=POLICIES_PATH, keys=keys) as address,
        cache_at(address, api_key="operator") as cache,
    ):
        assert cache.eviction_policies() == ()
        assert cache.standing().fence == 0


def test_eviction_policies_are_read_as_they_were_written() -> None:
    assert policies_at(policies_json(("sieve", "lru"))) == ("sieve", "lru")
    assert policies_at(policies_json(())) == ()
    assert policies_at(b'{"made_with": "sieve", "offered": ["lru", "sieve", "lru"]}') == ("sieve", "lru")


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (b"{}", "made_with: Field required"),
        (b'{"made_with": "lru"}', "offered: Field required"),
        (b'{"made_with": "lru", "offered": []}', "body: made_with: got 'lru', expected one of those offered"),
        (b'{"made_with": null, "offered": ["lru"]}', "body: made_with: got null"),
        (b'{"made_with": "lru", "offered": "lru"}', "offered: "),
        (b'{"made_with": "", "offered": [""]}', "made_with: "),
        (b'{"made_with": "lru", "offered": ["lru"], "more": 1}', "more: "),
        (b"<html>", "body: "),
    ],
)
def test_eviction_policies_that_make_no_sense_are_unavailable(body: bytes, named: str) -> None:
    with pytest.raises(CacheUnavailable) as refused:
        policies_at(body)
    assert f"an answer that makes no sense, {named}" in str(refused.value)


@pytest.mark.parametrize("status", [403, 500, 503])
def test_eviction_policies_that_are_refused_are_unavailable(status: int) -> None:
    """No reason to go on as beside an older gateway."""
    with pytest.raises(CacheUnavailable, match=f"got status {status}"):
        policies_at(b"", status)


def test_any_other_status_is_unavailable(document: bytes) -> None:
    assert "got status 500" in refusal(document, 500)
    assert "got status 503" in refusal(b"", 503)
    assert "got status 302" in refusal(b"", 302, "http://127.0.0.1:9/")


def test_an_answer_without_an_end_is_unavailable(document: bytes) -> None:
    assert f"more than {MOST_BYTES:,} bytes" in refusal(document + b" " * (2 * MOST_BYTES))


@pytest.mark.parametrize("trickles", [False, True])
def test_an_answer_that_does_not_come_in_time_is_unavailable(trickles: bool) -> None:
    """Silent, or a byte at a time that each come soon enough."""
    stop = threading.Event()

    def serve(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 10000\r\n\r\n")
            while not stop.wait(0.05):
                if trickles:
                    connection.sendall(b" ")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        late = pytest.raises(CacheUnavailable, match="no whole answer after 0.5" if trickles else "ReadTimeout")
        try:
            with cache_at(address, timeout_seconds=0.5) as cache, late:
                cache.standing()
        finally:
            stop.set()
            thread.join()


@pytest.mark.parametrize("url", ["", "127.0.0.1:8080", "ftp://host", "http://", "http://host:port"])
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(InputError, match="url: got"):
        GatewayCache(url)


def test_a_time_that_is_none_is_refused() -> None:
    with pytest.raises(InputError, match="timeout_seconds: got 0"):
        GatewayCache("http://127.0.0.1", timeout_seconds=0.0)


def test_it_is_named_by_its_operator() -> None:
    with cache_at("http://127.0.0.1", name="east") as cache:
        assert cache.name == "east"


def test_arms_are_those_of_the_router(document: bytes) -> None:
    arms = orjson.loads(document)["arms"]
    mine = assigner(Split("a", 0.5))(name_of(1))
    assert {arm: arms[arm]["requests"] for arm in arms} == {arm.value: int(arm is mine) for arm in Arm}
