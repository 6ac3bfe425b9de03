"""The semantic tier in this process by the contract of tiers that answer by meaning, and what is its alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict

import pytest

from caches.knobs import KnobSettings, KnobSpace
from caches.semantic.embedder import Embedder
from caches.semantic.index import Group
from caches.semantic.matching import MatchingOptions
from caches.semantic.questions import speaks
from caches.semantic.tier import SemanticOptions, SemanticTier
from caches.tiers.selection import Selection
from caches.tiers.tier import TierError
from tests.caches.semantic.toy import ENDLESS, HERE, START, ToyEmbedder, ask, say, space
from tests.contracts.meaning_contract import ALIKE, ASKED, MeaningContract, MeaningSubject


@asynccontextmanager
async def made(embedder: Embedder, space: KnobSpace, options: MatchingOptions) -> AsyncIterator[SemanticTier]:
    yield SemanticTier(embedder, space, options=SemanticOptions(**asdict(options), entry_overhead_bytes=0))


class TestByMeaning(MeaningContract):
    meaning = MeaningSubject(made)


def tier(
    embedder: Embedder | None = None,
    capacity: float = 1e6,
    ttl: float = ENDLESS,
    threshold: float | None = 0.8,
    **more: int,
) -> SemanticTier:
    options = SemanticOptions(threshold, **{"lowest_threshold": 0.5, "entry_overhead_bytes": 0, **more})  # type: ignore[arg-type]
    return SemanticTier(embedder or ToyEmbedder(), space(capacity, ttl), options=options)


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
    assert await t.clear(Selection(HERE)) == 5
    assert (len(t._index), (await t.stats()).used_bytes) == (0, 0)


async def test_bytes_are_body_question_and_vector() -> None:
    t = tier()
    await t.store(ask("größe"), say("1234"), START)
    assert (await t.stats()).used_bytes == 4 + 16 + 64 * 4  # the text in whole sixteens
    await t.clear(Selection(HERE))
    await t.store(ask(None), say("1234"), START)
    assert (await t.stats()).used_bytes == 4


@pytest.mark.parametrize(
    ("question", "expected"),
    [("two\nlines", True), (" spaced", True), ("a\n\n  \nb", True), ("", False), ("a\n  b", False), ("x" * 11, False)],
)
def test_short_prose_speaks(question: str, expected: bool) -> None:
    assert speaks(question, longest=10) == expected


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
