"""Invalidation over HTTP: by namespace, model, tag and key, and what it would remove."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from caches.place import Place
from caches.tiers.memory import MemoryTier
from caches.tiers.redis_connection import connect
from caches.tiers.redis_index import RedisIndexOptions, RedisIndexTier
from tests.api.gateway.conftest import SPACE, Backend, ask, chat, gateway, outcome, send
from tests.servers import free_port, patient


def invalidate(front: str, **asked: Any) -> Any:
    answer = send("POST", f"{front}/v1/cache/invalidate", json={"namespace": "default", **asked})
    assert answer.status_code == 200, answer.text
    return answer.json()["tiers"]


@pytest.fixture
def over_redis(backend: Backend, redis_server: str) -> Iterator[str]:
    tier = RedisIndexTier(patient(redis_server), SPACE, options=RedisIndexOptions(prefix=f"test-{uuid.uuid4().hex}"))
    with gateway(backend.address, places=[Place(MemoryTier(SPACE)), Place(tier, slow_seconds=10.0)]) as address:
        yield address


def test_by_model_and_tag_in_every_tier_and_counted_before(over_redis: str) -> None:
    ask(over_redis, chat("1"), x_setpoint_tags="policy-v3, docs-2024")
    ask(over_redis, chat("2"), x_setpoint_tags="policy-v3")
    ask(over_redis, chat("3"))
    ask(over_redis, chat("4") | {"model": "n"}, x_setpoint_tags="docs-2024")
    ask(over_redis, chat("5"), x_setpoint_tags="policy-v3", x_setpoint_namespace="other")
    for asked, number in (
        ({"tag": "policy-v"}, 0),
        ({"model": "n", "tag": "policy-v3"}, 0),
        ({"model": "m", "tag": "docs-2024"}, 1),
        ({"tag": "policy-v3"}, 1),
        ({"model": "n"}, 1),
        ({}, 1),
    ):
        assert invalidate(over_redis, **asked, dry_run=True) == {"memory": number, "redis": number}, asked
        assert invalidate(over_redis, **asked) == {"memory": number, "redis": number}, asked
        assert invalidate(over_redis, **asked) == {"memory": 0, "redis": 0}, asked
    assert outcome(ask(over_redis, chat("5"), x_setpoint_namespace="other")) == "hit-l1"


def test_by_the_key_that_an_answer_tells(front: str) -> None:
    first, again = ask(front, chat("1")), ask(front, chat("1"), x_setpoint_tags="a")
    streamed = ask(front, chat("1", stream=True))
    other = ask(front, chat("2", stream=True))
    key = first.headers["x-setpoint-key"]
    assert again.headers["x-setpoint-key"] == streamed.headers["x-setpoint-key"] == key
    assert [outcome(one) for one in (first, again, streamed, other)] == ["miss", "hit-l1", "hit-l1", "miss"]
    assert invalidate(front, key=key, dry_run=True) == {"memory": 1}
    assert invalidate(front, key=key, namespace="other") == {"memory": 0}
    assert invalidate(front, key=key) == {"memory": 1}
    assert invalidate(front, key=key) == {"memory": 0}
    assert invalidate(front, key=other.headers["x-setpoint-key"], dry_run=True) == {"memory": 1}


def test_it_says_what_was_asked_for(front: str) -> None:
    told = send("POST", f"{front}/v1/cache/invalidate", json={"namespace": "a", "tag": "b", "dry_run": True}).json()
    assert told == {"tenant": "default", "namespace": "a", "tag": "b", "dry_run": True, "tiers": {"memory": 0}}


def test_the_tags_are_those_of_the_request_that_stored_it(front: str) -> None:
    ask(front, x_setpoint_tags="a")
    assert outcome(ask(front, x_setpoint_tags="b")) == "hit-l1"
    assert invalidate(front, tag="b") == {"memory": 0}
    assert invalidate(front, tag="a") == {"memory": 1}


def test_a_tier_that_cannot_be_reached_is_null_with_503(backend: Backend) -> None:
    gone = RedisIndexTier(connect(f"redis://127.0.0.1:{free_port()}/0"), SPACE)
    with gateway(backend.address, places=[Place(MemoryTier(SPACE)), Place(gone, slow_seconds=10.0)]) as front:
        ask(front)
        for dry_run in (True, False):
            body = {"namespace": "default", "dry_run": dry_run}
            answer = send("POST", f"{front}/v1/cache/invalidate", json=body)
            assert answer.status_code == 503
            assert answer.json() == {"tenant": "default", **body, "tiers": {"memory": 1, "redis": None}}


KEY = "0" * 64


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"model": "m"}, "namespace"),
        ({"namespace": None}, "namespace"),
        ({"namespace": "a", "model": ""}, "model"),
        ({"namespace": "a", "model": None}, "model"),
        ({"namespace": "a", "tag": 1}, "tag"),
        ({"namespace": "a", "tag": ""}, "tag"),
        ({"namespace": "a", "tag": "a b"}, "tag"),
        ({"namespace": "a", "key": KEY[1:]}, "key"),
        ({"namespace": "a", "key": "x" * 64}, "key"),
        ({"namespace": "a", "key": KEY, "tag": "b"}, "key"),
        ({"namespace": "a", "key": KEY, "model": "b"}, "key"),
        ({"namespace": "a", "dry_run": "yes"}, "dry_run"),
        ({"namespace": "a", "tags": ["b"]}, "tags"),
    ],
)
def test_what_is_not_understood_removes_nothing(front: str, body: Any, field: str) -> None:
    ask(front, x_setpoint_namespace="a")
    answer = send("POST", f"{front}/v1/cache/invalidate", json=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, field)
    assert invalidate(front, namespace="a", dry_run=True) == {"memory": 1}


@pytest.mark.parametrize("tags", ["a/b", "a,,b", "-a", "a" * 65, ", ".join("abcdefghi")])
def test_bad_tags_are_refused(backend: Backend, front: str, tags: str) -> None:
    answer = ask(front, x_setpoint_tags=tags)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "x-setpoint-tags")
    assert not backend.calls


def test_tags_stay_here_and_a_list_may_be_empty(backend: Backend, front: str) -> None:
    assert outcome(ask(front, x_setpoint_tags="")) == "miss"
    assert outcome(ask(front, chat("2"), x_setpoint_tags="a, b,c,d,e,f,g,h,a")) == "miss"
    assert not any(name.startswith("x-setpoint") for _, headers in backend.calls for name in headers)
    assert invalidate(front, tag="h") == {"memory": 1}
