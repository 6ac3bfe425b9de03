"""One contract for every tier that answers by meaning, beside the one of all tiers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass

import pytest

from caches.errors import InputError
from caches.keys.request_key import Partition, RequestKey
from caches.knobs import KnobSettings, KnobSpace
from caches.semantic.embedder import Embedder
from caches.semantic.matching import MOST_SIMILAR, MatchingOptions, SemanticCounts
from caches.semantic.shared import SharedSemanticTier
from caches.semantic.tier import SemanticTier
from caches.semantic.wordllama_embedder import WordLlamaEmbedder
from caches.tiers.tier import TierError
from tests.caches.semantic.toy import ENDLESS, HERE, START, ToyEmbedder, ask, say, space

ALIKE, ASKED = "how can i reset my password", "how do i reset my password"  # 5 of 6 words: 5/6
MeaningTier = SemanticTier | SharedSemanticTier


@dataclass(frozen=True)
class MeaningSubject:
    """make: an empty tier with these options. tolerance: of its similarities."""

    make: Callable[[Embedder, KnobSpace, MatchingOptions], AbstractAsyncContextManager[MeaningTier]]
    tolerance: float = 1e-6


class MeaningContract:
    """Subclass it in a test module, with a fixture or attribute `meaning`."""

    meaning: MeaningSubject

    @asynccontextmanager
    async def made(
        self,
        embedder: Embedder | None = None,
        capacity: float = 1e6,
        ttl: float = ENDLESS,
        threshold: float | None = 0.8,
        longest_question: int = 1_000,
        side_of: Callable[[RequestKey], Hashable] | None = None,
    ) -> AsyncIterator[MeaningTier]:
        options = MatchingOptions(
            threshold,
            lowest_threshold=0.5,
            highest_threshold=0.95,
            longest_question=longest_question,
            side_of=side_of,
        )
        async with self.meaning.make(embedder or ToyEmbedder(), space(capacity, ttl), options) as tier:
            yield tier

    async def test_a_question_that_means_the_same_hits_and_says_how_similar_it_is(self) -> None:
        async with self.made() as t:
            await t.store(ask(ASKED), say("thus"), START)
            found = await t.lookup(ask(ALIKE), START)
            assert found is not None
            assert (found.answer.body, found.similarity) == (b"thus", pytest.approx(5 / 6, abs=self.meaning.tolerance))
            assert ((await t.stats()).hits, (await t.stats()).misses) == (1, 0)

    async def test_equal_requests_are_found_without_the_embedder(self) -> None:
        toy = ToyEmbedder()
        async with self.made(toy) as t:
            await t.store(ask(ASKED), say("thus"), START)
            toy.broken = True
            found = await t.lookup(ask(ASKED), START)
            assert found is not None
            assert found.similarity == 1.0
            assert t.counts() == SemanticCounts(equal_hits=1)

    async def test_only_an_equal_request_has_similarity_one(self) -> None:
        async with self.made() as t:
            await t.store(ask("Reset my password"), say("thus"), START)
            found = await t.lookup(ask("reset my password?"), START)
            assert found is not None
            assert found.similarity == pytest.approx(MOST_SIMILAR, abs=self.meaning.tolerance)
            assert found.similarity <= MOST_SIMILAR < 1.0

    async def test_a_veto_goes_on_to_the_next_candidate(self) -> None:
        async with self.made(threshold=0.6) as t:
            await t.store(ask("how do i not reset my password"), say("wrong"), START)
            await t.store(ask("how could one reset my password"), say("right"), START)
            found = await t.lookup(ask(ASKED), START)
            assert found is not None
            assert found.answer.body == b"right"
            assert t.counts() == SemanticCounts(semantic_hits=1, vetoes=1)

    async def test_swapped_currencies_never_share_an_answer(self) -> None:
        async with self.made(WordLlamaEmbedder()) as t:
            await t.store(ask("What is 10 USD to EUR?"), say("9 EUR"), START)
            assert await t.lookup(ask("What is 10 EUR to USD?"), START) is None
            found = await t.lookup(ask("what is 10 USD to EUR"), START)
            assert found is not None
            assert found.answer.body == b"9 EUR"

    async def test_neither_partition_nor_context_is_crossed(self) -> None:
        async with self.made() as t:
            await t.store(ask(ASKED), say("thus"), START)
            for tenant, namespace, context in (("b", "x", b"c"), ("a", "y", b"c"), ("a", "x", b"d")):
                for question in (ALIKE, ASKED):
                    assert await t.lookup(ask(question, Partition(tenant, namespace), context), START) is None

    async def test_a_question_is_answered_by_entries_of_its_side_only_as_sides_are_now(self) -> None:
        sides = {ask(ALIKE).id: "right", ask(ASKED).id: "left"}
        async with self.made(side_of=lambda key: sides[key.id]) as t:
            await t.store(ask(ASKED), say("thus"), START)
            assert await t.lookup(ask(ALIKE), START) is None
            assert await t.lookup(ask(ASKED), START) is not None
            sides[ask(ALIKE).id] = "left"
            found = await t.lookup(ask(ALIKE), START)
            assert found is not None
            assert (found.answer.body, found.similarity) == (b"thus", pytest.approx(5 / 6, abs=self.meaning.tolerance))

    async def test_behind_an_entry_of_the_other_side_the_next_one_answers(self) -> None:
        """The nearer one is of the other side, and no veto."""
        near, far = ask("how do i reset my password"), ask("now how do i reset my password")
        async with self.made(threshold=0.6, side_of=lambda key: key.id == near.id) as t:
            await t.store(near, say("near"), START)
            await t.store(far, say("far"), START)
            found = await t.lookup(ask(ALIKE), START)
            assert found is not None
            assert found.answer.body == b"far"
            assert t.counts() == SemanticCounts(semantic_hits=1)

    async def test_a_similar_hit_touches_the_entry_that_answered(self) -> None:
        async with self.made() as t:
            each = t.entry_bytes(ask(ASKED), say("old."))
            await t.apply(KnobSettings(2.0 * each, ENDLESS, 0.0), START)
            await t.store(ask(ASKED), say("old."), START)
            await t.store(ask("where is the station now"), say("new."), START)
            assert await t.lookup(ask(ALIKE), START) is not None
            await t.store(ask("who wrote this long poem"), say("late"), START)  # pushes the least recently touched out
            assert await t.lookup(ask(ALIKE), START) is not None
            assert await t.lookup(ask("where is the station now"), START) is None

    async def test_what_is_too_old_is_not_served_to_a_similar_question_either(self) -> None:
        async with self.made(ttl=10.0) as t:
            await t.store(ask(ASKED), say("thus"), START)
            await t.store(ask("please how do i reset my password"), say("own", ttl=3.0), START)
            assert await t.lookup(ask(ALIKE), START + 9) is not None
            await t.apply(KnobSettings(1e6, 5.0, 0.0), START + 9)
            assert await t.lookup(ask(ALIKE), START + 9) is None

    async def test_no_question_no_embedding(self) -> None:
        toy = ToyEmbedder()
        async with self.made(toy, longest_question=20) as t:
            for question in (None, "a question longer than twenty characters", "fix:\n```x```", "if a:\n    b"):
                assert await t.lookup(ask(question), START) is None
                await t.store(ask(question), say("x"), START)
                assert await t.lookup(ask(question), START) is not None
                await t.delete(ask(question))
            assert toy.calls == []

    async def test_a_miss_and_its_store_embed_once_and_a_batch_does_so_at_once(self) -> None:
        toy = ToyEmbedder()
        async with self.made(toy) as t:
            await t.lookup(ask(ASKED), START)
            await t.store(ask(ASKED), say("x"), START)
            assert toy.calls == [[ASKED]]
            found = await t.batch_lookup([ask("b"), ask(ASKED), ask(ALIKE), ask("b"), ask(None)], START)
            assert toy.calls[1:] == [["b", ALIKE]]
            assert [one is not None for one in found] == [False, True, True, False, False]

    async def test_a_broken_embedder_changes_nothing(self) -> None:
        toy = ToyEmbedder()
        async with self.made(toy) as t:
            toy.broken = True
            for call in (t.lookup(ask(ASKED), START), t.store(ask(ASKED), say("x"), START)):
                with pytest.raises(TierError):
                    await call
            stats = await t.stats()
            assert (stats.entries, stats.used_bytes, stats.requests) == (0, 0, 0)
            toy.broken = False
            assert await t.store(ask(ASKED), say("x"), START)

    async def test_the_threshold_can_be_moved_and_read_back_but_not_out_of_the_operators_range(self) -> None:
        async with self.made(threshold=0.9) as t:
            other = Partition("b", "x")
            for partition in (HERE, other):
                await t.store(ask(ASKED, partition), say("x"), START)
            assert await t.lookup(ask(ALIKE), START) is None
            assert (t.set_similarity_threshold(0.1), t.similarity_threshold()) == (0.5, 0.5)
            assert await t.lookup(ask(ALIKE), START) is not None
            assert t.set_similarity_threshold(None, other) is None
            assert (t.similarity_threshold(other), t.similarity_threshold(HERE)) == (None, 0.5)
            assert (t.set_similarity_threshold(0.99, HERE), t.similarity_threshold(HERE)) == (0.95, 0.95)
            assert t.set_similarity_threshold(0.5, HERE) == 0.5
            assert await t.lookup(ask(ALIKE, other), START) is None
            assert await t.lookup(ask(ASKED, other), START) is not None
            with pytest.raises(InputError, match="similarity_threshold"):
                t.set_similarity_threshold(1.5)

    async def test_without_a_threshold_lookups_embed_nothing(self) -> None:
        toy = ToyEmbedder()
        async with self.made(toy, threshold=None) as t:
            await t.lookup(ask(ASKED), START)
            assert toy.calls == []

    async def test_closing_closes_the_embedder(self) -> None:
        toy = ToyEmbedder()
        async with self.made(toy) as t:
            await t.close()
            assert toy.closed
