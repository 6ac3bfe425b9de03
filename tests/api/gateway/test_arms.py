"""The arms of the tuned tier: the endpoint that they are set and read by, and the setting that turns it on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from api.gateway.building import built
from api.gateway.config import load_serve_config
from api.gateway.settings import KeyHolder, Role, key_hash
from caches.place import Place
from caches.policies.settings import LruK
from caches.tiers.memory import MemoryTier
from tests.api.gateway.conftest import SPACE, Backend, ask, chat, configured, outcome, send
from tests.api.gateway.tuned import ARMS, DEFAULT, HALVES, QUIET, Tuned, tuned
from tuner.live.arms_document import ArmsDocument
from tuner.live.salt_document import SaltDocument

SALT, POLICIES = f"{ARMS}/salt", f"{ARMS}/eviction-policies"


@pytest.fixture
def one(backend: Backend) -> Iterator[Tuned]:
    backend.calls.clear()
    with tuned(backend.address) as made:
        yield made


def test_what_is_told_is_one_document(one: Tuned) -> None:
    before = time.time()
    response = one.put(fence=4)
    assert response.status_code == 200
    assert response.headers["cache-control"] == "no-store"
    document = ArmsDocument.model_validate_json(response.content)
    assert document.space() == SPACE
    assert document.fence == 4
    assert before - 60 < document.began_seconds <= before <= document.at_seconds <= time.time()
    assert one.told() | {"at_seconds": 0} == response.json() | {"at_seconds": 0}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"fence": -1}, "fence"),
        ({"fence": 1.0}, "fence"),
        ({"fence": None}, "fence"),
        ({"more": 1}, "more"),
        ({"plan": None}, "plan"),
        ({"plan": {"split": HALVES, "control": DEFAULT}}, "plan.treatment"),
        ({"plan": {"split": {"salt": "s", "treatment": 1.1}, "control": DEFAULT, "treatment": DEFAULT}}, "plan.split"),
        ({"plan": {"split": {"salt": "s" * 201, "treatment": 1}, "control": DEFAULT, "treatment": DEFAULT}}, "plan.sp"),
        ({"plan": {"split": HALVES, "control": DEFAULT | {"ttl_seconds": "1"}, "treatment": DEFAULT}}, "plan.control"),
        ({"plan": {"split": HALVES, "control": DEFAULT, "treatment": DEFAULT | {"more": 1}}}, "plan.treatment.more"),
        ({"plan": {"split": HALVES, "control": DEFAULT, "treatment": {"ttl_seconds": 9}}}, "plan.treatment.cache_size"),
        (
            {"plan": {"split": HALVES, "control": DEFAULT | {"eviction_policy": 1}, "treatment": DEFAULT}},
            "plan.control",
        ),
        (
            {"plan": {"split": HALVES, "control": DEFAULT, "treatment": DEFAULT | {"eviction_policy": "mru"}}},
            "plan.treatment.eviction_policy",
        ),
    ],
)
def test_what_is_not_understood_changes_nothing(one: Tuned, change: dict[str, Any], named: str) -> None:
    one.put(fence=3)
    before = one.told()
    refused = one.put(**({"fence": 9} | change))
    assert refused.status_code == 400
    assert refused.json()["error"]["param"].startswith(named)
    assert one.told() | {"at_seconds": 0} == before | {"at_seconds": 0}


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'{"plan": NaN, "fence": 1}'])
def test_what_is_no_object_is_refused(one: Tuned, body: bytes) -> None:
    assert send("PUT", one.address + ARMS, content=body).status_code == 400


def test_an_older_fence_is_a_conflict(one: Tuned) -> None:
    assert one.put(fence=5).status_code == 200
    refused = one.put(fence=4)
    assert refused.status_code == 409
    assert refused.json()["error"]["code"] == "fenced"
    assert "got 4, expected at least 5" in refused.json()["error"]["message"]
    assert one.told()["fence"] == 5


def test_viewers_read_and_operators_act(backend: Backend) -> None:
    keys = {key_hash(role.value): KeyHolder("acme", role) for role in Role}
    with tuned(backend.address, keys=keys) as one:
        for who, reads, acts in (("viewer", 200, 403), ("operator", 200, 200), ("client", 403, 403), ("x", 403, 403)):
            headers = {"authorization": f"Bearer {who}"}
            assert send("GET", one.address + ARMS, headers=headers).status_code == reads
            wish = {"plan": {"split": HALVES, "control": DEFAULT, "treatment": DEFAULT}, "fence": 1}
            assert send("PUT", one.address + ARMS, json=wish, headers=headers).status_code == acts


def test_a_salt_is_found_by_what_was_asked_for(backend: Backend) -> None:
    """Of namespaces that use the tuned tier. Only operators may have that looked for."""
    keys = {key_hash(role.value): KeyHolder("acme", role) for role in Role}
    wish = {"seed": 3, "shares": [0.05, 0.5]}
    with tuned(backend.address, below=Place(MemoryTier(SPACE, "below")), keys=keys) as one:
        operator = {"authorization": "Bearer operator"}
        for namespace in ("other", "default"):
            response = send("POST", one.address + SALT, json=wish, headers=operator)
            assert (response.status_code, response.headers["cache-control"]) == (200, "no-store")
            assert response.json() == {"salt": None, "imbalance": None, "keys": 0}
            for number in range(5):
                body = chat(f"{number}") | {"x_setpoint_namespace": namespace}
                headers = {"authorization": "Bearer client", "x-setpoint-namespace": namespace}
                assert send("POST", f"{one.address}/v1/chat/completions", json=body, headers=headers).status_code == 200
        found = SaltDocument.model_validate_json(send("POST", one.address + SALT, json=wish, headers=operator).content)
        assert found.keys == 5
        assert found.salt is not None
        for who in ("viewer", "client", "x"):
            headers = {"authorization": f"Bearer {who}"}
            assert send("POST", one.address + SALT, json=wish, headers=headers).status_code == 403


@pytest.mark.parametrize(
    ("wish", "named"),
    [
        ({"seed": 1}, "shares"),
        ({"seed": 1, "shares": []}, "shares"),
        ({"seed": 1, "shares": [0.5, 1.0]}, "shares.1"),
        ({"seed": -1, "shares": [0.5]}, "seed"),
        ({"seed": 1.5, "shares": [0.5]}, "seed"),
        ({"seed": 1, "shares": [0.5], "more": 1}, "more"),
    ],
)
def test_a_wish_for_a_salt_that_is_not_understood_is_refused(one: Tuned, wish: dict[str, Any], named: str) -> None:
    refused = send("POST", one.address + SALT, json=wish)
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == named


def test_where_nothing_is_tuned_there_are_no_arms(backend: Backend, tmp_path: Path) -> None:
    with configured(backend.address, tmp_path / "gateway.toml", QUIET) as address:
        for method, path in (("GET", ARMS), ("PUT", ARMS), ("POST", SALT), ("GET", POLICIES)):
            refused = send(method, address + path)
            assert refused.status_code == 404
            assert "[tuning] enabled is false" in refused.json()["error"]["message"]
        assert "setpoint_arm" not in send("GET", f"{address}/metrics").text


def test_the_settings_file_turns_it_on(backend: Backend, tmp_path: Path) -> None:
    text = f"""
[tiers.memory]
cache_size = 3_000_000
ttl_seconds = 60
lowest_ttl_seconds = 10
highest_ttl_seconds = 600
{QUIET}[tuning]
enabled = true
"""
    with configured(backend.address, tmp_path / "gateway.toml", text) as address:
        document = ArmsDocument.model_validate_json(send("GET", address + ARMS).content)
        knobs = {knob.name: (knob.low, knob.default, knob.high) for knob in document.space().knobs}
        assert knobs["ttl_seconds"] == (10.0, 60.0, 600.0)
        assert knobs["cache_size"][1:] == (3e6, 12e6)
        assert [outcome(ask(address)) for _ in range(2)] == ["miss", "hit-l1"]
        settings = send("GET", f"{address}/v1/cache/settings").json()["tiers"]["memory"]
        assert settings == {"cache_size": 3e6, "ttl_seconds": 60.0, "warmup_ratio": 0.0, "eviction_policy": "lru"}


def test_what_an_operator_sets_by_hand_counts_for_both_arms(one: Tuned) -> None:
    one.put()
    by_hand = {"cache_size": 5e6, "ttl_seconds": 30.0, "warmup_ratio": 0.25}
    told = send("PUT", f"{one.address}/v1/cache/settings", json={"memory": by_hand}).json()
    assert told == {"tiers": {"memory": by_hand | {"eviction_policy": "lru"}}}
    assert one.told()["plan"] == {"split": HALVES, "control": by_hand, "treatment": by_hand}


def test_each_arm_is_told_its_eviction_policy_and_says_it(one: Tuned) -> None:
    """Where none is named none is told, so a daemon that knows of none reads what it always read."""
    assert one.put().status_code == 200
    assert [one.told()["plan"][arm] for arm in ("control", "treatment")] == [DEFAULT, DEFAULT]
    assert one.told()["binding"] == {"control": DEFAULT, "treatment": DEFAULT}
    other = DEFAULT | {"eviction_policy": "s3-fifo"}
    plan = {"split": HALVES, "control": DEFAULT, "treatment": other}
    assert one.put(plan=plan).json()["plan"] == plan
    assert one.told()["binding"] == {"control": DEFAULT, "treatment": other}
    assert [tier.eviction_policy for tier in one.tier.tiers] == ["lru", "s3-fifo"]
    for number in range(20):
        ask(one.address, chat(f"question {number}"))
    before = one.sum_of("entries")
    assert one.put(plan=plan | {"control": DEFAULT | {"eviction_policy": "lfu"}, "treatment": DEFAULT}).json()
    assert [tier.eviction_policy for tier in one.tier.tiers] == ["lfu", "lru"]
    assert one.sum_of("entries") == before == 20


def test_only_what_the_operator_offers_can_be_chosen(backend: Backend, tmp_path: Path) -> None:
    text = f'[tiers.memory]\neviction_policies = ["lru", "sieve"]\n{QUIET}[tuning]\nenabled = true\n'
    with configured(backend.address, tmp_path / "gateway.toml", text) as address:
        wish = {"plan": {"split": HALVES, "control": DEFAULT, "treatment": DEFAULT}, "fence": 1}
        for name, status in (("sieve", 200), ("lfu", 400)):
            wish["plan"]["treatment"] = DEFAULT | {"eviction_policy": name}
            response = send("PUT", address + ARMS, json=wish)
            assert response.status_code == status
        assert response.json()["error"]["param"] == "plan.treatment.eviction_policy"
        assert "got 'lfu', expected of lru, sieve" in response.json()["error"]["message"]
        assert send("GET", address + ARMS).json()["plan"]["treatment"]["eviction_policy"] == "sieve"


def test_what_can_be_chosen_is_told_and_what_it_was_made_with(backend: Backend, tmp_path: Path) -> None:
    """That stays so, whatever decides now."""
    offered = 'eviction_policy = "sieve"\neviction_policies = ["lru", "sieve"]'
    text = f"[tiers.memory]\n{offered}\n{QUIET}[tuning]\nenabled = true\n"
    with configured(backend.address, tmp_path / "gateway.toml", text) as address:
        response = send("GET", address + POLICIES)
        assert (response.status_code, response.headers["cache-control"]) == (200, "no-store")
        assert response.json() == {"made_with": "sieve", "offered": ["sieve", "lru"]}
        other = DEFAULT | {"eviction_policy": "lru"}
        plan = {"split": HALVES, "control": other, "treatment": other}
        assert send("PUT", address + ARMS, json={"plan": plan, "fence": 1}).status_code == 200
        assert send("GET", address + POLICIES).json() == response.json()


def test_a_policy_that_no_plan_can_name_is_not_told(backend: Backend) -> None:
    """One with parameters of its own has no name."""
    with tuned(backend.address) as one:
        one.tier.made_with = LruK(7)
        assert send("GET", one.address + POLICIES).json() == {"made_with": None, "offered": []}


def test_viewers_and_operators_read_what_can_be_chosen(backend: Backend) -> None:
    keys = {key_hash(role.value): KeyHolder("acme", role) for role in Role}
    with tuned(backend.address, keys=keys) as one:
        for who, status in (("viewer", 200), ("operator", 200), ("client", 403), ("x", 403)):
            response = send("GET", one.address + POLICIES, headers={"authorization": f"Bearer {who}"})
            assert response.status_code == status, who


def test_an_invalidation_reaches_both_arms(one: Tuned) -> None:
    one.put()
    for number in range(12):
        ask(one.address, chat(f"question {number}"))
    gone = send("POST", f"{one.address}/v1/cache/invalidate", json={"namespace": "default"}).json()["tiers"]
    assert gone == {"memory": 12}
    assert one.sum_of("entries") == 0


def test_without_tuning_the_stack_is_as_it_was() -> None:
    made = built(load_serve_config(None, {"gateway.upstream": "http://127.0.0.1:8100"}), "test", {})
    assert made.service.tuned is None
    assert type(made.places["memory"].tier) is MemoryTier
