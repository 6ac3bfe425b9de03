"""Where the tests have their stores of vectors from: each empty, on a real server."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from caches.semantic.chroma_vectors import ChromaOptions, ChromaVectors
from caches.semantic.redis_vectors import RedisVectorOptions, RedisVectors
from caches.semantic.store import VectorStore
from tests.contracts.vector_contract import PARTITIONS
from tests.servers import PATIENT_SECONDS, patient

Make = Callable[[], AbstractAsyncContextManager[VectorStore]]


def prefix() -> str:
    return f"test-{uuid.uuid4().hex}"


def redis_vectors(url: str, form: str = "fp32") -> Make:
    @asynccontextmanager
    async def make() -> AsyncIterator[VectorStore]:
        connection = patient(url)
        store = RedisVectors(connection, options=RedisVectorOptions(prefix(), form))
        yield store
        await connection.flushall()
        await store.close()

    return make


def chroma_vectors(url: str) -> Make:
    @asynccontextmanager
    async def make() -> AsyncIterator[VectorStore]:
        options = ChromaOptions(prefix(), timeout_seconds=PATIENT_SECONDS)
        store, cleaner = (ChromaVectors(url, options=options) for _ in range(2))  # the first may be closed by then
        yield store
        for partition in PARTITIONS:
            await cleaner.clear(partition)
        for each in (store, cleaner):
            await each.close()

    return make


async def vectors_in(url: str, of: str = "") -> int:
    """In all vector sets of a server, or of those under a prefix."""
    connection: Any = patient(url)
    keys = [key async for key in connection.scan_iter(match=f"{of}*:vectors:*")]
    found = sum([int(await connection.execute_command("VCARD", key)) for key in keys])
    await connection.aclose()
    return found
