"""The shared semantic tier by the contract of all tiers and by that of tiers that answer by meaning: with vector sets
beside the entries, and with the entries in an older Redis and the vectors in Chroma."""

from __future__ import annotations

import pytest

from tests.caches.semantic.shared_tiers import by_meaning, subject
from tests.caches.semantic.vector_stores import chroma_vectors, redis_vectors
from tests.contracts.meaning_contract import MeaningContract, MeaningSubject
from tests.contracts.tier_contract import TierContract


class TestWithVectorSets(TierContract, MeaningContract):
    @pytest.fixture(autouse=True)
    def _on_a_server(self, vector_redis_server: str) -> None:
        url, vectors = vector_redis_server, redis_vectors(vector_redis_server)
        type(self).subject, type(self).meaning = subject(url, vectors), MeaningSubject(by_meaning(url, vectors))


class TestWithChroma(TierContract, MeaningContract):
    """Without the three that store thousands of times, which takes a server that writes to disk minutes: what they
    look at is in the entries, as above."""

    test_with_room_for_all_hits_follow_from_lifetimes = None
    test_more_than_one_step_takes_is_cleared = None
    test_without_ageing_hits_follow_from_the_last_touch = None

    @pytest.fixture(autouse=True)
    def _on_servers(self, redis_server: str, chroma_server: str) -> None:
        url, vectors = redis_server, chroma_vectors(chroma_server)
        type(self).subject, type(self).meaning = subject(url, vectors), MeaningSubject(by_meaning(url, vectors))
