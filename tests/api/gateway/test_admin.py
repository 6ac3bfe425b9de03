"""Looking after the cache: who may, what it holds, emptying a part of it, its settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from api.gateway.settings import key_hash
from tests.api.gateway.conftest import Backend, ask, chat, configured, gateway, metric, outcome, send, until

HALF = {"cache_size": 2e4, "ttl_seconds": 60.0, "warmup_ratio": 0.5}
LRU = {"eviction_policy": "lru"}


def test_stats(front: str) -> None:
    for _ in range(2):
        ask(front)
    (tier,) = send("GET", f"{front}/v1/cache/stats").json()["tiers"].items()
    name, told = tier
    assert name == "memory"
    assert (told["hits"], told["misses"], told["entries"], told["reached"]) == (1, 1, 1, True)
    assert told["hit_ratio"] == 0.5
    assert told["used_bytes"] > 0
    assert (told["failed"], told["skipped"], told["passed_by"]) == (0, 0, 0)


def test_invalidate_clears_one_namespace(front: str) -> None:
    for name in "ab":
        ask(front, x_setpoint_namespace=name)
    url = f"{front}/v1/cache/invalidate"
    dry = send("POST", url, json={"namespace": "a", "dry_run": True}).json()
    assert dry == {"tenant": "default", "namespace": "a", "dry_run": True, "tiers": {"memory": 1}}
    assert outcome(ask(front, x_setpoint_namespace="a")) == "hit-l1"
    assert send("POST", url, json={"namespace": "a"}).json()["tiers"] == {"memory": 1}
    assert send("POST", url, json={"namespace": "a", "tenant": "other"}).json()["tiers"] == {"memory": 0}
    assert [outcome(ask(front, x_setpoint_namespace=name)) for name in "ab"] == ["miss", "hit-l1"]


@pytest.mark.parametrize(
    "body", [{}, {"namespace": "a/b"}, {"namespace": 1}, {"namespace": "a", "dry_run": 1}, {"model": "m"}, []]
)
def test_bad_invalidations_are_refused(front: str, body: Any) -> None:
    assert send("POST", f"{front}/v1/cache/invalidate", json=body).status_code == 400


def test_settings_are_applied_and_read_back(front: str) -> None:
    url = f"{front}/v1/cache/settings"
    assert send("GET", url).json() == {
        "tiers": {"memory": {"cache_size": 1e7, "ttl_seconds": 3600.0, "warmup_ratio": 0.0, "eviction_policy": "lru"}}
    }
    assert send("PUT", url, json={"memory": HALF}).json() == {"tiers": {"memory": HALF | LRU}}
    assert send("GET", url).json() == {"tiers": {"memory": HALF | LRU}}
    for i in range(30):
        ask(front, chat(f"{i}"))
    assert send("GET", f"{front}/v1/cache/stats").json()["tiers"]["memory"]["used_bytes"] <= 2e4
    beyond = {"cache_size": 1e12, "ttl_seconds": 1e9, "warmup_ratio": 7}
    taken = {"cache_size": 1e8, "ttl_seconds": 86_400.0, "warmup_ratio": 1.0} | LRU
    assert send("PUT", url, json={"memory": beyond}).json() == {"tiers": {"memory": taken}}


def test_a_smaller_capacity_is_reached_by_housekeeping(front: str) -> None:
    """30 answers of more than 1 kB each do not fit into 20 kB."""
    for i in range(30):
        ask(front, chat(f"{i}", min_tokens=250))
    assert _used_bytes(front) > 30_000
    send("PUT", f"{front}/v1/cache/settings", json={"memory": HALF})
    until(lambda: _used_bytes(front) <= HALF["cache_size"])


def _used_bytes(front: str) -> float:
    return float(send("GET", f"{front}/v1/cache/stats").json()["tiers"]["memory"]["used_bytes"])


@pytest.mark.parametrize(
    "body",
    [
        {"redis": HALF},
        {"memory": {"ttl_seconds": 1}},
        {"memory": HALF | {"more": 1}},
        {"memory": HALF | {"ttl_seconds": "1"}},
        {"memory": HALF | {"ttl_seconds": True}},
        {"memory": 1},
        {"memory": {"eviction_policy": "sieve"}},
        {"memory": HALF | {"eviction_policy": "crystal-ball"}},
        {"memory": HALF | {"eviction_policy": ["sieve"]}},
    ],
)
def test_bad_settings_are_refused(front: str, body: Any) -> None:
    answer = send("PUT", f"{front}/v1/cache/settings", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"]


def test_the_eviction_policy_of_memory_is_chosen_and_told(backend: Backend, tmp_path: Path) -> None:
    """Without a name it is that of the settings file again."""
    text = f"""
[tiers.memory]
eviction_policy = "lfu"
eviction_policies = ["lfu", "sieve"]
[tiers.disk]
path = "{tmp_path / "answers.db"}"
[tiers.semantic]
enabled = false
"""
    with configured(backend.address, tmp_path / "gateway.toml", text) as front:
        url = f"{front}/v1/cache/settings"
        told = send("GET", url).json()["tiers"]
        assert told["memory"]["eviction_policy"] == "lfu"
        assert "eviction_policy" not in told["disk"]
        chosen = HALF | {"cache_size": 1e6, "eviction_policy": "sieve"}
        assert send("PUT", url, json={"memory": chosen}).json() == {"tiers": {"memory": chosen}}
        assert send("GET", url).json()["tiers"]["memory"] == chosen
        for field, body, says in (
            ("memory", {"memory": chosen | {"eviction_policy": "lru"}}, "got 'lru', expected of lfu, sieve"),
            ("disk", {"disk": chosen}, "expected none, only memory can change it"),
        ):
            refused = send("PUT", url, json=body)
            assert refused.status_code == 400
            assert refused.json()["error"]["param"] == f"{field}.eviction_policy"
            assert says in refused.json()["error"]["message"]
        assert send("GET", url).json()["tiers"]["memory"] == chosen
        for back in ({}, {"eviction_policy": None}):
            put = {name: value for name, value in chosen.items() if name != "eviction_policy"} | back
            assert send("PUT", url, json={"memory": put}).json()["tiers"]["memory"]["eviction_policy"] == "lfu"
            assert send("GET", url).json()["tiers"]["memory"]["eviction_policy"] == "lfu"


def test_with_an_admin_key_only_who_has_it(backend: Backend) -> None:
    tenants = {key_hash("user"): "acme", key_hash("root"): "acme"}
    with gateway(backend.address, tenants=tenants, admin_key_hash=key_hash("root")) as front:
        ask(front, authorization="Bearer user")
        url = f"{front}/v1/cache/stats"
        for headers in ({}, {"authorization": "Bearer user"}):
            refused = send("GET", url, headers=headers)
            assert refused.status_code == 403
            assert "error" in refused.json()
        root = {"authorization": "Bearer root"}
        assert send("GET", url, headers=root).status_code == 200
        told = send("POST", f"{front}/v1/cache/invalidate", headers=root, json={"namespace": "default"}).json()
        assert (told["tenant"], told["tiers"]) == ("acme", {"memory": 1})


def test_without_one_no_page_in_a_browser_may(front: str) -> None:
    headers = {"origin": "https://somewhere.example"}
    body = {"namespace": "default"}
    assert send("POST", f"{front}/v1/cache/invalidate", headers=headers, json=body).status_code == 403


def test_without_one_no_other_machine_may(front: str) -> None:
    """The server believes a proxy on its own machine that it forwards for somebody."""
    assert send("GET", f"{front}/v1/cache/stats", headers={"x-forwarded-for": "203.0.113.9"}).status_code == 403


def test_what_a_tier_did_not_take_in_is_counted(backend: Backend, tmp_path: Path) -> None:
    rules = "[tiers.memory]\nadmission_requests = 2\n[tiers.semantic]\nenabled = false\n"
    with configured(backend.address, tmp_path / "gateway.toml", rules) as address:
        assert [outcome(ask(address, chat("twice"))) for _ in range(3)] == ["miss", "miss", "hit-l1"]
        assert outcome(ask(address, chat("once"))) == "miss"
        assert send("GET", f"{address}/v1/cache/stats").json()["tiers"]["memory"]["kept_out"] == 2
        assert metric(address, 'setpoint_tier_kept_out_total{tier="memory"}') == 2
