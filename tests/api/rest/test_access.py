"""Keys, roles, rates, sessions, the audit log, and what a server without keys lets in."""

from __future__ import annotations

from pathlib import Path

import pytest

from api.access.audit import Audit
from api.access.rates import Rate
from api.access.sessions import MOST, Sessions
from api.gateway.settings import key_hash
from caches.errors import InputError
from tests.api.rest.conftest import ADMIN, KEYS, OPERATOR, VIEWER, Place, Placing
from tests.api.rest.history import CACHE
from tuner.api_sections import ApiConfig, ApiKeyConfig, ApiRole, is_loopback

WISHES = f"/v1/caches/{CACHE}/wishes"
READS = ("/v1/caches", "/v1/me", "/v1/policies", "/openapi.json")


# --- roles ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", READS)
async def test_every_role_reads_and_nobody_else(keyed: Place, path: str) -> None:
    for key in (VIEWER, OPERATOR, ADMIN):
        async with keyed.client(key) as client:
            assert (await client.get(path)).status_code == 200
    for key in (None, "a-key-of-nobody", VIEWER[:-1], VIEWER + "x"):
        async with keyed.client(key) as client:
            answer = await client.get(path)
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, 'Bearer realm="setpoint"')


@pytest.mark.parametrize(
    ("kind", "allowed"),
    [
        ("pause", (OPERATOR, ADMIN)),
        ("resume", (OPERATOR, ADMIN)),
        ("kill", (OPERATOR, ADMIN)),
        ("stop", (OPERATOR, ADMIN)),
        ("roll_back", (OPERATOR, ADMIN)),
        ("promote", (ADMIN,)),
    ],
)
async def test_who_may_ask_for_what(keyed: Place, kind: str, allowed: tuple[str, ...]) -> None:
    for key in (VIEWER, OPERATOR, ADMIN):
        async with keyed.client(key) as client:
            answer = await client.post(WISHES, json={"kind": kind})
        assert answer.status_code == (202 if key in allowed else 403), kind


async def test_releasing_is_an_admins(keyed: Place) -> None:
    """Here there is nothing to release, which only who may ask is told."""
    for key, status in ((OPERATOR, 403), (ADMIN, 409)):
        async with keyed.client(key) as client:
            assert (await client.post(WISHES, json={"kind": "release"})).status_code == status


async def test_starting_and_stopping_are_an_operators(keyed: Place) -> None:
    async with keyed.client(VIEWER) as client:
        assert (await client.post(f"/v1/caches/{CACHE}/experiments", json={"challenger": 4})).status_code == 403
        assert (await client.post("/v1/experiments/2026-11-30-a/stop", json={})).status_code == 403


def test_roles_cover_those_before_them() -> None:
    covered = {role: [other for other in ApiRole if role.covers(other)] for role in ApiRole}
    assert covered[ApiRole.VIEWER] == [ApiRole.VIEWER]
    assert covered[ApiRole.OPERATOR] == [ApiRole.VIEWER, ApiRole.OPERATOR]
    assert covered[ApiRole.ADMIN] == list(ApiRole)


# --- without keys -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "address", "status"),
    [
        ("http://127.0.0.1:8090", "127.0.0.1", 200),
        ("http://localhost", "127.0.0.1", 200),
        ("http://[::1]:8090", "::1", 200),
        ("http://127.0.0.1", "10.0.0.7", 403),  # from elsewhere
        ("http://evil.example", "127.0.0.1", 403),  # a name that was made to mean 127.0.0.1
        ("http://10.0.0.5", "127.0.0.1", 403),
    ],
)
async def test_without_keys_only_this_machine_gets_in(place: Place, url: str, address: str, status: int) -> None:
    async with place.client(url=url, address=address) as client:
        assert (await client.get("/v1/caches")).status_code == status
        assert (await client.get("/healthz")).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"origin": "http://127.0.0.1:9999"},
    ],
)
async def test_pages_of_other_sites_cannot_ask(place: Place, headers: dict[str, str]) -> None:
    async with place.client(**headers) as client:
        answer = await client.post(WISHES, json={"kind": "kill"})
    assert answer.status_code == 403


async def test_nothing_is_said_to_other_sites(place: Place) -> None:
    async with place.client(origin="http://evil.example") as client:
        answer = await client.get("/v1/caches")
    assert "access-control-allow-origin" not in answer.headers
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_another_address_needs_keys() -> None:
    for host in ("0.0.0.0", "::", "10.1.2.3", "gateway.example"):
        with pytest.raises(ValueError, match="keys"):
            ApiConfig(host=host)
        assert ApiConfig(host=host, keys=KEYS).host == host
    for host in ("127.0.0.1", "::1", "localhost", "127.8.8.8"):
        assert is_loopback(host)
        assert ApiConfig(host=host).host == host


def test_keys_are_hashes_named_once() -> None:
    with pytest.raises(ValueError, match="SHA-256"):
        ApiKeyConfig(sha256="the-key-itself", name="ana")
    one = ApiKeyConfig(sha256=key_hash("a key"), name="ana")
    assert one.role is ApiRole.VIEWER
    with pytest.raises(ValueError, match="once"):
        ApiConfig(keys=(one, one))


# --- rates ------------------------------------------------------------------------------------------------------------


def test_a_rate_lets_a_minutes_worth_through_and_then_one_at_a_time() -> None:
    """6 a minute are one every 10 s."""
    now = [100.0]
    rate = Rate(6, lambda: now[0])
    assert [rate.take("a") for _ in range(7)] == [None] * 6 + [10]
    assert rate.take("b") is None
    now[0] += 9.5
    assert rate.take("a") == 1
    now[0] += 0.5
    assert rate.wait("a") is None
    assert rate.take("a") is None
    assert rate.take("a") == 10
    now[0] -= 50.0  # a clock that goes back gives nothing and takes nothing
    assert rate.take("a") == 10


async def test_too_many_requests_of_one_key(placing: Placing) -> None:
    place = placing(keys=KEYS, reads_per_minute=3, writes_per_minute=1)
    async with place.client(OPERATOR) as client:
        statuses = [(await client.get("/v1/caches")).status_code for _ in range(4)]
        limited = await client.get("/v1/caches")
        writes = [(await client.post(WISHES, json={"kind": "pause"})).status_code for _ in range(2)]
        async with place.client(VIEWER) as other:
            assert (await other.get("/v1/caches")).status_code == 200
        place.now[0] += 20.0
        assert (await client.get("/v1/caches")).status_code == 200
    assert statuses == [200, 200, 200, 429]
    assert writes == [202, 429]
    assert (limited.headers["content-type"], limited.headers["retry-after"]) == ("application/problem+json", "20")


async def test_too_many_wrong_keys_of_one_address(placing: Placing) -> None:
    """Then even the right one has to wait, from there; elsewhere it has not."""
    place = placing(keys=KEYS, failures_per_minute=3)
    async with place.client("wrong", address="10.0.0.9") as client:
        statuses = [(await client.get("/v1/caches")).status_code for _ in range(4)]
    async with place.client(ADMIN, address="10.0.0.9") as client:
        assert (await client.get("/v1/caches")).status_code == 429
    async with place.client(ADMIN, address="10.0.0.8") as client:
        assert (await client.get("/v1/caches")).status_code == 200
    assert statuses == [401, 401, 401, 429]


# --- sessions and the audit log ---------------------------------------------------------------------------------------


def test_sessions_end_by_time_by_wish_and_by_number() -> None:
    now = [0.0]
    sessions = Sessions(60.0, lambda: now[0])
    first, second = sessions.begin("key"), sessions.begin("key")
    found = sessions.find(first)
    assert found is not None
    assert found.sha256 == key_hash("key")
    assert sessions.find("made up") is None
    sessions.end(second)
    assert sessions.find(second) is None
    now[0] = 59.9
    assert sessions.find(first) == found
    now[0] = 60.0
    assert sessions.find(first) is None
    oldest = sessions.begin("key")
    for _ in range(MOST):
        sessions.begin("key")
    assert sessions.find(oldest) is None


async def test_what_is_denied_is_noted_down(placing: Placing) -> None:
    place = placing(keys=KEYS)
    async with place.client("wrong", address="10.0.0.9") as client:
        await client.get("/v1/caches")
    async with place.client(VIEWER) as client:
        await client.post(WISHES, json={"kind": "kill"})
    at = place.now[0]
    assert place.lines() == [
        {
            "at_seconds": at,
            "event": "denied",
            "who": "unknown",
            "address": "10.0.0.9",
            "status": 401,
            "method": "GET",
            "path": "/v1/caches",
        },
        {
            "at_seconds": at,
            "event": "denied",
            "who": "vera",
            "address": "127.0.0.1",
            "status": 403,
            "method": "POST",
            "path": WISHES,
        },
    ]
    assert (place.audit.stat().st_mode & 0o777) == 0o600


def test_an_audit_log_is_added_to(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "audit.jsonl"
    for _ in range(2):
        audit = Audit(path, lambda: 1.0)
        audit.note("wish", "ana", "127.0.0.1")
        audit.close()
    assert path.read_text().count("\n") == 2


def test_an_audit_log_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="audit_log"):
        Audit(tmp_path, lambda: 1.0)
