"""A gateway in front of several backends."""

from __future__ import annotations

import httpx
import pytest

from api.gateway.settings import GatewaySettings
from api.gateway.upstream import upstream_client
from caches.errors import InputError
from tests.api.gateway.conftest import CHAT, emulated, gateway, until
from tests.servers import free_port


def ask(front: str, number: int) -> httpx.Response:
    body = {"model": "m", "temperature": 0, "messages": [{"role": "user", "content": f"question {number}"}]}
    return httpx.post(front + CHAT, json=body, timeout=20)


def told(front: str) -> dict[str, tuple[bool, int, int]]:
    """healthy, sent and failed by address."""
    stats = httpx.get(f"{front}/v1/cache/stats", timeout=20).json()
    return {one["upstream"]: (one["healthy"], one["sent"], one["failed"]) for one in stats["upstreams"]}


def test_misses_are_shared_out_and_hits_ask_none() -> None:
    with emulated() as one, emulated() as other, gateway((one.address, f"{other.address}/v1")) as front:
        for number in (*range(6), *range(6)):
            assert ask(front, number).status_code == 200
        assert told(front) == {one.address: (True, 3, 0), other.address: (True, 3, 0)}
        page = httpx.get(f"{front}/metrics", timeout=20).text
    assert [sum(path == CHAT for path, _ in backend.calls) for backend in (one, other)] == [3, 3]
    for address in (one.address, other.address):
        assert f'setpoint_upstream_healthy{{upstream="{address}"}} 1.0' in page
        assert f'setpoint_upstream_sent_total{{upstream="{address}"}} 3.0' in page


def test_one_that_is_not_there_costs_no_answer() -> None:
    gone = f"http://127.0.0.1:{free_port()}"
    with emulated() as there, gateway((gone, there.address), health_seconds=0.05) as front:
        until(lambda: not told(front)[gone][0])
        assert [ask(front, number).status_code for number in range(4)] == [200] * 4
        assert told(front) == {gone: (False, 0, 0), there.address: (True, 4, 0)}
        assert httpx.get(f"{front}/readyz", timeout=20).json() == {"ready": True, "upstreams": 2, "healthy": 1}


def test_where_none_is_there_the_gateway_is_not_ready() -> None:
    with gateway([f"http://127.0.0.1:{free_port()}" for _ in range(2)]) as front:
        answer = httpx.get(f"{front}/readyz", timeout=20)
        assert (answer.status_code, answer.json()) == (503, {"ready": False, "upstreams": 2, "healthy": 0})
        assert ask(front, 1).status_code == 502


def test_what_is_no_list_of_urls_is_refused() -> None:
    with pytest.raises(InputError, match="upstream: got an empty list, expected at least one URL"):
        GatewaySettings([])
    with pytest.raises(InputError, match=r"upstream: got 'ftp://a', expected a URL"):
        GatewaySettings(["http://a", "ftp://a"])


async def test_proxies_of_the_environment_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with emulated() as proxy:
        monkeypatch.setenv("http_proxy", proxy.address)
        monkeypatch.setenv("no_proxy", "near.test")
        async with upstream_client(GatewaySettings(["http://far.test"])) as client:
            assert (await client.get("/v1/models")).status_code == 200  # it answers in the place of the other
        async with upstream_client(GatewaySettings(["http://near.test"])) as client:
            with pytest.raises(httpx.ConnectError):
                await client.get("/v1/models")
