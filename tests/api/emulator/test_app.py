"""The application over HTTP: time, slots, clients that go, metrics, errors."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from envs.serving import ServingProfile, load_profile
from tests.api.emulator.conftest import emulator

CHAT = "/v1/chat/completions"


def body(content: str = "How far?", **fields: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": content}], **fields}


def one_slot() -> ServingProfile:
    return load_profile("qwen2.5-7b-a100").model_copy(update={"max_sequences": 1})


@pytest.fixture(scope="module")
def slow() -> Iterator[str]:
    """One sequence at once, in real time."""
    with emulator(one_slot(), speed=1.0) as address:
        yield address


def metric(address: str, name: str) -> float:
    page = httpx.get(f"{address}/metrics").text
    (line,) = (line for line in page.splitlines() if line.startswith(f"vllm:{name}{{"))
    return float(line.rpartition(" ")[2])


async def until(address: str, name: str, value: float) -> None:
    deadline = time.monotonic() + 5
    while await asyncio.to_thread(metric, address, name) != value:
        assert time.monotonic() < deadline, f"{name} did not become {value}"
        await asyncio.sleep(0.01)


def test_takes_the_time_of_the_profile(slow: str) -> None:
    """20 tokens of 12 ms are 0.24 s."""
    start = time.monotonic()
    assert httpx.post(slow + CHAT, json=body(max_tokens=20)).status_code == 200
    assert 0.24 <= time.monotonic() - start < 1.0


async def test_second_waits_for_the_first(slow: str) -> None:
    """Two of 0.12 s each, one after the other."""
    async with httpx.AsyncClient(base_url=slow) as client:
        start = time.monotonic()
        await asyncio.gather(*(client.post(CHAT, json=body(text, max_tokens=10)) for text in "ab"))
        assert 0.24 <= time.monotonic() - start < 1.0


@pytest.mark.parametrize("stream", [False, True])
async def test_client_that_goes_frees_the_slot(slow: str, stream: bool) -> None:
    """Its answer would take two minutes."""
    long = body(max_tokens=10_000, ignore_eos=True, stream=stream)
    async with httpx.AsyncClient(base_url=slow) as client:
        asking = asyncio.create_task(client.post(CHAT, json=long))
        await until(slow, "num_requests_running", 1)
        waiting = asyncio.create_task(client.post(CHAT, json=body(max_tokens=1, stream=stream)))
        await until(slow, "num_requests_waiting", 1)
        asking.cancel()
        assert (await waiting).status_code == 200
    await until(slow, "num_requests_running", 0)


@pytest.mark.parametrize("stream", [False, True])
async def test_client_that_goes_leaves_the_queue(slow: str, stream: bool) -> None:
    async with httpx.AsyncClient(base_url=slow) as client:
        first = asyncio.create_task(client.post(CHAT, json=body(max_tokens=10_000, ignore_eos=True)))
        await until(slow, "num_requests_running", 1)
        second = asyncio.create_task(client.post(CHAT, json=body(n=3, stream=stream)))
        await until(slow, "num_requests_waiting", 3)
        second.cancel()
        await until(slow, "num_requests_waiting", 0)
        first.cancel()
    await until(slow, "num_requests_running", 0)


def test_tokens_are_counted() -> None:
    """Two messages of 4 + 2 tokens, three choices of 5 tokens in each of two requests."""
    with emulator() as address:
        for stream in (False, True):
            httpx.post(address + CHAT, json=body(n=3, max_tokens=5, stream=stream)).read()
        assert metric(address, "prompt_tokens_total") == 2 * 3 * 6
        assert metric(address, "generation_tokens_total") == 2 * 3 * 5
        assert metric(address, "num_requests_running") == 0


def test_stream_is_server_sent_events_with_an_end(fast: str) -> None:
    answer = httpx.post(fast + CHAT, json=body(stream=True))
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.text.endswith("\n\ndata: [DONE]\n\n")


def test_failures_are_a_share_of_requests_and_always_the_same() -> None:
    """Of 100 requests a half fails: 34 to 66 with a chance of 0.999."""
    with emulator(fail_ratio=0.5) as address, httpx.Client(base_url=address) as client:
        first, second = (
            [client.post("/v1/completions", json={"model": "m", "prompt": f"{i}"}).status_code for i in range(100)]
            for _ in range(2)
        )
    assert first == second
    assert set(first) == {200, 429, 500}
    assert 34 <= sum(status != 200 for status in first) <= 66


@pytest.mark.parametrize("path", ["/healthz", "/health"])
def test_health(fast: str, path: str) -> None:
    assert httpx.get(fast + path).json() == {"status": "ok", "emulator": True}


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"{", "not valid JSON"), (b"[]", "not a JSON object"), (b"\xff", "not valid JSON"), (b"{}", "model: ")],
)
@pytest.mark.parametrize("path", [CHAT, "/v1/completions", "/v1/embeddings"])
def test_bad_bodies_are_errors_in_the_form_of_the_api(fast: str, path: str, content: bytes, message: str) -> None:
    answer = httpx.post(fast + path, content=content)
    error = answer.json()["error"]
    assert answer.status_code == 400
    assert error["type"] == "invalid_request_error"
    assert message in error["message"]


def test_other_methods_and_paths_are_errors_too(fast: str) -> None:
    wrong_method, nowhere = httpx.get(fast + CHAT), httpx.get(f"{fast}/v1/audio")
    assert (wrong_method.status_code, nowhere.status_code) == (405, 404)
    assert "GET /v1/audio" in nowhere.json()["error"]["message"]
    assert wrong_method.headers["allow"] == "POST"


def test_order_of_keys_and_blanks_change_nothing(fast: str) -> None:
    here = b'{"model": "m", "prompt": "a", "user": "b"}'
    there = b'{"user":"b","prompt":"a","model":"m"}'
    first, second = (httpx.post(f"{fast}/v1/completions", content=content) for content in (here, there))
    assert first.json() == second.json()
