"""Redis vector sets and Chroma by the contract of stores of vectors, and what is particular to each."""

from __future__ import annotations

from typing import Any

import pytest

from caches.errors import InputError
from caches.semantic.chroma_vectors import ChromaOptions, ChromaVectors
from caches.semantic.redis_vectors import RedisVectorOptions, RedisVectors
from caches.semantic.store import Place, place_of
from caches.semantic.store_catalog import make_vectors
from caches.tiers.redis_scripts import NOTE_HEAD_BYTES
from caches.tiers.tier import TierError
from tests.caches.semantic.vector_stores import chroma_vectors, prefix, redis_vectors
from tests.contracts.vector_contract import GROUPS, ROWS, SPACES, VectorContract, VectorSubject, name_of
from tests.servers import PATIENT_SECONDS, patient


class TestRedisVectors(VectorContract):
    @pytest.fixture(autouse=True)
    def _on_a_server(self, vector_redis_server: str) -> None:
        type(self).subject = VectorSubject(redis_vectors(vector_redis_server), tolerance=1e-5)


class TestRedisVectorsInBytes(VectorContract):
    @pytest.fixture(autouse=True)
    def _on_a_server(self, vector_redis_server: str) -> None:
        type(self).subject = VectorSubject(redis_vectors(vector_redis_server, "q8"), tolerance=0.02)


class TestChromaVectors(VectorContract):
    @pytest.fixture(autouse=True)
    def _on_a_server(self, chroma_server: str) -> None:
        type(self).subject = VectorSubject(chroma_vectors(chroma_server), tolerance=1e-5, examples=5)


class TestRedisVectorsOnThreeNodes(VectorContract):
    @pytest.fixture(autouse=True)
    def _on_a_cluster(self, vector_redis_cluster: str) -> None:
        type(self).subject = VectorSubject(redis_vectors(vector_redis_cluster), tolerance=1e-5, examples=5)


async def test_a_server_without_vector_sets_is_named_at_the_start(redis_server: str) -> None:
    async with redis_vectors(redis_server)() as store:
        with pytest.raises(InputError, match=r"the server refuses vector sets \(.*\), expected Redis 8.2 or newer"):
            await store.begin()
        with pytest.raises(TierError, match="tier semantic: ResponseError"):
            await store.nearest(SPACES[0], GROUPS[0], ROWS[0], 1)


async def test_what_others_wrote_under_our_names_is_a_tier_error(vector_redis_server: str) -> None:
    connection: Any = patient(vector_redis_server)
    store = RedisVectors(connection, options=RedisVectorOptions("test"))
    await store.add(Place(SPACES[0], GROUPS[0], name_of(1)), ROWS[0], "question")
    (key,) = [key async for key in connection.scan_iter(match="test:*")]
    assert await connection.ttl(key) > 29 * 86_400  # it goes when nothing is added for a month
    await connection.execute_command("VSETATTR", key, name_of(1), '{"something": "else"}')
    with pytest.raises(TierError, match="got neighbours"):
        await store.nearest(SPACES[0], GROUPS[0], ROWS[0], 1)
    await connection.flushdb()
    await store.close()


async def test_the_probe_leaves_nothing(vector_redis_server: str) -> None:
    connection: Any = patient(vector_redis_server)
    await connection.flushdb()
    store = RedisVectors(connection)
    for _ in range(2):
        await store.begin()
    assert await connection.dbsize() == 0
    await store.close()


async def test_a_collection_that_somebody_removed_is_made_anew(chroma_server: str) -> None:
    options = ChromaOptions(prefix(), timeout_seconds=PATIENT_SECONDS)
    one, other = (ChromaVectors(chroma_server, options=options) for _ in range(2))
    place = Place(SPACES[0], GROUPS[0], name_of(1))
    await one.add(place, ROWS[0], "question")
    await other.clear(place.group.partition)
    assert await one.nearest(place.space, place.group, ROWS[0], 1) == []
    await one.add(place, ROWS[0], "question")
    await other.clear(place.group.partition)
    await one.add(place, ROWS[0], "question")
    await one.remove([place])
    await other.clear(place.group.partition)
    await one.remove([place])
    for store in (one, other):
        await store.close()


async def test_a_chroma_without_the_database_is_named_at_the_start(chroma_server: str) -> None:
    options = ChromaOptions(database="none", token="secret", timeout_seconds=PATIENT_SECONDS)
    store = ChromaVectors(chroma_server, options=options)
    with pytest.raises(InputError, match="without the database 'none' of the tenant 'default_tenant'"):
        await store.begin()
    await store.close()


def test_a_place_is_what_its_note_says() -> None:
    for group in GROUPS:
        place = Place(SPACES[1], group, b"\0" * 32)
        assert place_of(place.note) == place
        assert len(place.note) - len(group.partition.prefix + place.fingerprint) == NOTE_HEAD_BYTES


@pytest.mark.parametrize(
    ("url", "form", "words"),
    [
        ("chroma+localhost", "fp32", r"got 'chroma\+localhost', expected chroma\+http://"),
        ("chroma+http://localhost", "q8", "got 'q8', expected fp32 with Chroma"),
        ("redis://localhost", "fp16", "got 'fp16', expected fp32 or q8"),
        ("http://localhost", "fp32", "expected redis://"),
    ],
)
def test_what_cannot_be_a_store_is_refused(url: str, form: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        make_vectors(url, form=form)


async def test_a_url_says_which_store() -> None:
    for url, kind in (("redis://localhost:1", RedisVectors), ("chroma+https://localhost", ChromaVectors)):
        store = make_vectors(url)
        assert isinstance(store, kind)
        await store.close()
