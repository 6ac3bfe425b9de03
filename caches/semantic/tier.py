"""The tier that also serves a question which means the same as one answered before.

A hit needs the same partition and context, a similarity at or above the threshold, and no veto of the guard. An equal
request is found by its fingerprint, without any of that. What is kept, how long and in which order it leaves is as in
the tier in memory; a question and its vector count as bytes beside the body.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from caches.keys.by_name import ByName
from caches.keys.request_key import RequestKey
from caches.knobs import KnobSpace
from caches.semantic.embedder import Embedder, Vectors
from caches.semantic.guard_reading import Reading
from caches.semantic.index import MATRIX_UP_TO, Group, Neighbour, VectorIndex
from caches.semantic.lemmas import Lemmas
from caches.semantic.matching import MOST_SIMILAR, Matching, MatchingOptions
from caches.semantic.rows import MakeRows
from caches.semantic.shelf import Held, Shelf
from caches.semantic.twins import Twins
from caches.tiers.limits import within
from caches.tiers.local import LocalTier
from caches.tiers.selection import label_bytes
from caches.tiers.tier import Answer, Found


@dataclass(frozen=True)
class SemanticOptions(MatchingOptions):
    """entry_overhead_bytes: counted for each entry beside body, labels, question and vector. most_removed: entries in
    one call. matrix_up_to, make_rows: see caches/semantic/index.py. lemmas: of a namespace; a question that has the
    form of one answered is then served without its vector, by the guard alone. None: in no namespace."""

    entry_overhead_bytes: int = 1_024
    most_removed: int = 1_000
    matrix_up_to: int = MATRIX_UP_TO
    make_rows: MakeRows | None = None
    lemmas: ByName[Lemmas | None] | None = None


class SemanticTier(Matching, LocalTier[Held]):
    """State changes only between two awaits."""

    def __init__(
        self,
        embedder: Embedder,
        space: KnobSpace,
        name: str = "semantic",
        options: SemanticOptions | None = None,
    ) -> None:
        self.options = options or SemanticOptions()
        Matching.__init__(self, embedder, self.options)
        begin, most = within(space.default(), space), self.options.most_removed
        self._shelf = Shelf(int(begin.cache_size), begin.ttl_seconds, most, self._forget)
        LocalTier.__init__(self, name, space, self._shelf, most)
        self._index = VectorIndex(embedder.dimensions, self.options.matrix_up_to, self.options.make_rows)
        self._twins = Twins()

    # --- the seam --------------------------------------------------------------------------------------------------

    async def lookup(self, key: RequestKey, now_seconds: float) -> Found | None:
        return (await self.batch_lookup([key], now_seconds))[0]

    async def batch_lookup(self, keys: Sequence[RequestKey], now_seconds: float) -> list[Found | None]:
        now = self._clock(now_seconds)
        twins = {} if self.options.lemmas is None else self._twins_of(keys, now)
        alone = [key for key in keys if key.id not in twins]
        vectors = await self._questions.of([key.question or "" for key in alone if self._needs_vector(key, now)])
        return [self._look_up(key, vectors.get(key.question or ""), now, twins.get(key.id)) for key in keys]

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

    def entry_bytes(self, key: RequestKey, answer: Answer) -> int:
        """What an entry counts for."""
        return answer.size_bytes + label_bytes(key) + self._question_bytes(key) + self.options.entry_overhead_bytes

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

    def _needs_vector(self, key: RequestKey, now: float) -> bool:
        return self._matches(key) and self._shelf.fresh(key.id, now) is None

    def _look_up(self, key: RequestKey, vector: Vectors | None, now: float, twin: bytes | None = None) -> Found | None:
        name, similarity = key.id, 1.0
        if twin is not None and self._shelf.fresh(name, now) is None:
            name, similarity = twin, MOST_SIMILAR
        elif vector is not None and self._shelf.fresh(name, now) is None:
            name, similarity = self._nearest(key, vector, now) or (name, similarity)
        held = self._shelf.get(name, now)  # counts
        if held is None:
            return None
        self._matched["equal_hits" if name == key.id else "semantic_hits"] += 1
        return Found(held.answer, similarity, held.key.tags)

    def _nearest(self, key: RequestKey, vector: Vectors, now: float) -> tuple[bytes, float] | None:
        """Name and similarity of the most similar entry that may answer this question."""
        near = self._index.search(Group(key.partition, key.context), vector, self.options.candidates)
        return next(self._may_answer(key, self._readable(key, near, now)), None)

    def _twins_of(self, keys: Sequence[RequestKey], now: float) -> dict[bytes, bytes]:
        """From the ids of requests that are not held to the names of entries with a question of the same form that may
        answer."""
        found = {}
        for key in keys:
            lemmas = self._lemmas_of(key)
            if lemmas is None or not self._needs_vector(key, now):
                continue
            asked, group = self._read(key.question or ""), Group(key.partition, key.context)
            form = lemmas.form(asked)
            near = (Neighbour(one, MOST_SIMILAR) for one in self._twins.of(group, form)) if form is not None else ()
            agreed = (name for name, _, reading in self._readable(key, near, now) if self._agree(asked, reading))
            name = next(agreed, None)
            if name is not None:
                found[key.id] = name
        return found

    def _lemmas_of(self, key: RequestKey) -> Lemmas | None:
        return None if self.options.lemmas is None else self.options.lemmas.of(key.partition.namespace)

    def _readable(
        self, key: RequestKey, near: Iterable[Neighbour], now: float
    ) -> Iterator[tuple[bytes, float, Reading]]:
        """Those of the key's side that are not too old, by name."""
        for neighbour in near:
            other = replace(key, fingerprint=neighbour.fingerprint)
            held = self._shelf.fresh(other.id, now)
            if held is not None and held.reading is not None and self._same_side(key, other):
                yield other.id, neighbour.similarity, held.reading

    async def _keep(self, key: RequestKey, answer: Answer, now_seconds: float, warming: bool) -> bool:
        now, size = self._clock(now_seconds), self.entry_bytes(key, answer)
        if answer.outlived(self._shelf.ttl_seconds, now):
            return False
        vector = None
        if self._speaks(key) and size <= self._shelf.capacity_bytes:
            vector = (await self._questions.of([key.question or ""]))[key.question or ""]
        group = None if vector is None else Group(key.partition, key.context)
        reading, lemmas = (None if vector is None else self._read(key.question or "")), self._lemmas_of(key)
        form = None if reading is None or lemmas is None else lemmas.form(reading)
        held = Held(key, answer, group, reading, form)
        keep = self._shelf.warm if warming else self._shelf.put
        taken = keep(key.id, held, size, now, answer.ttl_seconds, answer.written_seconds)
        if taken and vector is not None and group is not None:
            self._index.add(group, key.fingerprint, vector)
            if form is not None:
                self._twins.add(group, form, key.fingerprint)
        return taken

    def _forget(self, held: Held) -> None:
        if held.group is not None:
            self._index.remove(held.group, held.key.fingerprint)
            if held.form is not None:
                self._twins.remove(held.group, held.form, held.key.fingerprint)
