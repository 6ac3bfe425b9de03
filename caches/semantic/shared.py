"""The semantic tier that several processes share: entries in Redis or Valkey, vectors in a store of their own.

It serves what the tier in this process serves: an equal request by its fingerprint, without an embedding; else the most
similar question of the same partition and context, at or above the threshold and with no veto of the guard. Lifetime,
capacity and the order in which entries leave are those of the index mode, exact and the same for all processes.

A vector is added before its entry and removed after it. Removal is work for `tend`: an entry that leaves hands over a
note of where its vector lies, and so does a lookup that meets a vector without an entry. Where an entry is stored anew
in the very moment in which its old vector is removed, it can end up without one; then only equal requests find it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from caches.keys.request_key import RequestKey
from caches.knobs import KnobSettings
from caches.semantic.embedder import Embedder, Vectors
from caches.semantic.guard_reading import read
from caches.semantic.index import Group
from caches.semantic.matching import Matching, MatchingOptions
from caches.semantic.redis_entries import NotedEntries
from caches.semantic.store import Place, VectorStore, place_of, space_of
from caches.stats import CacheStats
from caches.tiers.selection import Selection
from caches.tiers.tier import Answer, Found

AT_ONCE = 32  # searches on their way


@dataclass(frozen=True)
class SharedOptions(MatchingOptions):
    """vector_overhead_bytes: counted for an entry with a vector, beside what one without counts, its question and the
    numbers of the vector; as measured on a Redis that keeps both, with 20 questions in a context. A context of a single
    question takes some 2 KiB more there."""

    vector_overhead_bytes: int = 1_000


class SharedSemanticTier(Matching):
    """`entries` has the knobs. Batches touch equal requests first, then those found by meaning. Without the store of
    vectors, equal requests are served and all others fail."""

    def __init__(
        self,
        embedder: Embedder,
        entries: NotedEntries,
        vectors: VectorStore,
        name: str = "semantic",
        options: SharedOptions | None = None,
    ) -> None:
        self.name, self.options = name, options or SharedOptions()
        super().__init__(embedder, self.options)
        self._entries, self._vectors = entries, vectors
        self._space = space_of(embedder, vectors.form)
        self._counts: Counter[str] = Counter()  # of requests; the entries count each step of one

    async def begin(self) -> None:
        """As `VectorStore.begin`."""
        await self._vectors.begin()

    async def lookup(self, key: RequestKey, now_seconds: float) -> Found | None:
        return (await self.batch_lookup([key], now_seconds))[0]

    async def batch_lookup(self, keys: Sequence[RequestKey], now_seconds: float) -> list[Found | None]:
        found = await self._entries.batch_lookup(keys, now_seconds)
        missed = [place for place, one in enumerate(found) if one is None and self._matches(keys[place])]
        vectors = await self._questions.of([keys[place].question or "" for place in missed])
        for first in range(0, len(missed), AT_ONCE):
            some = missed[first : first + AT_ONCE]
            near = (self._similar(keys[place], vectors[keys[place].question or ""], now_seconds) for place in some)
            for place, one in zip(some, await asyncio.gather(*near), strict=True):
                found[place] = one
        for one in found:
            self._count(one)
        return found

    async def holds(self, key: RequestKey, now_seconds: float) -> bool:
        return await self._entries.holds(key, now_seconds)

    async def store(self, key: RequestKey, answer: Answer, now_seconds: float) -> bool:
        size = self.entry_bytes(key, answer)
        if key.question is None or not self._speaks(key):
            return await self._entries.keep(key, answer, now_seconds, size, b"")
        vector = (await self._questions.of([key.question]))[key.question]
        if not vector.any():  # it is like nothing
            return await self._entries.keep(key, answer, now_seconds, size, b"")
        place = Place(self._space, Group(key.partition, key.context), key.fingerprint)
        await self._vectors.add(place, vector, key.question)
        taken = await self._entries.keep(key, answer, now_seconds, size, place.note)
        if not taken:
            await self._entries.leave(key, place.note)
        return taken

    async def warm(self, key: RequestKey, answer: Answer, now_seconds: float) -> bool:
        taken = await self.store(key, answer, now_seconds)
        self._counts.update(warmups=int(taken))
        return taken

    async def delete(self, key: RequestKey) -> bool:
        return await self._entries.delete(key)

    async def clear(self, selection: Selection) -> int:
        """As the seam says; the vectors go with the entries, so their questions are gone too when this returns."""
        gone = await self._entries.clear(selection)
        if selection.whole:
            await self._vectors.clear(selection.partition)
        while await self._entries.hand_over(self._forget):
            pass
        return gone

    async def count(self, selection: Selection) -> int:
        return await self._entries.count(selection)

    async def apply(self, settings: KnobSettings, now_seconds: float) -> KnobSettings:
        return await self._entries.apply(settings, now_seconds)

    async def settings(self) -> KnobSettings:
        return await self._entries.settings()

    async def tend(self, now_seconds: float) -> bool:
        """As the seam says; and the vectors of entries that have left are removed, a bounded number."""
        more = await self._entries.tend(now_seconds)
        return await self._entries.hand_over(self._forget) or more

    async def stats(self) -> CacheStats:
        found = await self._entries.stats()
        hits, misses, hit_bytes = (self._counts[name] for name in ("hits", "misses", "hit_bytes"))
        return replace(found, hits=hits, misses=misses, hit_bytes=hit_bytes, warmups=self._counts["warmups"])

    async def close(self) -> None:
        self._embedder.close()
        await self._vectors.close()
        await self._entries.close()

    def entry_bytes(self, key: RequestKey, answer: Answer) -> int:
        """What an entry counts for."""
        size, question = self._entries.entry_bytes(key, answer), self._question_bytes(key, self._vectors.number_bytes)
        return size + question + self.options.vector_overhead_bytes if question else size

    async def _similar(self, key: RequestKey, vector: Vectors, now: float) -> Found | None:
        """The answer of the most similar entry that may answer this question."""
        if not vector.any():
            return None
        group = Group(key.partition, key.context)
        near = await self._vectors.nearest(self._space, group, vector, self.options.candidates)
        ours = (one for one in near if self._same_side(key, replace(key, fingerprint=one.fingerprint)))
        readable = ((one, one.similarity, read(one.question)) for one in ours)
        for one, similarity in self._may_answer(key, readable):
            other = replace(key, fingerprint=one.fingerprint)
            found = await self._entries.lookup(other, now)
            if found is not None:
                return replace(found, similarity=similarity)
            await self._entries.leave(other, Place(self._space, group, one.fingerprint).note)
        return None

    def _count(self, found: Found | None) -> None:
        self._counts.update(hits=int(found is not None), misses=int(found is None))
        if found is not None:
            self._counts.update(hit_bytes=found.answer.size_bytes)
            self._matched["equal_hits" if found.similarity == 1.0 else "semantic_hits"] += 1

    async def _forget(self, notes: Sequence[bytes]) -> None:
        await self._vectors.remove([place_of(note) for note in notes])
