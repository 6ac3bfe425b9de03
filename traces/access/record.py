"""One request to the live cache, as its access log keeps it. Never a word of what was asked or answered."""

from __future__ import annotations

from typing import NamedTuple


class AccessRecord(NamedTuple):
    """arrival_seconds: Unix time at which the request came. key_id: `RequestKey.id`, which a log writes as a keyed hash
    only; None for a request past the cache, and for one that asks for the rest of a stream. tenant, namespace: of its
    partition. outcome: the tier that answered, or "miss", "bypass" or "resumed". status: of HTTP.

    Of the answer, each None where it is not known or there is none: size_bytes; prompt_tokens, output_tokens;
    compute_seconds, which the backend took, None for hits; similarity of a hit on another question, None for an equal
    one. ttl_seconds: the lifetime that the client asked for, None where it did not. arm: of the tuned tier, to which
    the key belonged then (caches.target.Arm); None where nothing is tuned. levels: names of the request at each of
    `caches.keys.levels.LEVELS`, written as keyed hashes too; None where that is not asked for.
    """

    arrival_seconds: float
    key_id: bytes | None
    tenant: str
    namespace: str
    outcome: str
    status: int
    size_bytes: int | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    compute_seconds: float | None = None
    similarity: float | None = None
    ttl_seconds: float | None = None
    arm: str | None = None
    levels: tuple[bytes, ...] | None = None


MISS, BYPASS, RESUMED = "miss", "bypass", "resumed"
