"""The seam of a networked store of vectors. tests/contracts/vector_contract.py is what every one has to pass.

It holds vectors and their questions, nothing else: what is kept, how long and how much of it is decided where the
entries are. So a vector may be there for a moment before its entry is, and for a while after it has left; nothing is
ever served because of a vector alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from caches.keys.request_key import FINGERPRINT_BYTES, Partition
from caches.semantic.embedder import Embedder, Vectors
from caches.semantic.index import Group

SPACE_BYTES = 16


@dataclass(frozen=True)
class Place:
    """Where a vector lies. space: 16 bytes for embedder and number format; vectors of two spaces never meet."""

    space: bytes
    group: Group
    fingerprint: bytes

    @property
    def note(self) -> bytes:
        """As the entry carries it: space, context, and the id of the request."""
        return self.space + self.group.context + self.group.partition.prefix + self.fingerprint


def place_of(note: bytes) -> Place:
    """What `Place.note` says."""
    space, rest = note[:SPACE_BYTES], note[SPACE_BYTES:]
    context, rest = rest[:FINGERPRINT_BYTES], rest[FINGERPRINT_BYTES:]
    tenant, namespace, fingerprint = rest.split(b"\0", 2)
    return Place(space, Group(Partition(tenant.decode(), namespace.decode()), context), fingerprint)


def space_of(embedder: Embedder, form: str) -> bytes:
    """The space of an embedder's vectors, kept in numbers of this form."""
    name = f"{embedder.name}\0{embedder.dimensions}\0{form}"
    return hashlib.blake2b(name.encode(), digest_size=SPACE_BYTES).digest()


@dataclass(frozen=True)
class Alike:
    """A neighbour. similarity: inner product, as exact as the store's numbers are."""

    fingerprint: bytes
    similarity: float
    question: str


class VectorStore(Protocol):
    """Each method raises TierError where the store cannot be reached, answers too late, or answers nonsense."""

    @property
    def form(self) -> str:
        """Of the numbers: `fp32` or `q8`."""

    @property
    def number_bytes(self) -> int:
        """What a number of a vector takes."""

    async def begin(self) -> None:
        """To be called at the start, where a mistake should show. Raises InputError where the server is of another kind
        or too old."""

    async def add(self, place: Place, vector: Vectors, question: str) -> None:
        """In place of what is there. vector: shape (dimensions,), length 1."""

    async def nearest(self, space: bytes, group: Group, vector: Vectors, count: int) -> list[Alike]:
        """At most `count` of this space and group, most similar first; none where the group is empty."""

    async def remove(self, places: Sequence[Place]) -> None:
        """Those that are there."""

    async def clear(self, partition: Partition) -> None:
        """All of a partition, whatever the space."""

    async def close(self) -> None:
        """Lets go of connections."""
