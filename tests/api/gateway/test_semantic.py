"""Answers by meaning in the gateway: what is served, what is verified, and the thresholds that follow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.api.gateway.conftest import Backend, ask, configured, metric, outcome, send, until

ONE, SAME = "How do I reset my password?", "How can I reset my password?"  # 0.984 by the default embedder
THERE, BACK = (
    "How many EUR are 10 USD to EUR?",
    "How many USD are 10 EUR to USD?",
)  # near, and the guard tells them apart
PLAIN = """
[tiers.semantic]
verified_share = 0.0
lowest_threshold = 0.8
highest_threshold = 0.995
[namespaces.exact]
tiers = ["memory"]
[namespaces.strict]
similarity_threshold = 0.99
[namespaces.never]
tiers = []
"""
VERIFIED = """
[tiers.semantic]
verified_share = 1.0
same_answer = "exact"
[namespaces.lenient]
wrong_hit_budget = 1.0
"""


def asked(question: str, system: str = "Be brief.") -> dict[str, Any]:
    messages = [{"role": "system", "content": system}, {"role": "user", "content": question}]
    return {"model": "m", "temperature": 0, "messages": messages}


@pytest.fixture(scope="module")
def plain_gateway(backend: Backend, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with configured(backend.address, tmp_path_factory.mktemp("plain") / "gateway.toml", PLAIN) as address:
        yield address


@pytest.fixture
def plain(plain_gateway: str, backend: Backend) -> str:
    for namespace in ("default", "exact", "strict", "never"):
        send("POST", f"{plain_gateway}/v1/cache/invalidate", json={"namespace": namespace})
    backend.calls.clear()
    return plain_gateway


@pytest.fixture
def verified(backend: Backend, tmp_path: Path) -> Iterator[str]:
    with configured(backend.address, tmp_path / "gateway.toml", VERIFIED) as address:
        backend.calls.clear()
        yield address


def test_a_question_that_means_the_same_gets_the_answer(plain: str, backend: Backend) -> None:
    first = ask(plain, asked(ONE))
    again = ask(plain, asked(SAME))
    assert (outcome(first), outcome(again)) == ("miss", "hit-l3")
    assert again.content == first.content
    assert 0.9 < float(again.headers["x-setpoint-similarity"]) < 1.0
    assert int(again.headers["age"]) >= 0
    streamed = ask(plain, asked(SAME) | {"stream": True})
    assert outcome(streamed) == "hit-l3"
    assert streamed.text.endswith("data: [DONE]\n\n")
    equal = ask(plain, asked(ONE))
    assert (outcome(equal), "x-setpoint-similarity" in equal.headers) == ("hit-l1", False)
    assert len(backend.calls) == 1


def test_what_differs_does_not(plain: str) -> None:
    """By the guard, by the context, by the namespace, by how sure the client wants to be."""
    ask(plain, asked(THERE))
    assert outcome(ask(plain, asked(BACK))) == "miss"
    ask(plain, asked(ONE))
    assert outcome(ask(plain, asked(SAME, system="Be long."))) == "miss"
    assert outcome(ask(plain, asked(SAME), x_setpoint_namespace="other")) == "miss"
    assert outcome(ask(plain, asked(SAME), cache_control="no-cache")) == "miss"


def test_namespaces_without_the_tier_or_with_a_threshold_of_their_own(plain: str, backend: Backend) -> None:
    for namespace, expected in (("exact", "miss"), ("strict", "miss"), ("never", "bypass")):
        ask(plain, asked(ONE), x_setpoint_namespace=namespace)
        assert outcome(ask(plain, asked(SAME), x_setpoint_namespace=namespace)) == expected
    told = [outcome(ask(plain, asked(ONE), x_setpoint_namespace=name)) for name in ("exact", "strict", "never")]
    assert told == ["hit-l1", "hit-l1", "bypass"]
    assert len(backend.calls) == 2 + 2 + 3


def test_thresholds_are_read_and_set_within_the_operators_range(plain: str) -> None:
    url = f"{plain}/v1/cache/settings"
    began = send("GET", url).json()
    assert began["tiers"]["semantic"]["similarity_threshold"] == 0.9
    assert "similarity_threshold" not in began["tiers"]["memory"]
    assert began["partitions"] == []
    wish = {
        "semantic": {"similarity_threshold": 0.1},
        "partitions": [
            {"namespace": "strict", "similarity_threshold": 0.95},
            {"namespace": "strict", "tenant": "acme", "similarity_threshold": None},
        ],
    }
    taken = send("PUT", url, json=wish).json()
    partitions = [
        {"tenant": "acme", "namespace": "strict", "similarity_threshold": None},
        {"tenant": "default", "namespace": "strict", "similarity_threshold": 0.95},
    ]
    assert taken == {"tiers": {"semantic": {"similarity_threshold": 0.8}}, "partitions": partitions}
    ask(plain, asked(ONE), x_setpoint_namespace="strict")
    assert outcome(ask(plain, asked(SAME), x_setpoint_namespace="strict")) == "hit-l3"
    whole = send("GET", url).json()
    assert whole["partitions"] == partitions
    knobs = {name: value for name, value in whole["tiers"]["semantic"].items() if name != "similarity_threshold"}
    back = {"semantic": knobs | {"similarity_threshold": 0.9}}
    assert send("PUT", url, json=back).json()["tiers"]["semantic"] == began["tiers"]["semantic"]
    other = {"partitions": [{"namespace": "strict", "similarity_threshold": 1.0}]}
    highest = {"tenant": "default", "namespace": "strict", "similarity_threshold": 0.995}
    assert send("PUT", url, json=other).json() == {"tiers": {}, "partitions": [highest]}


@pytest.mark.parametrize(
    "body",
    [
        {"memory": {"similarity_threshold": 0.9}},
        {"semantic": {"similarity_threshold": 1.1}},
        {"semantic": {"similarity_threshold": "high"}},
        {"semantic": {"similarity_threshold": 0.9, "cache_size": 1e7}},
        {"partitions": {}},
        {"partitions": [{"namespace": "a"}]},
        {"partitions": [{"namespace": "a/b", "similarity_threshold": 0.9}]},
        {"partitions": [{"namespace": "a", "similarity_threshold": True}]},
        {"partitions": [{"namespace": "a", "similarity_threshold": 0.9, "model": "m"}]},
    ],
)
def test_bad_thresholds_are_refused_and_change_nothing(plain_gateway: str, body: Any) -> None:
    url = f"{plain_gateway}/v1/cache/settings"
    before = send("GET", url).json()
    assert send("PUT", url, json={"semantic": {"similarity_threshold": 0.85}} | body).status_code == 400
    assert send("GET", url).json() == before


def test_verified_hits_are_counted_and_what_the_backend_says_is_kept(verified: str, backend: Backend) -> None:
    """The emulator answers each question differently, so every hit by meaning is wrong by the letter."""
    first = ask(verified, asked(ONE))
    assert ask(verified, asked(SAME)).content == first.content
    until(lambda: _partitions(verified))
    (told,) = _partitions(verified)
    assert (told["verified"], told["wrong"], told["wrong_share"]) == (1, 1, 1.0)
    assert told["wrong_share_95"][0] == pytest.approx(0.025)  # of one wrong hit of one: 0.025 ** (1 / 1)
    assert told["wrong_share_95"][1] == 1.0
    assert len(backend.calls) == 2
    own = ask(verified, asked(SAME))
    assert outcome(own) == "hit-l1"
    assert own.content != first.content
    assert metric(verified, 'setpoint_semantic_wrong_hits{namespace="default",tenant="default"}') == 1
    assert metric(verified, "setpoint_semantic_hits_total") == 1


def test_more_wrong_hits_than_the_budget_end_them_for_that_namespace(verified: str) -> None:
    """Twenty wrong of twenty: far above 2 %. Where the budget is all, they go on."""
    for namespace in ("default", "lenient"):
        for number in range(20):
            ask(verified, asked(ONE, f"{number}"), x_setpoint_namespace=namespace)
            assert outcome(ask(verified, asked(SAME, f"{number}"), x_setpoint_namespace=namespace)) == "hit-l3"
            until(lambda: _verified(verified, namespace) == number + 1)  # noqa: B023 - it is asked at once
    thresholds = {one["namespace"]: one["similarity_threshold"] for one in _partitions(verified)}
    assert thresholds["default"] is None
    assert thresholds["lenient"] >= 0.9
    for namespace, expected in (("default", "miss"), ("lenient", "hit-l3")):
        ask(verified, asked(ONE, "new"), x_setpoint_namespace=namespace)
        assert outcome(ask(verified, asked(SAME, "new"), x_setpoint_namespace=namespace)) == expected


def _partitions(address: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = send("GET", f"{address}/v1/cache/stats").json()["semantic"]["partitions"]
    return found


def _verified(address: str, namespace: str) -> int:
    return sum(one["verified"] for one in _partitions(address) if one["namespace"] == namespace)
