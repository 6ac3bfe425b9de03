"""A server behind a tier that takes connections and never answers costs its timeout once, and then nothing."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from caches.flight import Flight
from caches.place import Place
from caches.semantic.endpoint_embedder import EndpointEmbedder
from caches.semantic.tier import SemanticTier
from caches.stack import Served, Stack
from caches.tiers.lease import Claim
from caches.tiers.memory import MemoryTier
from caches.tiers.redis_connection import connect
from caches.tiers.redis_index import RedisIndexTier
from caches.tiers.redis_lease import RedisLease
from caches.tiers.tier import Answer, Tier
from tests.contracts.tier_contract import SPACE, START, answer_of, key_of

TIMEOUT_SECONDS = 0.2


@pytest.fixture
def silent() -> Iterator[int]:
    """A port at which connections are taken and nothing is said."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listener:
        yield listener.getsockname()[1]


@dataclass
class Ticks:
    """A clock that only the timeouts of a tier move."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


class Asked(RedisLease):
    asked = 0

    async def take(self, name: bytes, again: bool = False) -> Claim:
        self.asked += 1
        return await super().take(name, again)


def redis_tier(port: int) -> Tier:
    return RedisIndexTier(connect(f"redis://127.0.0.1:{port}", TIMEOUT_SECONDS), SPACE)


def semantic_tier(port: int) -> Tier:
    return SemanticTier(EndpointEmbedder(f"http://127.0.0.1:{port}", "m", 8, timeout_seconds=TIMEOUT_SECONDS), SPACE)


@pytest.mark.parametrize("make", [redis_tier, semantic_tier])
async def test_it_is_asked_once_and_then_left_alone(make: Callable[[int], Tier], silent: int) -> None:
    ticks = Ticks()
    place = Place(make(silent), TIMEOUT_SECONDS, ticks=ticks)
    lease = Asked(connect(f"redis://127.0.0.1:{silent}", TIMEOUT_SECONDS)) if make is redis_tier else None
    stack = Stack([Place(MemoryTier(SPACE, "l1")), place], lease=lease, clock=lambda: START, ticks=ticks)

    async def call(number: int, _flight: Flight[Served]) -> Answer:
        return answer_of(number, 10, START)

    for number in range(20):
        for tier in (None, "l1"):
            served = await stack.fetch(key_of(number), lambda flight, number=number: call(number, flight))
            assert served.tier == tier
            assert served.answer == answer_of(number, 10, START)
    assert place.stats.failed == 1  # the first lookup; no clock has moved since
    assert lease is None or lease.asked == 1
    assert place.stats.skipped >= 20
    ticks.now += 1.0
    await stack.fetch(key_of(99), lambda flight: call(99, flight))
    assert place.stats.failed == 2  # one probe
    await stack.close()
    if lease is not None:
        await lease._redis.aclose()
