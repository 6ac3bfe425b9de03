"""What several processes, servers that fail and lost vectors do to the shared semantic tier."""

from __future__ import annotations

import asyncio
import hashlib
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import pytest

from caches.keys.request_key import Partition, RequestKey
from caches.knobs import KnobSettings
from caches.semantic.chroma_vectors import ChromaOptions, ChromaVectors
from caches.semantic.embedder import Vectors, unit_rows
from caches.semantic.matching import MatchingOptions
from caches.semantic.redis_entries import NotedEntries
from caches.semantic.redis_vectors import RedisVectorOptions, RedisVectors
from caches.semantic.shared import SharedSemanticTier
from caches.semantic.store import VectorStore
from caches.semantic.wordllama_embedder import WordLlamaEmbedder
from caches.tiers.redis_connection import connect
from caches.tiers.selection import Selection
from caches.tiers.tier import Answer, TierError
from tests.caches.semantic.shared_tiers import MOST_REMOVED, tier_over
from tests.caches.semantic.toy import HERE, START, ToyEmbedder, ask, say, space
from tests.caches.semantic.vector_stores import prefix, vectors_in
from tests.contracts.meaning_contract import ALIKE, ASKED
from tests.contracts.tier_contract import SPACE
from tests.servers import PATIENT_SECONDS, free_port, patient

ROOT = Path(__file__).parents[3]
LOOSE = MatchingOptions(0.6, lowest_threshold=0.5)
OTHER_PROCESS = f"""
import asyncio, sys
from caches.keys.request_key import Partition, RequestKey
from caches.knobs import Knob, KnobSpace
from caches.semantic.redis_entries import NotedEntries
from caches.semantic.redis_vectors import RedisVectorOptions, RedisVectors
from caches.semantic.shared import SharedSemanticTier
from caches.semantic.wordllama_embedder import WordLlamaEmbedder
from caches.tiers.redis_connection import connect
from caches.tiers.redis_index import RedisIndexOptions
from caches.tiers.tier import Answer

async def main(url, start):
    space = KnobSpace(
        Knob("cache_size", "bytes", 1.0, 1e6, 1e6, 1.0, "log"),
        Knob("ttl_seconds", "seconds", 1.0, 1e6, 1e6, 1.0, "log"),
        Knob("warmup_ratio", "share", 0.0, 1.0, 0.0, 1.0, "linear"),
    )
    connection = connect(url, {PATIENT_SECONDS})
    entries = NotedEntries(connection, space, options=RedisIndexOptions(start))
    tier = SharedSemanticTier(
        WordLlamaEmbedder(), entries, RedisVectors(connection, options=RedisVectorOptions(start))
    )
    key = RequestKey(Partition({HERE.tenant!r}, {HERE.namespace!r}), b"f" * 32, b"c".ljust(32, b"."), {ASKED!r})
    assert await tier.store(key, Answer(b"thus", {START}), {START})
    await tier.close()

asyncio.run(main(*sys.argv[1:]))
"""


def on_redis(url: str, embedder: ToyEmbedder | WordLlamaEmbedder, start: str) -> SharedSemanticTier:
    vectors = RedisVectors(patient(url), options=RedisVectorOptions(start))
    return tier_over(url, vectors, embedder, options=LOOSE, start=start)


async def test_processes_share_hits_settings_and_removals(vector_redis_server: str) -> None:
    start = prefix()
    tier = on_redis(vector_redis_server, WordLlamaEmbedder(), start)
    subprocess.run([sys.executable, "-c", OTHER_PROCESS, vector_redis_server, start], cwd=ROOT, check=True, timeout=120)
    found = await tier.lookup(ask(ALIKE), START)
    assert found is not None
    assert (found.answer.body, found.similarity < 1.0) == (b"thus", True)
    other = on_redis(vector_redis_server, WordLlamaEmbedder(), start)
    await other.apply(KnobSettings(9_000.0, 30.0, 0.25), START)
    assert await tier.settings() == KnobSettings(9_000.0, 30.0, 0.25)
    stored = RequestKey(HERE, b"f" * 32, ask(None).context, ASKED)
    assert await other.delete(stored)
    assert await tier.lookup(ask(ALIKE), START) is None
    while await tier.tend(START):
        pass
    assert await vectors_in(vector_redis_server, start) == 0
    for each in (tier, other):
        await each.close()


async def test_vectors_of_two_embedders_never_meet(vector_redis_server: str) -> None:
    start, other = prefix(), ToyEmbedder()
    other.name = "another"
    tiers = [on_redis(vector_redis_server, toy, start) for toy in (ToyEmbedder(), other)]
    await tiers[0].store(ask(ASKED), say("thus"), START)
    assert await tiers[0].lookup(ask(ALIKE), START) is not None
    assert await tiers[1].lookup(ask(ALIKE), START) is None
    assert await tiers[1].lookup(ask(ASKED), START) is not None  # equal requests need no vectors
    await tiers[1].store(ask(ASKED), say("anew"), START)  # the entry now belongs to the other's vector
    for tier in tiers:
        while await tier.tend(START):
            pass
    assert await tiers[1].lookup(ask(ALIKE), START) is not None
    assert await vectors_in(vector_redis_server, start) == 1
    for tier in tiers:
        await tier.close()


async def test_a_vector_without_its_entry_is_passed_over_and_removed(vector_redis_server: str) -> None:
    start = prefix()
    tier = on_redis(vector_redis_server, ToyEmbedder(), start)
    await tier.store(ask(ALIKE), say("lost"), START)
    connection = patient(vector_redis_server)
    names = [name async for name in connection.scan_iter(match=f"{start}:{{*")]  # the entries, not the vectors
    await connection.delete(*names)
    await tier.store(ask("how could one reset my password"), say("kept"), START)
    found = await tier.lookup(ask(ASKED), START)  # nearer to the lost one
    assert found is not None
    assert found.answer.body == b"kept"
    assert await vectors_in(vector_redis_server, start) == 2
    while await tier.tend(START):
        pass
    assert await vectors_in(vector_redis_server, start) == 1
    await connection.aclose()
    await tier.close()


async def test_clearing_leaves_no_question_behind(vector_redis_server: str) -> None:
    start = prefix()
    tier = on_redis(vector_redis_server, ToyEmbedder(), start)
    for number in range(4 * MOST_REMOVED):
        key = ask(f"question {number}")
        tagged = RequestKey(HERE, key.fingerprint, key.context, key.question, tags=frozenset({f"t{number % 2}"}))
        await tier.store(tagged, say("x"), START)
    await tier.store(ask(ASKED, Partition("b", "x")), say("x"), START)
    assert await tier.clear(Selection(HERE, tag="t1")) == 2 * MOST_REMOVED
    assert await vectors_in(vector_redis_server, start) == 2 * MOST_REMOVED + 1
    assert await tier.clear(Selection(HERE)) == 2 * MOST_REMOVED
    assert await vectors_in(vector_redis_server, start) == 1
    await tier.close()


async def test_on_a_cluster_every_shard_hands_its_vectors_over(vector_redis_cluster: str) -> None:
    start = prefix()
    vectors = RedisVectors(patient(vector_redis_cluster), options=RedisVectorOptions(start))
    tier = tier_over(vector_redis_cluster, vectors, ToyEmbedder(), options=LOOSE, start=start, shards=4)
    for number in range(40):
        await tier.store(ask(f"question {number}", context=b"%d" % (number % 5)), say("x"), START)
    await tier.store(ask(ASKED), say("thus"), START)
    found = await tier.lookup(ask(ALIKE), START)
    assert found is not None
    assert found.answer.body == b"thus"
    assert await vectors_in(vector_redis_cluster, start) == 41
    await tier.apply(KnobSettings(1e6, 5.0, 0.0), START + 5)
    while await tier.tend(START + 5):
        pass
    assert (await tier.stats()).entries == 0
    assert await vectors_in(vector_redis_cluster, start) == 0
    await tier.close()


async def test_an_entry_counts_for_what_a_server_takes_for_it(vector_redis_server: str) -> None:
    class Scattered:
        name, slow, dimensions = "scattered", False, 256

        def embed(self, texts: Sequence[str]) -> Vectors:
            seeds = [int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) for text in texts]
            rows = [np.random.default_rng(seed).normal(size=self.dimensions) for seed in seeds]
            return unit_rows(np.array(rows, np.float32))

        def close(self) -> None:
            """Nothing is held."""

    connection, entries = patient(vector_redis_server), 1_000
    await connection.flushall()
    tier = SharedSemanticTier(Scattered(), NotedEntries(patient(vector_redis_server), SPACE), RedisVectors(connection))
    answer = Answer(b"." * 500, START)
    keys = [
        RequestKey(HERE, hashlib.sha256(b"%d" % n).digest(), hashlib.sha256(b"c%d" % (n // 20)).digest(), f"q {n:30}")
        for n in range(entries + 1)
    ]
    await tier.store(keys[-1], answer, START)
    before = (await connection.info("memory"))["used_memory"]
    for key in keys[:-1]:
        await tier.store(key, answer, START)
    taken = ((await connection.info("memory"))["used_memory"] - before) / entries
    counted = tier.entry_bytes(keys[0], answer)
    assert 0.85 * counted < taken < 1.1 * counted
    await connection.flushall()
    await tier.close()


@asynccontextmanager
async def silent_server() -> AsyncIterator[int]:
    """Port of a server that takes connections and never answers."""

    async def wait(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await gone.wait()
        writer.close()

    gone = asyncio.Event()
    server = await asyncio.start_server(wait, "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    gone.set()
    server.close()


def unreached(kind: str, port: int) -> VectorStore:
    if kind == "redis":
        return RedisVectors(connect(f"redis://127.0.0.1:{port}/0", 0.2))
    return ChromaVectors(f"http://127.0.0.1:{port}", options=ChromaOptions(timeout_seconds=0.2))


@pytest.mark.parametrize("kind", ["redis", "chroma"])
@pytest.mark.parametrize("how", ["dead", "silent"])
async def test_without_vectors_equal_requests_are_served_and_the_others_fail_in_time(
    redis_server: str, kind: str, how: str
) -> None:
    async with silent_server() as silent:
        port = silent if how == "silent" else free_port()
        tier = tier_over(redis_server, unreached(kind, port), ToyEmbedder(), space(), LOOSE)
        await tier.store(ask(None), say("equal"), START)  # has no vector
        assert await tier.lookup(ask(None), START) is not None
        began = time.monotonic()
        for call in (tier.lookup(ask(ASKED), START), tier.store(ask(ASKED), say("x"), START), tier.begin()):
            with pytest.raises(TierError, match="tier semantic: "):
                await call
        assert time.monotonic() - began < 10.0  # three times 0.2 s, on a busy machine
        stats = await tier.stats()
        assert (stats.entries, stats.requests) == (1, 1)
        assert not await tier.holds(ask(ASKED), START)
        await tier.close()


async def test_dead_entries_are_a_tier_error(vector_redis_server: str) -> None:
    vectors = RedisVectors(patient(vector_redis_server), options=RedisVectorOptions(prefix()))
    tier = SharedSemanticTier(ToyEmbedder(), NotedEntries(connect("redis://127.0.0.1:1/0"), SPACE), vectors)
    for call in (tier.lookup(ask(ASKED), START), tier.store(ask(ASKED), say("x"), START), tier.tend(START)):
        with pytest.raises(TierError, match="tier redis: "):
            await call
    await tier.close()
