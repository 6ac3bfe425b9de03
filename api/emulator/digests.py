"""Where the emulator's choices come from: a hash of the request, so that nothing is drawn and nothing remembered."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, NewType

import orjson

Digest = NewType("Digest", bytes)

# How an answer travels does not change it: a stream brings what a whole answer holds.
DELIVERY = frozenset({"stream", "stream_options"})


def request_digest(seed: int, path: str, raw: Mapping[str, Any]) -> Digest:
    """Of the whole body but DELIVERY, in any order of keys: bodies that differ in anything else have other digests."""
    told = {name: value for name, value in raw.items() if name not in DELIVERY}
    canonical = orjson.dumps([str(seed), path, told], option=orjson.OPT_SORT_KEYS)
    return Digest(hashlib.sha256(canonical).digest())


def derived(digest: Digest, *labels: object) -> Digest:
    """The digest of one part of an answer."""
    return Digest(hashlib.sha256(digest + "/".join(map(str, labels)).encode()).digest())


def draw(digest: Digest, *labels: object) -> float:
    """In [0, 1), uniform over requests."""
    return int.from_bytes(derived(digest, *labels)[:6], "big") / 2**48


def below(digest: Digest, limit: int, *labels: object) -> int:
    """In 0 … limit - 1."""
    return int.from_bytes(derived(digest, *labels)[:8], "big") % limit


def random_bytes(digest: Digest, length: int) -> bytes:
    return hashlib.shake_256(digest).digest(length)
