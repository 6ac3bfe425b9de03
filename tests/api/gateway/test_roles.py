"""What each key opens: the API, the counts and settings to read, or all that changes them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from api.gateway.settings import KeyHolder, Role, key_hash
from tests.api.gateway.conftest import Backend, ask, gateway, send

KEYS = {key_hash(role.value): KeyHolder("acme", role) for role in Role}
KNOBS = {"cache_size": 1e7, "ttl_seconds": 60, "warmup_ratio": 0}
API, READ, CHANGE = "API", "read", "change"
CALLS = [
    (API, "GET", "/v1/models", None),
    (READ, "GET", "/v1/cache/stats", None),
    (READ, "GET", "/v1/cache/settings", None),
    (READ, "GET", "/metrics", None),
    (CHANGE, "PUT", "/v1/cache/settings", {"memory": KNOBS}),
    (CHANGE, "POST", "/v1/cache/invalidate", {"namespace": "default"}),
    (CHANGE, "POST", "/v1/cache/invalidate", {"namespace": "default", "dry_run": True}),
]
OPENS = {"client": {API}, "viewer": {READ}, "operator": {READ, CHANGE}, "nobody": set[str]()}


@pytest.fixture(scope="module")
def keyed(backend: Backend) -> Iterator[str]:
    with gateway(backend.address, keys=KEYS) as address:
        yield address


@pytest.mark.parametrize("who", OPENS)
def test_a_key_opens_what_its_role_says_and_nothing_else(keyed: str, who: str) -> None:
    for what, method, path, body in CALLS:
        told = send(method, keyed + path, json=body, headers={"authorization": f"Bearer {who}"})
        refusal = 401 if what == API else 403
        assert told.status_code == (200 if what in OPENS[who] else refusal), (method, path)
    assert ask(keyed, authorization=f"Bearer {who}").status_code == (200 if who == "client" else 401)
    assert send("GET", f"{keyed}/healthz").status_code == 200


def test_without_keys_for_it_the_cache_is_for_this_machine_and_metrics_for_all(backend: Backend) -> None:
    with gateway(backend.address, keys={key_hash("client"): KeyHolder()}) as address:
        elsewhere = {"x-forwarded-for": "203.0.113.9"}
        assert send("GET", f"{address}/v1/cache/stats").status_code == 200
        assert send("GET", f"{address}/v1/cache/stats", headers=elsewhere).status_code == 403
        assert send("GET", f"{address}/metrics", headers=elsewhere).status_code == 200


def test_without_clients_keys_everybody_is_a_client(backend: Backend) -> None:
    with gateway(backend.address, keys={key_hash("viewer"): KeyHolder(role=Role.VIEWER)}) as address:
        assert ask(address).status_code == 200
        assert send("GET", f"{address}/metrics").status_code == 403
