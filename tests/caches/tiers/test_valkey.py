"""Valkey by the adapters of Redis: both modes, by their contracts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from caches.knobs import KnobSpace
from caches.tiers.redis_index import RedisIndexTier
from caches.tiers.tier import Tier
from tests.caches.tiers.server_contract import ServerContract, on_server
from tests.caches.tiers.test_redis_index import entry_bytes, options
from tests.contracts.tier_contract import Subject, TierContract
from tests.servers import patient, tells


class TestIndexMode(TierContract):
    @pytest.fixture(autouse=True)
    def _on_a_server(self, valkey_server: str) -> None:
        @asynccontextmanager
        async def empty(space: KnobSpace) -> AsyncIterator[Tier]:
            connection = patient(valkey_server)
            tier = RedisIndexTier(connection, space, options=options())
            try:
                yield tier
            finally:
                await connection.flushdb()
                await tier.close()

        type(self).subject = Subject(empty, entry_bytes, most_removed=3)


class TestServerMode(ServerContract):
    @pytest.fixture(autouse=True)
    def _on_a_server(self, valkey_server: str) -> None:
        type(self).subject = Subject(on_server(valkey_server), lambda key, answer: len(answer.body), most_removed=0)


def test_it_is_a_valkey(valkey_server: str) -> None:
    port = int(valkey_server.rpartition(":")[2].partition("/")[0])
    assert tells(port, "INFO", "server")["server_name"] == "valkey"
