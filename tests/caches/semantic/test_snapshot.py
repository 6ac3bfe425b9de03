from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from caches.errors import InputError
from caches.keys.request_key import Partition
from caches.semantic.snapshot import ENTRIES, VECTORS, load_tier, save_tier
from caches.semantic.tier import SemanticOptions, SemanticTier
from caches.tiers.tier import Answer
from tests.caches.semantic.toy import START, ToyEmbedder, ask, say, space

FULL = Answer(bytes(range(256)), START - 5.0, 60.0, 12, 34, 0.5)


def tier(toy: ToyEmbedder, capacity: float = 1e6) -> SemanticTier:
    return SemanticTier(toy, space(capacity), options=SemanticOptions(0.75))


async def filled(toy: ToyEmbedder) -> SemanticTier:
    t = tier(toy)
    await t.store(replace(ask("how do i reset my password"), model="m", tags=frozenset("ab")), FULL, START)
    await t.store(ask(None), say("no question"), START)
    await t.store(ask("where is it", Partition("b", "ö")), say("there"), START)
    await t.lookup(ask(None), START)
    return t


async def test_what_was_saved_comes_back_in_order_without_the_embedder(tmp_path: Path) -> None:
    toy = ToyEmbedder()
    before = await filled(toy)
    assert save_tier(before, tmp_path / "folder") == 3
    toy.calls.clear()
    after = tier(toy)
    assert await load_tier(after, tmp_path / "folder", START + 1) == 3
    assert after.entries() == before.entries()
    assert (await after.stats()).used_bytes == (await before.stats()).used_bytes
    assert toy.calls == []
    found = await after.lookup(ask("how can i reset my password"), START + 1)
    assert found is not None
    assert found.answer == FULL
    assert {file.stat().st_mode & 0o777 for file in (tmp_path / "folder").iterdir()} == {0o600}


async def test_only_what_still_fits_and_is_young_enough_comes_back(tmp_path: Path) -> None:
    toy = ToyEmbedder()
    save_tier(await filled(toy), tmp_path)
    after = tier(toy, capacity=1_100.0)
    assert await load_tier(after, tmp_path, START + 100) == 1
    assert [answer.body for _, answer in after.entries()] == [b"no question"]


@pytest.mark.parametrize("other", ["name", "file"])
async def test_vectors_that_are_not_this_embedders_are_made_anew(tmp_path: Path, other: str) -> None:
    toy = ToyEmbedder()
    save_tier(await filled(toy), tmp_path)
    if other == "file":
        (tmp_path / VECTORS).unlink()
    else:
        toy.name = "another"
    toy.calls.clear()
    after = tier(toy)
    assert await load_tier(after, tmp_path, START) == 3
    assert len(toy.calls) == 2
    assert await after.lookup(ask("how can i reset my password"), START) is not None


async def test_nothing_saved_is_nothing_loaded_and_a_broken_file_is_named(tmp_path: Path) -> None:
    t = tier(ToyEmbedder())
    assert await load_tier(t, tmp_path, START) == 0
    (tmp_path / ENTRIES).write_bytes(b'{"tenant": "a"}\n')
    with pytest.raises(InputError, match="line 1"):
        await load_tier(t, tmp_path, START)
