"""What goes to the backend, what comes back from it, and what is made of a backend that misbehaves."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import openai
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from api.gateway.settings import GatewaySettings, KeyHolder, NamespaceRules
from caches.errors import InputError
from tests.api.gateway.conftest import (
    CHAT,
    EMBEDDINGS,
    Backend,
    Front,
    ask,
    chat,
    emulated,
    gateway,
    metric,
    openai_at,
    outcome,
    send,
    serving,
    shared_gateway,
)

WHOLE = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "yes"}, "finish_reason": "stop"}]}
ERROR = {"error": {"message": "out of memory", "type": "server_error", "param": None, "code": None}}
OPENING = {"id": "1", "choices": [{"index": 0, "delta": {"role": "assistant", "content": "ye"}}]}
CLOSING = {"id": "1", "choices": [{"index": 0, "delta": {"content": "s"}, "finish_reason": "stop"}]}


def events(*values: Any, done: bool = True) -> bytes:
    lines = [f"data: {json.dumps(value)}\r\n\r\n".encode() for value in values]
    return b"".join([b": a comment\n\n", *lines, b"data: [DONE]\n\n" if done else b""])


STREAMS = {
    "good": events(OPENING, CLOSING),
    "cut": events(OPENING, done=False),
    "open": events(OPENING),
    "failing": events(OPENING, ERROR),
    "failed": events(ERROR),
    "strange": events(OPENING, ["what"]),
}


async def scripted(request: Request) -> Response:
    """Does what the model's name says."""
    body = json.loads(await request.body() or b"{}")
    model = body.get("model")
    if model in STREAMS and body.get("stream"):

        async def one_byte_at_a_time() -> AsyncIterator[bytes]:
            for byte in STREAMS[model]:
                yield bytes([byte])

        return StreamingResponse(one_byte_at_a_time(), media_type="text/event-stream")
    if model == "wrong":
        return Response(json.dumps(ERROR), media_type="application/json")
    if model == "text":
        return Response("<html>", media_type="text/html")
    if model == "silent":
        await asyncio.sleep(5)
    if model == "limited":
        headers = {"retry-after": "7", "x-ratelimit-remaining-requests": "0", "set-cookie": "a=b", "x-request-id": "9"}
        return Response(json.dumps(ERROR), 429, headers, "application/json")
    return Response(json.dumps(WHOLE), headers={"set-cookie": "a=b", "x-setpoint-cache": "hit-theirs"})


async def echoed(request: Request) -> Response:
    told = {
        "method": request.method,
        "path": request.scope["raw_path"].decode(),
        "query": request.url.query,
        "headers": dict(request.headers),
        "body": (await request.body()).decode(),
    }
    if request.method == "PUT":
        return Response(gzip.compress(b"packed"), 207, {"content-encoding": "gzip", "x-a": "b", "connection": "x-a"})
    return Response(json.dumps(told), headers={"set-cookie": "a=b"})


@pytest.fixture(scope="module")
def script() -> Iterator[Backend]:
    backend = Backend()
    methods = ["GET", "POST", "PUT", "DELETE"]
    app = Starlette(
        routes=[Route(CHAT, scripted, methods=["POST"]), Route("/{path:path}", echoed, methods=methods)],
    )
    with serving(backend.counting(app)) as backend.address:
        yield backend


@pytest.fixture(scope="module")
def shared_scripted_front(script: Backend) -> Iterator[Front]:
    with shared_gateway(f"{script.address}/v1/", deadline_seconds=1.0) as one:
        yield one


@pytest.fixture
def scripted_front(script: Backend, shared_scripted_front: Front) -> str:
    script.calls.clear()
    return shared_scripted_front.emptied()


@pytest.mark.parametrize("stream", [False, True])
def test_errors_are_passed_on_unchanged_and_not_stored(stream: bool) -> None:
    """Of 40 requests half fail: the same ones, in the same words, with the same headers."""
    with emulated(fail_ratio=0.5) as backend, gateway(backend.address) as front:
        statuses = set()
        for i in range(40):
            body = chat(f"question {i}", stream=stream)
            here, there = ask(front, body), ask(backend.address, body)
            assert here.status_code == there.status_code
            statuses.add(here.status_code)
            if here.status_code != 200:
                assert here.content == there.content
                assert here.headers.get("retry-after") == there.headers.get("retry-after")
                assert outcome(ask(front, body)) == "miss"
        assert statuses == {200, 429, 500}


def test_client_knows_the_errors(script: Backend, scripted_front: str) -> None:
    with openai_at(scripted_front) as client, pytest.raises(openai.RateLimitError) as caught:
        client.chat.completions.create(**chat(model="limited"))
    assert caught.value.response.headers["retry-after"] == "7"
    assert caught.value.response.headers["x-ratelimit-remaining-requests"] == "0"
    assert "set-cookie" not in caught.value.response.headers


@pytest.mark.parametrize("model", ["wrong", "text"])
def test_answers_that_are_none_are_passed_on_and_not_stored(script: Backend, scripted_front: str, model: str) -> None:
    for stream in (False, True, False):
        answer = ask(scripted_front, chat(model=model, stream=stream))
        assert (answer.status_code, outcome(answer)) == (200, "miss")
        assert answer.text in {json.dumps(ERROR), "<html>"}
    assert len(script.calls) == 3


def test_a_good_stream_is_stored_however_it_is_cut(script: Backend, scripted_front: str) -> None:
    streamed = ask(scripted_front, chat(model="good", stream=True))
    assert streamed.text.count("data: ") == 3
    whole = ask(scripted_front, chat(model="good"))
    assert outcome(whole) == "hit-l1"
    assert whole.json()["choices"][0]["message"] == {"role": "assistant", "content": "yes", "refusal": None}
    assert len(script.calls) == 1


@pytest.mark.parametrize("model", ["cut", "failing", "strange"])
def test_a_stream_that_breaks_off_says_so_and_is_not_stored(script: Backend, scripted_front: str, model: str) -> None:
    for _ in range(2):
        answer = ask(scripted_front, chat(model=model, stream=True))
        assert (answer.status_code, outcome(answer)) == (200, "miss")
        *_, opening, error = [line for line in answer.text.split("\n\n") if line]
        assert '"ye"' in opening
        assert "error" in json.loads(error.removeprefix("data: "))
    with openai_at(scripted_front) as client, pytest.raises(openai.APIError):
        list(client.chat.completions.create(**chat(model=model, stream=True)))
    assert len(script.calls) == 3


def test_a_stream_that_ends_in_order_but_half_way_is_passed_on_and_not_stored(
    script: Backend, scripted_front: str
) -> None:
    for _ in range(2):
        assert ask(scripted_front, chat(model="open", stream=True)).text.endswith("data: [DONE]\n\n")
    assert len(script.calls) == 2


def test_a_stream_that_only_brings_an_error(script: Backend, scripted_front: str) -> None:
    answer = ask(scripted_front, chat(model="failed", stream=True))
    assert answer.status_code == 200
    assert json.loads(answer.text.split("\n\n")[0].removeprefix("data: ")) == ERROR


def test_a_backend_that_does_not_stream_is_replayed(scripted_front: str) -> None:
    answer = ask(scripted_front, chat(stream=True))
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.text.endswith("data: [DONE]\n\n")
    assert answer.headers.get_list("x-setpoint-cache") == ["miss"]
    assert outcome(ask(scripted_front)) == "hit-l1"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("temperature", [0, 1])
def test_deadline(scripted_front: str, stream: bool, temperature: int) -> None:
    answer = ask(scripted_front, chat(model="silent", stream=stream, temperature=temperature))
    assert answer.status_code == 504
    assert answer.json()["error"]["code"] == "upstream_timeout"


def test_backend_that_is_not_there() -> None:
    with gateway("http://127.0.0.1:9") as front:
        for answer in (ask(front), ask(front, chat(stream=True)), send("GET", f"{front}/v1/models")):
            assert answer.status_code == 502
            assert answer.json()["error"]["code"] == "upstream_unreachable"
            assert "127.0.0.1" not in answer.text
            assert outcome(answer) in {"miss", "bypass"}
        assert send("GET", f"{front}/readyz").status_code == 503
        assert send("GET", f"{front}/healthz").status_code == 200


def test_ready(scripted_front: str) -> None:
    assert send("GET", f"{scripted_front}/readyz").json() == {"ready": True, "upstreams": 1, "healthy": 1}


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_everything_else_is_passed_through(scripted_front: str, method: str) -> None:
    body = {} if method == "GET" else {"content": b"\x00any"}
    headers = {"x-mine": "1", "accept-encoding": "br", "connection": "x-hop", "x-hop": "1", "authorization": "Bearer k"}
    answer = send(method, f"{scripted_front}/v1/fine%2Ftuning/jobs?after=a%20b&x", headers=headers, **body)
    told = answer.json()
    assert (told["method"], told["path"], told["query"]) == (method, "/v1/fine%2Ftuning/jobs", "after=a%20b&x")
    assert told["body"] == ("" if method == "GET" else "\x00any")
    assert told["headers"]["x-mine"] == "1"
    assert told["headers"]["authorization"] == "Bearer k"
    assert told["headers"]["accept-encoding"] == "identity"
    assert "x-hop" not in told["headers"]
    assert answer.headers["set-cookie"] == "a=b"
    assert outcome(answer) == "bypass"


def test_a_body_of_unknown_length_is_passed_through_too(scripted_front: str) -> None:
    pieces = iter([b"a" * 100_000, b"b"])
    answer = send("POST", f"{scripted_front}/v1/files", content=pieces)
    assert answer.json()["body"] == "a" * 100_000 + "b"


def test_packed_bodies_and_odd_statuses_stay_as_they_are(scripted_front: str) -> None:
    answer = send("PUT", f"{scripted_front}/v1/files", content=b"")
    assert (answer.status_code, answer.text) == (207, "packed")
    assert "x-a" not in answer.headers


@pytest.mark.parametrize("path", ["/v1/%2e%2e/admin", "/v2/models", "/"])
def test_nothing_outside_of_v1_is_reached(script: Backend, scripted_front: str, path: str) -> None:
    assert send("GET", scripted_front + path).json()["error"]["code"] == "not_found"
    assert script.calls == []


def test_keys_of_clients_go_to_the_backend_unless_it_has_its_own(script: Backend, scripted_front: str) -> None:
    ask(scripted_front, authorization="Bearer mine", openai_organization="o")
    assert script.calls[-1][1]["authorization"] == "Bearer mine"
    assert script.calls[-1][1]["openai-organization"] == "o"
    with gateway(script.address, upstream_key="theirs") as front:
        answer = ask(front, authorization="Bearer mine")
        assert script.calls[-1][1]["authorization"] == "Bearer theirs"
        assert "theirs" not in answer.text + str(answer.headers)


def test_cookies_of_one_client_are_not_sent_for_another(script: Backend, scripted_front: str) -> None:
    for i in range(2):
        assert "set-cookie" not in ask(scripted_front, chat(f"{i}")).headers
        send("GET", f"{scripted_front}/v1/x")
    assert all("cookie" not in headers for _, headers in script.calls)


@pytest.mark.parametrize("path", [CHAT, EMBEDDINGS])
def test_large_bodies_are_refused(backend: Backend, path: str) -> None:
    backend.calls.clear()
    with gateway(backend.address, largest_body_bytes=1000) as front:
        for content in (b"a" * 1001, iter([b"a" * 600] * 2)):
            answer = send("POST", front + path, content=content)
            assert answer.status_code == 413
            assert answer.json()["error"]["type"] == "invalid_request_error"
        assert metric(front, f'setpoint_gateway_requests_total{{endpoint="{path}",outcome="refused"}}') == 2
    assert backend.calls == []


@pytest.mark.parametrize(
    "settings",
    [
        {"upstream": "ftp://a"},
        {"upstream": "localhost:8100"},
        {"keys": {"key": KeyHolder("acme")}},
        {"keys": {"0" * 64: KeyHolder("a/b")}},
        {"namespaces": {"a/b": NamespaceRules()}},
        {"deadline_seconds": 0},
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        GatewaySettings(**{"upstream": "http://a", **settings})


def test_settings_show_no_secrets() -> None:
    told = GatewaySettings("http://me:secret@host/v1", "sk-secret")
    assert "secret" not in repr(told) + told.shown
    assert told.base_urls == ("http://me:secret@host",)
