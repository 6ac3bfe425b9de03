"""What the contract of tiers does not cover: questions that mean the same, and what they cost."""

from __future__ import annotations

import asyncio

import pytest

from caches.errors import InputError
from caches.keys.request_key import Partition
from caches.knobs import KnobSettings
from caches.semantic.embedder import Embedder
from caches.semantic.index import Group
from caches.semantic.questions import speaks
from caches.semantic.tier import MOST_SIMILAR, SemanticCounts, SemanticOptions, SemanticTier
from caches.semantic.wordllama_embedder import WordLlamaEmbedder
from caches.tiers.tier import Tier, TierError
from tests.caches.semantic.toy import ENDLESS, HERE, START, ToyEmbedder, ask, say, space

ALIKE, ASKED = "how can i reset my password", "how do i reset my password"  # 5 of 6 words: 5/6


def tier(
    embedder: Embedder | None = None,
    capacity: float = 1e6,
    ttl: float = ENDLESS,
    threshold: float | None = 0.8,
    **more: int,
) -> SemanticTier:
    options = SemanticOptions(threshold, **{"lowest_threshold": 0.5, "entry_overhead_bytes": 0, **more})  # type: ignore[arg-type]
    return SemanticTier(embedder or ToyEmbedder(), space(capacity, ttl), options=options)


async def test_a_question_that_means_the_same_hits_and_says_how_similar_it_is() -> None:
    t: Tier = tier()
    await t.store(ask(ASKED), say("thus"), START)
    found = await t.lookup(ask(ALIKE), START)
    assert found is not None
    assert (found.answer.body, found.similarity) == (b"thus", pytest.approx(5 / 6))
    assert (await t.stats()).hits == 1


async def test_equal_requests_are_found_without_the_embedder() -> None:
    toy = ToyEmbedder()
    t = tier(toy)
    await t.store(ask(ASKED), say("thus"), START)
    toy.broken = True
    found = await t.lookup(ask(ASKED), START)
    assert found is not None
    assert found.similarity == 1.0
    assert t.counts() == SemanticCounts(equal_hits=1)


async def test_only_an_equal_request_has_similarity_one() -> None:
    t = tier()
    await t.store(ask("Reset my password"), say("thus"), START)
    found = await t.lookup(ask("reset my password?"), START)
    assert found is not None
    assert found.similarity == MOST_SIMILAR < 1.0


async def test_a_veto_goes_on_to_the_next_candidate() -> None:
    t = tier(threshold=0.6)
    await t.store(ask("how do i not reset my password"), say("wrong"), START)
    await t.store(ask("how could one reset my password"), say("right"), START)
    found = await t.lookup(ask(ASKED), START)
    assert found is not None
    assert found.answer.body == b"right"
    assert t.counts() == SemanticCounts(semantic_hits=1, vetoes=1)


async def test_swapped_currencies_never_share_an_answer() -> None:
    t = tier(WordLlamaEmbedder())
    await t.store(ask("What is 10 USD to EUR?"), say("9 EUR"), START)
    assert await t.lookup(ask("What is 10 EUR to USD?"), START) is None
    found = await t.lookup(ask("what is 10 USD to EUR"), START)
    assert found is not None
    assert found.answer.body == b"9 EUR"


async def test_neither_partition_nor_context_is_crossed() -> None:
    t = tier()
    await t.store(ask(ASKED), say("thus"), START)
    for tenant, namespace, context in (("b", "x", b"c"), ("a", "y", b"c"), ("a", "x", b"d")):
        for question in (ALIKE, ASKED):
            assert await t.lookup(ask(question, Partition(tenant, namespace), context), START) is None


async def test_a_similar_hit_touches_the_entry_that_answered() -> None:
    t = tier(capacity=0.0 + 2 * (64 * 4 + 32 + 4))
    await t.store(ask(ASKED), say("old."), START)
    await t.store(ask("where is the station now"), say("new."), START)
    assert await t.lookup(ask(ALIKE), START) is not None
    await t.store(ask("who wrote this long poem"), say("late"), START)  # pushes out what was touched least recently
    assert await t.lookup(ask(ALIKE), START) is not None
    assert await t.lookup(ask("where is the station now"), START) is None


async def test_what_is_too_old_is_not_served_to_a_similar_question_either() -> None:
    t = tier(ttl=10.0)
    await t.store(ask(ASKED), say("thus"), START)
    await t.store(ask("please how do i reset my password"), say("own", ttl=3.0), START)
    assert await t.lookup(ask(ALIKE), START + 9) is not None
    await t.apply(KnobSettings(1e6, 5.0, 0.0), START + 9)
    assert await t.lookup(ask(ALIKE), START + 9) is None
    while await t.tend(START + 9):
        pass
    assert t._index.groups() == []


async def test_vectors_leave_with_their_entries() -> None:
    t = tier()
    for question in (ASKED, "where is the station", "who wrote it"):
        await t.store(ask(question), say("x"), START)
        await t.store(ask(question, context=b"d"), say("x"), START)
    assert await t.delete(ask(ASKED))
    assert not await t.delete(ask(ASKED))
    assert await t.lookup(ask(ALIKE), START) is None
    assert len(t._index) == 5
    assert await t.clear(HERE) == 5
    assert (len(t._index), (await t.stats()).used_bytes) == (0, 0)


async def test_bytes_are_body_question_and_vector() -> None:
    t = tier()
    await t.store(ask("größe"), say("1234"), START)
    assert (await t.stats()).used_bytes == 4 + 16 + 64 * 4  # the text in whole sixteens
    await t.clear(HERE)
    await t.store(ask(None), say("1234"), START)
    assert (await t.stats()).used_bytes == 4


async def test_no_question_no_embedding() -> None:
    toy = ToyEmbedder()
    t = tier(toy, longest_question=20)
    for question in (None, "a question longer than twenty characters", "fix:\n```x```", "if a:\n    b"):
        assert await t.lookup(ask(question), START) is None
        await t.store(ask(question), say("x"), START)
        assert await t.lookup(ask(question), START) is not None
        await t.delete(ask(question))
    assert toy.calls == []


@pytest.mark.parametrize(
    ("question", "expected"),
    [("two\nlines", True), (" spaced", True), ("a\n\n  \nb", True), ("", False), ("a\n  b", False), ("x" * 11, False)],
)
def test_short_prose_speaks(question: str, expected: bool) -> None:
    assert speaks(question, longest=10) == expected


async def test_a_miss_and_its_store_embed_once_and_a_batch_does_so_at_once() -> None:
    toy = ToyEmbedder()
    t = tier(toy)
    await t.lookup(ask(ASKED), START)
    await t.store(ask(ASKED), say("x"), START)
    assert toy.calls == [[ASKED]]
    found = await t.batch_lookup([ask("b"), ask(ASKED), ask(ALIKE), ask("b"), ask(None)], START)
    assert toy.calls[1:] == [["b", ALIKE]]
    assert [one is not None for one in found] == [False, True, True, False, False]


async def test_a_broken_embedder_changes_nothing() -> None:
    toy = ToyEmbedder()
    t = tier(toy)
    toy.broken = True
    for call in (t.lookup(ask(ASKED), START), t.store(ask(ASKED), say("x"), START)):
        with pytest.raises(TierError):
            await call
    stats = await t.stats()
    assert (stats.entries, stats.used_bytes, stats.requests) == (0, 0, 0)
    toy.broken = False
    assert await t.store(ask(ASKED), say("x"), START)


async def test_a_slow_embedder_has_a_thread_and_a_deadline() -> None:
    toy = ToyEmbedder(slow=True, takes_seconds=0.2)
    options = SemanticOptions(0.8, embed_timeout_seconds=0.01)
    t = SemanticTier(toy, space(), options=options)
    with pytest.raises(TierError, match="within"):
        await t.lookup(ask(ASKED), START)
    patient = SemanticTier(toy, space())
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.01)
            ticks += 1

    ticking = asyncio.create_task(tick())
    await patient.lookup(ask(ASKED), START)
    ticking.cancel()
    assert ticks > 3  # the loop went on


async def test_the_threshold_can_be_moved_and_read_back_but_not_below_the_operators() -> None:
    t = tier(threshold=0.9)
    other = Partition("b", "x")
    for partition in (HERE, other):
        await t.store(ask(ASKED, partition), say("x"), START)
    assert await t.lookup(ask(ALIKE), START) is None
    assert (t.set_similarity_threshold(0.1), t.similarity_threshold()) == (0.5, 0.5)
    assert await t.lookup(ask(ALIKE), START) is not None
    assert t.set_similarity_threshold(None, other) is None
    assert (t.similarity_threshold(other), t.similarity_threshold(HERE)) == (None, 0.5)
    assert await t.lookup(ask(ALIKE, other), START) is None
    assert await t.lookup(ask(ASKED, other), START) is not None
    with pytest.raises(InputError, match="similarity_threshold"):
        t.set_similarity_threshold(1.5)


async def test_without_a_threshold_lookups_embed_nothing() -> None:
    toy = ToyEmbedder()
    t = tier(toy, threshold=None)
    await t.lookup(ask(ASKED), START)
    assert toy.calls == []


async def test_tending_builds_cells_for_a_group_that_has_grown() -> None:
    t = tier(matrix_up_to=8)
    for number in range(12):
        await t.store(ask(f"word{number} another{number}"), say(str(number)), START)
    assert await t.tend(START)
    assert not await t.tend(START)
    assert type(t._index._groups[Group(HERE, b"c".ljust(32, b"."))].rows).__name__ == "Cells"
    found = await t.lookup(ask("word7 another7 ?"), START)
    assert found is not None
    assert found.answer.body == b"7"


async def test_closing_closes_the_embedder() -> None:
    toy = ToyEmbedder()
    await tier(toy).close()
    assert toy.closed
