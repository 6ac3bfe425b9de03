"""From a URL to a store of vectors."""

from __future__ import annotations

from caches.errors import InputError
from caches.semantic.chroma_vectors import ChromaOptions, ChromaVectors
from caches.semantic.redis_vectors import RedisVectorOptions, RedisVectors
from caches.semantic.store import VectorStore
from caches.tiers.redis_connection import connect

CHROMA = "chroma+"


def make_vectors(
    url: str,
    name: str = "semantic",
    prefix: str = "setpoint-semantic",
    form: str = "fp32",
    token: str | None = None,
    timeout_seconds: float = 0.5,
) -> VectorStore:
    """`chroma+http://host:port` or `chroma+https://…`, or any URL of Redis (caches/tiers/redis_connection.py). form:
    `fp32` or `q8`, of Redis alone. token: of Chroma alone. Nothing is sent yet. Raises InputError for another URL."""
    if not url.startswith(CHROMA):
        return RedisVectors(connect(url, timeout_seconds), name, RedisVectorOptions(prefix, form))
    plain = url.removeprefix(CHROMA)
    if not plain.startswith(("http://", "https://")):
        scheme = url.partition("://")[0][:40]  # without what follows: there may be a password in it
        raise InputError(f"vectors: got {scheme!r}, expected chroma+http:// or chroma+https://")
    if form != ChromaVectors.form:
        raise InputError(f"form of vectors: got {form!r}, expected {ChromaVectors.form} with Chroma")
    return ChromaVectors(plain, name, ChromaOptions(prefix, token=token, timeout_seconds=timeout_seconds))
