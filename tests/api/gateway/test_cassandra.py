"""A gateway with a tier in Cassandra: what its settings make of a real server, and of one that is not there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from caches.errors import InputError
from caches.keys.request_key import Partition
from caches.tiers.cassandra import CassandraTier
from caches.tiers.cassandra_connection import CassandraConnection
from caches.tiers.tier import TierError
from tests.api.gateway.test_at_work import HERE, QUESTION, working
from tests.api.gateway.test_config import made
from tests.caches.semantic.toy import ask, say
from tests.caches.tiers.cassandra_server import cassandra_keyspace
from tests.contracts.tier_contract import SPACE, START
from tests.servers import PATIENT_SECONDS, free_port


@pytest.fixture
def keyspace(tmp_path: Path) -> Iterator[str]:
    with cassandra_keyspace(tmp_path) as url:
        yield url


def section(url: str, more: str = "") -> str:
    return f'[tiers.cassandra]\nurl = "{url}"\nslow_seconds = {PATIENT_SECONDS}\n{more}'


@pytest.mark.slow
async def test_from_an_empty_keyspace_to_what_the_next_gateway_finds(keyspace: str, tmp_path: Path) -> None:
    """What is not stated stays as somebody set it; 8,000,000 bytes are 125,000 for each slice."""
    key, url = ask(QUESTION, HERE), f"{keyspace}?datacenter=datacenter1"
    async with working(tmp_path, section(url, "cache_size = 8_000_000\nwarmup_ratio = 0.25")) as (gateway, remarks):
        assert remarks == []
        await gateway.service.stack.store(key, say("so", gateway.service.clock()))
    async with working(tmp_path, section(url, "ttl_seconds = 60")) as (gateway, remarks):
        assert remarks == []
        settings = await gateway.places["cassandra"].tier.settings()
        assert (settings.cache_size, settings.ttl_seconds, settings.warmup_ratio) == (8_000_000.0, 60.0, 0.25)
        served = await gateway.service.stack.lookup(key)
        assert served is not None
        assert (served.answer.body, served.tier, served.level) == (b"so", "cassandra", 2)
    with pytest.raises(InputError, match=r"keyspace setpoint_test_none: .* CREATE KEYSPACE setpoint_test_none"):
        async with working(tmp_path, section(f"{keyspace}_none")):
            pytest.fail("it started")
    late = CassandraTier(CassandraConnection(f"{keyspace}_none", PATIENT_SECONDS), SPACE)
    with pytest.raises(TierError, match="CREATE KEYSPACE setpoint_test_none"):  # found out after the start
        await late.lookup(key, START)
    await late.close()


async def test_it_stands_below_redis_and_above_what_is_known_by_meaning(tmp_path: Path) -> None:
    pytest.importorskip("cassandra")
    text = f'[gateway]\nupstream = "http://a"\n[tiers.disk]\npath = "{tmp_path / "cache.db"}"\n'
    text += '[tiers.cassandra]\nurl = "cassandra://u:secret@a/k"\n[tiers.redis]\nurl = "redis://a"\n'
    text += '[namespaces.x]\ntiers = ["cassandra"]'
    gateway = made(tmp_path, text)
    assert list(gateway.places) == ["memory", "disk", "redis", "cassandra", "semantic"]
    assert [place.level for place in gateway.places.values()] == [1, 2, 2, 2, 3]
    stack = gateway.service.stack.of(Partition("t", "x"))  # type: ignore[union-attr]
    assert [place.tier.name for place in stack.places] == ["cassandra"]
    assert "secret@" not in repr(gateway.config) + repr(gateway.service)
    await gateway.service.stack.close()
    await gateway.service.client.aclose()


async def test_one_that_is_not_there_is_a_remark(tmp_path: Path) -> None:
    pytest.importorskip("cassandra")
    async with working(tmp_path, section(f"cassandra://127.0.0.1:{free_port()}/any")) as (gateway, remarks):
        assert list(gateway.places) == ["memory", "cassandra", "semantic"]
        assert remarks == ["Tier cassandra cannot be reached now; it is tried again while the gateway runs."]
        assert await gateway.service.stack.lookup(ask(QUESTION, HERE)) is None
        assert gateway.places["cassandra"].stats.failed == 1
