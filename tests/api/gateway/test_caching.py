"""What is answered from the cache, what is not, and what responses say about it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from api.gateway.settings import key_hash
from caches.keys.rules import KeyRules
from caches.place import Place
from caches.stack import StackRules
from caches.tiers.memory import MemoryTier
from tests.api.gateway.conftest import (
    CHAT,
    COMPLETIONS,
    EMBEDDINGS,
    SPACE,
    Backend,
    ask,
    chat,
    gateway,
    metric,
    outcome,
    send,
    until,
)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, chat()),
        (COMPLETIONS, {"model": "m", "prompt": "a", "temperature": 0}),
        (EMBEDDINGS, {"model": "m", "input": "a"}),
    ],
)
def test_second_is_a_hit_with_the_same_bytes(front: str, backend: Backend, path: str, body: Any) -> None:
    first, second = ask(front, body, path), ask(front, body, path)
    assert (outcome(first), outcome(second)) == ("miss", "hit-l1")
    assert "age" not in first.headers
    assert 0 <= int(second.headers["age"]) <= 5
    assert "x-setpoint-similarity" not in second.headers
    assert first.content == second.content == ask(backend.address, body, path).content
    assert "x-setpoint-emulator" in first.headers  # the backend's own headers, where it was the backend
    assert len(backend.calls) == 2


def test_order_of_keys_and_way_of_delivery_do_not_count(front: str) -> None:
    ask(front, chat(stream=True))
    assert outcome(ask(front, dict(reversed(chat().items())))) == "hit-l1"
    streamed = ask(front, chat(stream=True))
    assert outcome(streamed) == "hit-l1"
    assert streamed.headers["content-type"].startswith("text/event-stream")
    assert streamed.text.endswith("\n\ndata: [DONE]\n\n")


def test_sampled_answers_are_passed_by_unless_the_rules_allow_them(front: str, backend: Backend) -> None:
    body = chat(temperature=1)
    assert [outcome(ask(front, body)) for _ in range(2)] == ["bypass", "bypass"]
    assert ask(front, chat(temperature=1, stream=True)).text.endswith("data: [DONE]\n\n")
    with gateway(backend.address, key_rules=KeyRules(allow_sampled=True)) as other:
        assert [outcome(ask(other, body)) for _ in range(2)] == ["miss", "hit-l1"]


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"{", 400),
        (b"[]", 400),
        (b'{"model": "m", "temperature": 0, "messages": 7}', 400),
        (b'{"model": "m", "temperature": 0, "messages": [{"role": "user", "content": "a"}], "stream": "yes"}', 400),
    ],
)
def test_the_backend_says_what_is_wrong_with_a_body(front: str, backend: Backend, content: bytes, status: int) -> None:
    answer = send("POST", front + CHAT, content=content)
    assert (answer.status_code, outcome(answer)) == (status, "bypass")
    assert answer.content == send("POST", backend.address + CHAT, content=content).content


def test_no_store_goes_past_the_cache_both_ways(front: str, backend: Backend) -> None:
    assert outcome(ask(front, cache_control="no-store")) == "bypass"
    assert outcome(ask(front)) == "miss"
    assert outcome(ask(front, cache_control="no-transform, No-Store")) == "bypass"
    assert len(backend.calls) == 3


@pytest.mark.parametrize("stream", [False, True])
def test_no_cache_asks_the_backend_and_stores(front: str, backend: Backend, stream: bool) -> None:
    assert [outcome(ask(front, chat(stream=stream), cache_control="no-cache")) for _ in range(2)] == ["miss", "miss"]
    assert outcome(ask(front)) == "hit-l1"
    assert len(backend.calls) == 2


def test_max_age(front: str) -> None:
    ask(front)
    assert outcome(ask(front, cache_control="max-age=60")) == "hit-l1"
    assert outcome(ask(front, cache_control="max-age=0")) == "miss"
    assert outcome(ask(front, cache_control="max-age=soon")) == "miss"
    time.sleep(1.1)
    assert outcome(ask(front, cache_control="max-age=1")) == "miss"
    assert outcome(ask(front, cache_control="max-age=1")) == "hit-l1"


def test_ttl_of_an_answer_can_only_be_shorter(front: str, backend: Backend) -> None:
    ask(front, x_setpoint_ttl="0.3")
    assert outcome(ask(front)) == "hit-l1"
    time.sleep(0.35)
    assert outcome(ask(front)) == "miss"
    place = Place(MemoryTier(SPACE))
    with gateway(backend.address, places=[place]) as other:
        shorter = {"memory": {"cache_size": 1e6, "ttl_seconds": 0.3, "warmup_ratio": 0}}
        send("PUT", f"{other}/v1/cache/settings", json=shorter).raise_for_status()
        ask(other, x_setpoint_ttl="1000")
        time.sleep(0.35)
        assert outcome(ask(other)) == "miss"


@pytest.mark.parametrize("ttl", ["-1", "soon", "nan", "inf"])
def test_a_bad_ttl_is_refused(front: str, backend: Backend, ttl: str) -> None:
    answer = ask(front, x_setpoint_ttl=ttl)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "x-setpoint-ttl"
    assert backend.calls == []


def test_namespaces_do_not_share(front: str, backend: Backend) -> None:
    told = [outcome(ask(front, x_setpoint_namespace=name)) for name in ("a", "b", "a", "b")]
    assert told == ["miss", "miss", "hit-l1", "hit-l1"]
    assert len(backend.calls) == 2
    assert all("x-setpoint-namespace" not in headers for _, headers in backend.calls)
    refused = ask(front, x_setpoint_namespace="a/b")
    assert refused.status_code == 400
    assert refused.json()["error"]["type"] == "invalid_request_error"


def test_tenants_do_not_share_and_strangers_are_refused(backend: Backend) -> None:
    backend.calls.clear()
    tenants = {key_hash("one"): "acme", key_hash("two"): "acme", key_hash("three"): "globex"}
    with gateway(backend.address, tenants=tenants, upstream_key="secret") as front:
        told = [outcome(ask(front, authorization=f"Bearer {key}")) for key in ("one", "two", "three", "three")]
        assert told == ["miss", "hit-l1", "miss", "hit-l1"]
        for headers in ({}, {"authorization": "Bearer four"}, {"authorization": "Basic one"}):
            for refused in (ask(front, **headers), send("GET", f"{front}/v1/models", headers=headers)):
                assert refused.status_code == 401
                assert refused.json()["error"]["code"] == "invalid_api_key"
        assert metric(front, 'setpoint_gateway_requests_total{endpoint="/v1/chat/completions",outcome="refused"}') == 3
    assert [headers["authorization"] for _, headers in backend.calls] == ["Bearer secret"] * 2


def test_hot_entries_are_renewed_beside_the_request(backend: Backend) -> None:
    backend.calls.clear()
    with gateway(backend.address, rules=StackRules(refresh_beta=1e9)) as front:
        ask(front, chat(stream=True))
        assert outcome(ask(front)) == "hit-l1"
        until(lambda: metric(front, 'setpoint_gateway_refreshes_total{outcome="done"}') >= 1)
        assert len(backend.calls) >= 2


@pytest.fixture
def new_front(backend: Backend) -> Iterator[str]:
    with gateway(backend.address) as address:
        yield address


def test_what_was_answered_is_counted(new_front: str) -> None:
    front = new_front
    for _ in range(3):
        ask(front)
    ask(front, chat(temperature=1))
    send("GET", f"{front}/v1/models")
    counted = {
        name: metric(front, f'setpoint_gateway_requests_total{{endpoint="{path}",outcome="{name}"}}')
        for path, name in ((CHAT, "miss"), (CHAT, "hit-l1"), (CHAT, "bypass"))
    }
    assert counted == {"miss": 1, "hit-l1": 2, "bypass": 1}
    assert metric(front, 'setpoint_gateway_requests_total{endpoint="other",outcome="bypass"}') == 1
    assert metric(front, "setpoint_gateway_response_seconds_count") == 5
    assert metric(front, 'setpoint_tier_hits_total{tier="memory"}') == 2
    assert metric(front, 'setpoint_tier_entries{tier="memory"}') == 1
    assert metric(front, 'setpoint_tier_failed_total{tier="memory"}') == 0
