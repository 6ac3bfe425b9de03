"""Shared semantic tiers for tests: entries in a Redis, vectors beside them or elsewhere, both empty."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import asdict

from caches.keys.request_key import RequestKey
from caches.knobs import KnobSpace
from caches.semantic.embedder import Embedder
from caches.semantic.matching import MatchingOptions
from caches.semantic.redis_entries import NotedEntries
from caches.semantic.redis_vectors import RedisVectors
from caches.semantic.shared import SharedOptions, SharedSemanticTier
from caches.semantic.store import VectorStore
from caches.tiers.redis_connection import connect
from caches.tiers.redis_index import RedisIndexOptions
from caches.tiers.tier import Answer, Tier
from tests.caches.semantic.toy import ToyEmbedder
from tests.caches.semantic.vector_stores import Make, prefix
from tests.contracts.meaning_contract import MeaningTier
from tests.contracts.tier_contract import SPACE, Subject
from tests.servers import patient

MOST_REMOVED = 3


def tier_over(
    url: str,
    vectors: VectorStore,
    embedder: Embedder,
    space: KnobSpace = SPACE,
    options: MatchingOptions = MatchingOptions(),
    start: str | None = None,
    shards: int = 1,
) -> SharedSemanticTier:
    """start: of the names of its keys; else nobody else's."""
    entries = RedisIndexOptions(start or prefix(), shards, entry_overhead_bytes=40, most_removed=MOST_REMOVED)
    shared = SharedOptions(**asdict(options), vector_overhead_bytes=24)
    return SharedSemanticTier(embedder, NotedEntries(patient(url), space, options=entries), vectors, options=shared)


def by_meaning(
    url: str, vectors: Make
) -> Callable[[Embedder, KnobSpace, MatchingOptions], AbstractAsyncContextManager[MeaningTier]]:
    @asynccontextmanager
    async def make(embedder: Embedder, space: KnobSpace, options: MatchingOptions) -> AsyncIterator[MeaningTier]:
        async with vectors() as store:
            tier = tier_over(url, store, embedder, space, options)
            yield tier
            connection = patient(url)
            await connection.flushdb()
            await connection.aclose()
            await tier.close()

    return make


def subject(url: str, vectors: Make) -> Subject:
    make = by_meaning(url, vectors)

    @asynccontextmanager
    async def plain(space: KnobSpace) -> AsyncIterator[Tier]:
        async with make(ToyEmbedder(), space, MatchingOptions()) as tier:
            yield tier

    return Subject(plain, entry_bytes, MOST_REMOVED)


NOWHERE = "redis://127.0.0.1:1/0"
_UNREACHED = tier_over(NOWHERE, RedisVectors(connect(NOWHERE)), ToyEmbedder())


def entry_bytes(key: RequestKey, answer: Answer) -> int:
    """What all of them count."""
    return _UNREACHED.entry_bytes(key, answer)
