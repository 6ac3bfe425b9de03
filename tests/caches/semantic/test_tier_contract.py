"""The contract of all tiers, with questions and without."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from caches.knobs import KnobSpace
from caches.semantic.embedder import Embedder
from caches.semantic.tier import SemanticOptions, SemanticTier
from caches.semantic.wordllama_embedder import WordLlamaEmbedder
from caches.tiers.tier import Tier
from tests.caches.semantic.toy import ToyEmbedder
from tests.contracts.tier_contract import SPACE, Subject, TierContract

MOST_REMOVED = 5
OPTIONS = SemanticOptions(entry_overhead_bytes=40, most_removed=MOST_REMOVED, matrix_up_to=6)
WORDS = WordLlamaEmbedder()


def subject(embedder: Callable[[], Embedder]) -> Subject:
    @asynccontextmanager
    async def make(space: KnobSpace) -> AsyncIterator[Tier]:
        tier = SemanticTier(embedder(), space, options=OPTIONS)
        yield tier
        await tier.close()

    made: Callable[[KnobSpace], AbstractAsyncContextManager[Tier]] = make
    return Subject(made, SemanticTier(embedder(), SPACE, options=OPTIONS).entry_bytes, MOST_REMOVED)


class TestSemanticTier(TierContract):
    subject = subject(ToyEmbedder)


class TestSemanticTierWithWordVectors(TierContract):
    subject = subject(lambda: WORDS)
