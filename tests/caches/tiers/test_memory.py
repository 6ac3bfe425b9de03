"""The tier in memory, by the contract of all tiers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from caches.keys.request_key import RequestKey
from caches.knobs import KnobSpace
from caches.policies.catalog import EVICTIONS
from caches.tiers.memory import MemoryTier
from caches.tiers.selection import label_bytes
from caches.tiers.tier import Answer, Tier
from tests.contracts.tier_contract import Subject, TierContract

OVERHEAD = 100


@asynccontextmanager
async def empty(space: KnobSpace) -> AsyncIterator[Tier]:
    yield MemoryTier(space, entry_overhead_bytes=OVERHEAD, most_removed=3)


def entry_bytes(key: RequestKey, answer: Answer) -> int:
    return len(answer.body) + label_bytes(key) + OVERHEAD


class TestMemoryTier(TierContract):
    subject = Subject(empty, entry_bytes, most_removed=3, policies=tuple(EVICTIONS))
