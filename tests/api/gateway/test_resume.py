"""A client that lost its connection gets the rest of its stream: the same bytes, and nobody else does."""

from __future__ import annotations

import itertools
import json
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from api.gateway.settings import KeyHolder, NamespaceRules, key_hash
from caches.streams.streams import Streams
from tests.api.gateway.conftest import CHAT, ask, configured, metric, openai_at, outcome, send, until
from tests.api.gateway.scripted import (
    LAST,
    RESUME,
    Received,
    Script,
    asking,
    keeping,
    received,
    resumed,
    scripted,
    without_ids,
)

PAGE = Path(__file__).parents[3] / "docs" / "streaming.md"
NUMBERS = itertools.count()
CUTS = st.lists(st.integers(0, 1_200), max_size=4)
QUICKLY = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
PLAIN = "[tiers.disk]\nenabled = false\n[tiers.semantic]\nenabled = false\n"
ACME, OTHER = "key of acme", "key of another"


@pytest.fixture(scope="module")
def shared_script() -> Iterator[Script]:
    with scripted() as one:
        yield one


@pytest.fixture
def script(shared_script: Script) -> Script:
    shared_script.reset()
    return shared_script


@pytest.fixture(scope="module")
def kept(shared_script: Script) -> Iterator[tuple[str, Streams]]:
    with keeping(shared_script.address, grace_seconds=5.0) as one:
        yield one


@pytest.fixture
def front(kept: tuple[str, Streams], script: Script) -> str:
    return kept[0]


def new_question(**fields: Any) -> dict[str, Any]:
    return asking(f"How far? {next(NUMBERS)}", **fields)


def all_of(address: str, first: Received) -> bytes:
    """The whole stream, as it is kept."""
    return received(address, None, None, path=f"/v1/cache/streams/{first.token}").whole


@pytest.mark.parametrize("with_usage", [True, False])
@pytest.mark.parametrize("then", ["", "unfinished", "error", "break"])
def test_cut_after_each_event_the_rest_follows(front: str, script: Script, with_usage: bool, then: str) -> None:
    """Also where the stream itself ends badly: what came, then the same error."""
    script.then = then
    body = new_question(**({"stream_options": {"include_usage": True}} if with_usage else {}))
    first = received(front, body)
    events = [event + b"\n\n" for event in first.whole.split(b"\n\n")[:-1]]
    assert len(events) >= 7
    for cut in range(len(events)):
        before = b"".join(events[:cut])
        broken = received(front, body, {RESUME: first.token}, most=len(before) + cut % 3)  # some inside an event
        assert broken.whole == before
        for again in (body, None):
            assert before + resumed(front, again, broken).whole == first.whole
    assert script.calls == 1


def test_events_are_those_of_the_backend_with_ids(front: str, script: Script) -> None:
    body = new_question(stream_options={"include_usage": True})
    first = received(front, body)
    assert (outcome_of(first), first.headers["content-type"].split(";")[0]) == ("miss", "text/event-stream")
    assert without_ids(first.whole) == b"".join(script._chunks())
    ids = [line for line in first.whole.split(b"\n") if line.startswith(b"id: ")]
    assert ids == [f"id: {first.token}:{number}".encode() for number in range(1, 10)]


@QUICKLY
@given(cuts=CUTS, pause_ms=st.sampled_from([0, 1, 3]), by_body=st.booleans(), with_usage=st.booleans())
def test_cut_anywhere_at_any_moment_the_parts_make_the_whole(
    front: str, script: Script, cuts: list[int], pause_ms: int, by_body: bool, with_usage: bool
) -> None:
    """Several times, in the middle of events, while the stream runs or after it."""
    script.pause_seconds, calls = pause_ms / 1000, script.calls
    body = new_question(**({"stream_options": {"include_usage": True}} if with_usage else {}))
    again = body if by_body else None
    part = received(front, body, most=cuts[0] if cuts else 10**6)
    first, joined = part, part.whole
    last_id = part.id
    for cut in [*cuts[1:], 10**6]:
        if joined.endswith(b"data: [DONE]\n\n"):
            break
        named = Received(part.status, first.headers, b"", last_id)
        part = resumed(front, again, named, most=cut)
        assert part.status == 200
        joined += part.whole
        last_id = part.id or last_id
    assert joined == all_of(front, first)
    assert joined.endswith(b"data: [DONE]\n\n")
    assert script.calls == calls + 1


def test_what_comes_later_is_passed_on_as_it_comes(front: str, script: Script) -> None:
    """The resumed stream runs on: a second client of the same stream sees events before it has ended."""
    script.allowed = 3
    body = new_question()
    first = received(front, body, most=400)
    done = threading.Event()
    rest: list[Received] = []

    def resume() -> None:
        rest.append(resumed(front, body, first))
        done.set()

    thread = threading.Thread(target=resume)
    thread.start()
    script.allowed = 5
    assert not done.wait(0.2)
    script.allowed = 10**9
    thread.join(10)
    assert first.whole + rest[0].whole == all_of(front, first)
    assert script.calls == 1


def test_the_call_goes_on_for_a_client_that_went(front: str, script: Script, kept: tuple[str, Streams]) -> None:
    script.allowed = 3
    body = new_question()
    first = received(front, body, most=300)
    script.allowed = 10**9
    until(lambda: kept[1].running == 0)
    assert first.whole + resumed(front, body, first).whole == all_of(front, first)
    assert outcome(ask(front, body)) == "hit-l1"  # the answer that nobody waited for was kept as well
    assert (script.calls, script.given_up) == (1, 0)


def test_after_the_grace_the_call_ends_and_says_so() -> None:
    with scripted() as script, keeping(script.address, grace_seconds=0.3) as (front, streams):
        script.allowed = 3
        first = received(front, new_question(), most=300)
        until(lambda: script.given_up == 1)
        until(lambda: streams.running == 0)
        rest = all_of(front, first)
        assert rest.startswith(first.whole)
        assert error_of(rest)["message"].startswith("The request that was waited for")


def test_an_answer_that_broke_off_is_never_a_hit(front: str, script: Script) -> None:
    for then in ("break", "error", "unfinished"):
        script.then, body = then, new_question()
        calls = script.calls
        first = received(front, body)
        assert outcome_of(first) == "miss"
        second = received(front, body)
        assert outcome_of(second) == "miss"
        assert script.calls == calls + 2
        assert second.token != first.token


def test_what_a_stream_failed_with_is_told_again(front: str, script: Script) -> None:
    script.then, body = "error", new_question()
    first = received(front, body)
    assert error_of(first.whole) == {"message": "out of memory", "type": "server_error"}
    assert error_of(all_of(front, first)) == error_of(first.whole)
    script.then, body = "break", new_question()
    broken = received(front, body)
    assert error_of(broken.whole)["code"] == "upstream_unreachable"
    assert b"[DONE]" not in broken.whole + all_of(front, broken)


def test_only_the_tenant_may_resume(script: Script) -> None:
    keys = {key_hash(ACME): KeyHolder("acme"), key_hash(OTHER): KeyHolder("other")}
    acme, other = ({"authorization": f"Bearer {key}"} for key in (ACME, OTHER))
    with keeping(script.address, keys=keys) as (front, _):
        body = new_question()
        first = received(front, body, acme)
        path = f"/v1/cache/streams/{first.token}"
        assert received(front, None, acme, path=path).whole == first.whole
        for headers, again, status in (
            (other, None, 410),
            (other, body, 410),
            ({}, None, 401),
            ({}, body, 401),
            (acme, None, 200),
            (acme, body, 200),
        ):
            told = {**headers, RESUME: first.token} if again is not None else headers
            got = received(front, again, told, path=CHAT if again is not None else path)
            assert got.status == status
            assert (b"moon" in got.whole) is (status == 200)


def test_a_token_is_only_for_the_request_it_came_from(front: str, script: Script) -> None:
    first = received(front, new_question())
    answer = send("POST", front + CHAT, json=new_question(), headers={RESUME: first.token})
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "other_stream")
    answer = send("POST", front + CHAT, json=new_question(), headers={LAST: str(first.id)})
    assert answer.status_code == 409
    assert script.calls == 1


@pytest.mark.parametrize("token", ["A" * 22 + "n", "A" * 22 + "u"])
def test_what_nobody_knows_is_gone(front: str, token: str) -> None:
    body = new_question()
    answers = [
        send("GET", f"{front}/v1/cache/streams/{token}"),
        send("POST", front + CHAT, json=body, headers={RESUME: token}),
        send("POST", front + CHAT, json=body, headers={LAST: f"{token}:3"}),
    ]
    assert {answer.status_code for answer in answers} == {410}
    assert {answer.json()["error"]["code"] for answer in answers} == {"stream_gone"}


@pytest.mark.parametrize(
    "headers",
    [
        {RESUME: "nonsense"},
        {RESUME: "A" * 22 + "n", LAST: "3"},
        {RESUME: "A" * 22 + "n", LAST: "B" * 22 + "n:3"},
        {RESUME: "A" * 22 + "n", LAST: "A" * 22 + "u:3"},
    ],
)
def test_nonsense_is_a_bad_request(front: str, headers: dict[str, str]) -> None:
    answer = send("POST", front + CHAT, json=new_question(), headers=headers)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] in {RESUME, LAST}


def test_ids_of_others_are_left_alone(front: str, script: Script) -> None:
    """A client library that sends the id of some other stream is answered as ever."""
    assert outcome_of(received(front, new_question(), {LAST: "42"})) == "miss"


def test_without_streams_there_are_neither_ids_nor_an_endpoint(script: Script) -> None:
    with keeping(script.address, namespaces={"plain": NamespaceRules()}) as (front, _):
        first = received(front, new_question(), {"x-setpoint-namespace": "plain"})
        assert RESUME not in first.headers
        assert b"id: " not in first.whole
        hit = received(front, new_question())
        assert RESUME in hit.headers


def test_a_hit_is_whole_and_needs_no_resume(front: str, script: Script) -> None:
    body = new_question()
    received(front, body)
    hit = received(front, body)
    assert outcome_of(hit) == "hit-l1"
    assert RESUME not in hit.headers
    assert b"id: " not in hit.whole


def test_metrics_and_outcomes(script: Script) -> None:
    with keeping(script.address) as (front, _):
        body = new_question()
        first = received(front, body, most=500)
        rest = resumed(front, body, first)
        assert outcome_of(rest) == "resumed"
        send("GET", f"{front}/v1/cache/streams/{'A' * 22}n")
        until(lambda: metric(front, "setpoint_streams_running") == 0)
        counted = {
            name: metric(front, f"setpoint_streams_{name}_total")
            for name in ("recorded", "lost", "joined", "resumed", "refused", "resumed_bytes")
        }
        assert counted == {
            "recorded": 1,
            "lost": 0,
            "joined": 0,
            "resumed": 1,
            "refused": 1,
            "resumed_bytes": len(rest.whole) - len(b"data: [DONE]\n\n"),
        }
        assert metric(front, "setpoint_stream_append_seconds_count") >= 1
        assert metric(front, 'setpoint_gateway_requests_total{endpoint="/v1/chat/completions",outcome="resumed"}') == 1


def test_the_access_log_does_not_count_it_again(script: Script, tmp_path: Path) -> None:
    """A resumed request has an outcome of its own and no key, so that a trace leaves it out."""
    body, folder = new_question(), tmp_path / "log"
    with configured(
        script.address,
        tmp_path / "gateway.toml",
        f'[access_log]\nplace = "{folder}"\n[streaming]\nenabled = true\n{PLAIN}',
    ) as front:
        first = received(front, body, most=500)
        assert resumed(front, body, first).whole.endswith(b"data: [DONE]\n\n")
    rows = sorted(pq.read_table(folder).to_pylist(), key=lambda row: row["time"])
    assert [(row["outcome"], row["key"] is None) for row in rows] == [("miss", False), ("resumed", True)]


def test_the_openai_client_reads_such_a_stream(front: str, script: Script) -> None:
    """Streamed, and as its own helper joins it."""
    ask_for: Any = {"model": "m", "temperature": 0, "messages": [{"role": "user", "content": f"n {next(NUMBERS)}"}]}
    expected = "".join(script.pieces)
    with openai_at(front) as client:
        raw = client.chat.completions.with_raw_response.create(**ask_for, stream=True)
        assert RESUME in raw.headers
        assert "".join(chunk.choices[0].delta.content or "" for chunk in raw.parse()) == expected
        ask_for["messages"][0]["content"] += "!"
        with client.chat.completions.stream(**ask_for, stream_options={"include_usage": True}) as stream:
            final = stream.get_final_completion()
    assert final.choices[0].message.content == expected
    assert final.usage is not None
    assert final.usage.completion_tokens == len(script.pieces)


class Breaking(httpx.HTTPTransport):
    """Breaks its first connections off after so many bytes."""

    def __init__(self, after: list[int]) -> None:
        super().__init__(verify=False)
        self._after = after

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        response = super().handle_request(request)
        if self._after and isinstance(response.stream, httpx.SyncByteStream):
            response.stream = Broken(response.stream, self._after.pop(0))
        return response


class Broken(httpx.SyncByteStream):
    def __init__(self, stream: httpx.SyncByteStream, left: int) -> None:
        self._stream, self._left = stream, left

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._stream:
            yield piece[: self._left]
            self._left -= len(piece)
            if self._left <= 0:
                raise httpx.ReadError("as the test says")

    def close(self) -> None:
        self._stream.close()


def test_the_client_of_the_page_goes_on_where_it_was(front: str, script: Script) -> None:
    """The Python code of docs/streaming.md, as it stands there, over connections that break twice."""
    pytest.importorskip("httpx_sse")
    (code,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    named: dict[str, Any] = {}
    exec(code, named)
    script.pause_seconds = 0.002
    with httpx.Client(transport=Breaking([700, 400]), timeout=10) as client:
        data = list(named["events"](client, front + CHAT, new_question()))
    text = "".join(json.loads(one)["choices"][0]["delta"].get("content", "") for one in data)
    assert text == "".join(script.pieces)
    assert script.calls == 1


def test_a_client_that_hangs_up_while_it_resumes_is_let_go(
    front: str, script: Script, kept: tuple[str, Streams]
) -> None:
    script.allowed, body = 3, new_question()
    first = received(front, body, most=300)
    for _ in range(3):
        assert resumed(front, body, first, most=10).status == 200
    script.allowed = 10**9
    until(lambda: kept[1].running == 0)
    time.sleep(0.05)
    assert script.calls == 1


def outcome_of(got: Received) -> str:
    return str(got.headers["x-setpoint-cache"])


def error_of(events: bytes) -> dict[str, Any]:
    last = events.split(b"\n\n")[-2]
    error: dict[str, Any] = json.loads(last.partition(b"data: ")[2])["error"]
    return error
