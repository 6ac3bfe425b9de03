"""The tier that also serves a question which means the same as one answered before.

A hit needs the same partition and context, a similarity at or above the threshold, and no veto of the guard. An equal
request is found by its fingerprint, without any of that. What is kept, how long and in which order it leaves is as in
the tier in memory; a question and its vector count as bytes beside the body.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from caches.errors import InputError
from caches.keys.request_key import Partition, RequestKey
from caches.knobs import KnobSpace
from caches.semantic.embedder import Embedder, Vectors
from caches.semantic.guard import veto_between
from caches.semantic.guard_reading import read
from caches.semantic.index import MATRIX_UP_TO, Group, VectorIndex
from caches.semantic.questions import QuestionVectors, speaks
from caches.semantic.shelf import Held, Shelf
from caches.tiers.limits import within
from caches.tiers.local import LocalTier
from caches.tiers.tier import Answer, Found

MOST_SIMILAR = 0.999999  # of another request: 1 says that the request was equal
VECTOR_NUMBER_BYTES = 4
TEXT_STEP_BYTES = 16  # memory is given out in steps, not by the byte


@dataclass(frozen=True)
class SemanticOptions:
    """similarity_threshold: at the start, in [0, 1]; None serves equal requests only. lowest_threshold: nobody can go
    below. candidates: neighbours that the guard may reject before a lookup misses. longest_question: in characters.
    entry_overhead_bytes: counted for each entry beside body, question and vector. most_removed: entries in one call.
    embed_timeout_seconds: for a slow embedder. matrix_up_to: see caches/semantic/index.py."""

    similarity_threshold: float | None = 0.9
    lowest_threshold: float = 0.7
    candidates: int = 8
    longest_question: int = 1_000
    entry_overhead_bytes: int = 1_024
    most_removed: int = 1_000
    embed_timeout_seconds: float = 2.0
    matrix_up_to: int = MATRIX_UP_TO


@dataclass(frozen=True)
class SemanticCounts:
    """Since the tier began. equal_hits + semantic_hits = hits. vetoes: neighbours similar enough that the guard
    rejected."""

    equal_hits: int = 0
    semantic_hits: int = 0
    vetoes: int = 0


class SemanticTier(LocalTier[Held]):
    """State changes only between two awaits."""

    def __init__(
        self,
        embedder: Embedder,
        space: KnobSpace,
        name: str = "semantic",
        options: SemanticOptions | None = None,
    ) -> None:
        self._embedder, self.options = embedder, options or SemanticOptions()
        begin, most = within(space.default(), space), self.options.most_removed
        self._shelf = Shelf(int(begin.cache_size), begin.ttl_seconds, most, self._forget)
        super().__init__(name, space, self._shelf, most)
        self._index = VectorIndex(embedder.dimensions, self.options.matrix_up_to)
        self._questions = QuestionVectors(embedder, self.options.embed_timeout_seconds)
        self._thresholds: dict[Partition, float | None] = {}
        self._threshold = self._allowed(self.options.similarity_threshold)
        self._counts: Counter[str] = Counter()

    # --- the threshold ---------------------------------------------------------------------------------------------

    def similarity_threshold(self, partition: Partition | None = None) -> float | None:
        """What binds for a partition, or for all that have none of their own. None: equal requests only."""
        return self._threshold if partition is None else self._thresholds.get(partition, self._threshold)

    def set_similarity_threshold(self, threshold: float | None, partition: Partition | None = None) -> float | None:
        """From the next lookup on; returns what was taken, at least the operator's lowest."""
        taken = self._allowed(threshold)
        if partition is None:
            self._threshold = taken
        else:
            self._thresholds[partition] = taken
        return taken

    def _allowed(self, threshold: float | None) -> float | None:
        if threshold is None:
            return None
        if not 0.0 <= threshold <= 1.0:
            raise InputError(f"similarity_threshold: got {threshold}, expected 0 to 1")
        return max(threshold, self.options.lowest_threshold)

    # --- the seam --------------------------------------------------------------------------------------------------

    async def lookup(self, key: RequestKey, now_seconds: float) -> Found | None:
        return (await self.batch_lookup([key], now_seconds))[0]

    async def batch_lookup(self, keys: Sequence[RequestKey], now_seconds: float) -> list[Found | None]:
        now = self._clock(now_seconds)
        vectors = await self._questions.of([key.question or "" for key in keys if self._needs_vector(key, now)])
        return [self._look_up(key, vectors.get(key.question or ""), now) for key in keys]

    async def store(self, key: RequestKey, answer: Answer, now_seconds: float) -> bool:
        return await self._keep(key, answer, now_seconds, warming=False)

    async def warm(self, key: RequestKey, answer: Answer, now_seconds: float) -> bool:
        return await self._keep(key, answer, now_seconds, warming=True)

    async def tend(self, now_seconds: float) -> bool:
        """As the seam says; and one group of vectors that has outgrown its structure is built anew, in a thread."""
        more = await super().tend(now_seconds)
        rebuild = self._index.plan()
        if rebuild is not None:
            await asyncio.to_thread(rebuild.run)
            self._index.adopt(rebuild)
        return more or rebuild is not None

    async def close(self) -> None:
        self._embedder.close()

    # --- beside the seam -------------------------------------------------------------------------------------------

    def counts(self) -> SemanticCounts:
        return SemanticCounts(**self._counts)

    def entry_bytes(self, key: RequestKey, answer: Answer) -> int:
        """What an entry counts for."""
        size = answer.size_bytes + self.options.entry_overhead_bytes
        if key.question is None or not self._speaks(key):
            return size
        text = -(-len(key.question.encode()) // TEXT_STEP_BYTES) * TEXT_STEP_BYTES
        return size + text + VECTOR_NUMBER_BYTES * self._embedder.dimensions

    @property
    def embedder_name(self) -> str:
        return self._embedder.name

    @property
    def vectors(self) -> VectorIndex:
        """Of the questions held; to be read only."""
        return self._index

    def entries(self) -> list[tuple[RequestKey, Answer]]:
        """What is held, least recently touched first."""
        return [(held.key, held.answer) for _, held in self._shelf.items()]

    async def restore(self, key: RequestKey, answer: Answer, vectors: VectorIndex | None, now_seconds: float) -> bool:
        """As `store`, with the question's vector from elsewhere where it is there, in place of the embedder."""
        vector = None
        if vectors is not None and key.question is not None and self._speaks(key):
            vector = vectors.vector(Group(key.partition, key.context), key.fingerprint)
        if vector is not None and key.question is not None:
            self._questions.remember(key.question, vector)
        return await self.store(key, answer, now_seconds)

    def _speaks(self, key: RequestKey) -> bool:
        return speaks(key.question, self.options.longest_question)

    def _needs_vector(self, key: RequestKey, now: float) -> bool:
        if self.similarity_threshold(key.partition) is None or not self._speaks(key):
            return False
        return self._shelf.fresh(key.id, now) is None

    def _look_up(self, key: RequestKey, vector: Vectors | None, now: float) -> Found | None:
        name, similarity = key.id, 1.0
        if vector is not None and self._shelf.fresh(name, now) is None:
            name, similarity = self._nearest(key, vector, now) or (name, similarity)
        held = self._shelf.get(name, now)  # counts
        if held is None:
            return None
        self._counts["equal_hits" if name == key.id else "semantic_hits"] += 1
        return Found(held.answer, similarity)

    def _nearest(self, key: RequestKey, vector: Vectors, now: float) -> tuple[bytes, float] | None:
        """Name and similarity of the most similar entry that may answer this question."""
        threshold = self.similarity_threshold(key.partition)
        group, asked = Group(key.partition, key.context), None
        for neighbour in self._index.search(group, vector, self.options.candidates):
            if threshold is None or neighbour.similarity < threshold:
                return None
            name = replace(key, fingerprint=neighbour.fingerprint).id
            held = self._shelf.fresh(name, now)
            if held is None or held.reading is None:
                continue
            asked = asked or read(key.question or "")
            if veto_between(asked, held.reading) is None:
                return name, min(neighbour.similarity, MOST_SIMILAR)
            self._counts["vetoes"] += 1
        return None

    async def _keep(self, key: RequestKey, answer: Answer, now_seconds: float, warming: bool) -> bool:
        now, size = self._clock(now_seconds), self.entry_bytes(key, answer)
        if answer.outlived(self._shelf.ttl_seconds, now):
            return False
        vector = None
        if self._speaks(key) and size <= self._shelf.capacity_bytes:
            vector = (await self._questions.of([key.question or ""]))[key.question or ""]
        group = None if vector is None else Group(key.partition, key.context)
        held = Held(key, answer, group, None if vector is None else read(key.question or ""))
        keep = self._shelf.warm if warming else self._shelf.put
        taken = keep(key.id, held, size, now, answer.ttl_seconds, answer.written_seconds)
        if taken and vector is not None and group is not None:
            self._index.add(group, key.fingerprint, vector)
        return taken

    def _forget(self, held: Held) -> None:
        if held.group is not None:
            self._index.remove(held.group, held.key.fingerprint)
