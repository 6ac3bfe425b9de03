"""Vectors in the vector sets of Redis, 8.2 or newer: one set for each group, so that a search cannot leave it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson
from redis.exceptions import ResponseError

from caches.errors import InputError
from caches.keys.request_key import Partition
from caches.semantic.embedder import Vectors
from caches.semantic.index import Group
from caches.semantic.store import Alike, Place
from caches.tiers.redis_connection import Connection, evaluated, reached
from caches.tiers.redis_index import KEPT_SECONDS
from caches.tiers.tier import TierError

FORMS = {"fp32": ("NOQUANT", 4), "q8": ("Q8", 1)}  # how the server calls it, bytes of a number
AT_ONCE = 128  # vectors in one script, for which others wait
SCAN = 1_000
GLOB = re.compile(rb"[*?\[\]\\^-]")

# KEYS: the set. ARGV: vector, fingerprint, form, attributes, seconds to keep a set that nothing is added to.
_ADD = """
redis.call('VADD', KEYS[1], 'FP32', ARGV[1], ARGV[2], ARGV[3], 'SETATTR', ARGV[4])
redis.call('EXPIRE', KEYS[1], ARGV[5])
"""
# KEYS: the set. ARGV: fingerprints.
_REMOVE = "for _, one in ipairs(ARGV) do redis.call('VREM', KEYS[1], one) end"


@dataclass(frozen=True)
class RedisVectorOptions:
    """prefix: of all keys. form: `fp32`, or `q8` for a quarter of the memory and similarities that are off by some
    thousandths; a change of it begins with new sets."""

    prefix: str = "setpoint-semantic"
    form: str = "fp32"

    def __post_init__(self) -> None:
        if self.form not in FORMS:
            raise InputError(f"form of vectors: got {self.form!r}, expected fp32 or q8")


class RedisVectors:
    """On one server or a cluster, which may be another one than that of the entries."""

    def __init__(
        self, connection: Connection, name: str = "semantic", options: RedisVectorOptions = RedisVectorOptions()
    ) -> None:
        self._redis: Any = connection  # its answers are bytes; their types say str too
        self._name, self._options = name, options
        self._quantisation, self.number_bytes = FORMS[options.form]

    @property
    def form(self) -> str:
        return self._options.form

    async def begin(self) -> None:
        """Tries it out with a set of one vector."""
        place, vector = Place(b"", Group(Partition(), b""), b"probe"), np.ones(1, np.float32)
        async with reached(self._name):
            try:
                await self._add(place, vector, "")
                await self._search(place.space, place.group, vector, 1)
                await self._redis.unlink(self._key(place.space, place.group))
            except ResponseError as error:
                raise InputError(
                    f"tier {self._name}: the server refuses vector sets ({error}), expected Redis 8.2 or newer"
                ) from error

    async def add(self, place: Place, vector: Vectors, question: str) -> None:
        async with reached(self._name):
            await self._add(place, vector, question)

    async def nearest(self, space: bytes, group: Group, vector: Vectors, count: int) -> list[Alike]:
        async with reached(self._name):
            found = await self._search(space, group, vector, count)
        try:
            return [Alike(bytes(name), _inner(score), _question(about)) for name, score, about in _rows(found)]
        except (ValueError, TypeError, KeyError) as error:
            raise TierError(f"tier {self._name}: got neighbours {str(found)[:80]}, expected ours") from error

    async def remove(self, places: Sequence[Place]) -> None:
        of_set: dict[bytes, list[bytes]] = {}
        for place in places:
            of_set.setdefault(self._key(place.space, place.group), []).append(place.fingerprint)
        async with reached(self._name):
            for key, names in of_set.items():
                for first in range(0, len(names), AT_ONCE):
                    await evaluated(self._redis, _REMOVE, 1, key, *names[first : first + AT_ONCE])

    async def clear(self, partition: Partition) -> None:
        match = GLOB.sub(rb"\\\g<0>", self._prefix(partition)) + b"*"
        async with reached(self._name):
            async for key in self._redis.scan_iter(match=match, count=SCAN):
                await self._redis.unlink(key)

    async def close(self) -> None:
        await self._redis.aclose()

    async def _add(self, place: Place, vector: Vectors, question: str) -> None:
        key, about = self._key(place.space, place.group), orjson.dumps({"question": question})
        packed = np.asarray(vector, "<f4").tobytes()
        await evaluated(self._redis, _ADD, 1, key, packed, place.fingerprint, self._quantisation, about, KEPT_SECONDS)

    async def _search(self, space: bytes, group: Group, vector: Vectors, count: int) -> Any:
        """Not by the client's own `vsim`, which cannot read the answer where there is no such set."""
        packed, wanted = np.asarray(vector, "<f4").tobytes(), ("WITHSCORES", "WITHATTRIBS", "COUNT", count)
        return await self._redis.execute_command("VSIM", self._key(space, group), "FP32", packed, *wanted)

    def _prefix(self, partition: Partition) -> bytes:
        return b"%b:vectors:%b" % (self._options.prefix.encode(), partition.prefix)

    def _key(self, space: bytes, group: Group) -> bytes:
        return self._prefix(group.partition) + space + group.context


def _rows(found: Any) -> list[tuple[Any, Any, Any]]:
    """A mapping in the newer protocol, one flat list in the older."""
    if isinstance(found, dict):
        return [(name, *pair) for name, pair in found.items()]
    return list(zip(found[::3], found[1::3], found[2::3], strict=True))


def _inner(score: Any) -> float:
    """Redis gives (1 + cosine) / 2."""
    return 2.0 * float(score) - 1.0


def _question(about: Any) -> str:
    return str(orjson.loads(about)["question"])
