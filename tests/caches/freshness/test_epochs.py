"""Epochs: which entries are outdated, where their beginnings are kept, and how processes join them."""

from __future__ import annotations

import asyncio
import itertools
import stat
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caches.errors import InputError
from caches.freshness.epoch_file import EpochFile
from caches.freshness.epoch_keeping import EpochKeeping
from caches.freshness.epoch_redis import RedisEpochs
from caches.freshness.epochs import Epochs, EpochStore, EpochsUnavailable
from caches.tiers.redis_connection import connect
from caches.tiers.selection import Selection
from tests.contracts.epoch_store_contract import A, B, EpochStoreContract
from tests.contracts.tier_contract import key_of
from tests.servers import free_port, patient

WHEN = st.floats(1e9, 2e9)
MODELS, TAGS = st.sampled_from([None, "model 0", "model 1"]), st.sampled_from([None, "red", "blue"])
FLUSHES = st.lists(st.tuples(st.integers(0, 1), MODELS, TAGS, WHEN), max_size=6)
ENTRIES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1), st.sets(st.sampled_from(["red", "blue"])), WHEN))
PARTITIONS = (key_of(0).partition, key_of(0, 1).partition)


@given(flushes=FLUSHES, entries=ENTRIES)
def test_an_entry_is_outdated_where_any_flush_that_takes_it_is_younger(flushes: list, entries: list) -> None:  # type: ignore[type-arg]
    epochs, begun = Epochs(), []
    assert not epochs
    for partition, model, tag, at in flushes:
        selection = Selection(PARTITIONS[partition], model, tag)
        epochs.begin(selection, at)
        begun.append((selection, at))
    assert bool(epochs) == bool(flushes)
    for number, partition, tags, written in entries:
        key = key_of(number, partition, tuple(sorted(tags)))
        expected = any(selection.takes(key) and written <= at for selection, at in begun)
        assert epochs.outdated(key, written) == expected


@given(flushes=FLUSHES, cut=st.integers(0, 6))
def test_joined_in_any_order_they_are_the_same(flushes: list, cut: int) -> None:  # type: ignore[type-arg]
    named = [(Selection(PARTITIONS[p], model, tag), at) for p, model, tag, at in flushes]
    one, other = Epochs(), Epochs()
    for selection, at in named:
        one.begin(selection, at)
    for part in (named[cut:], named[:cut]):
        for selection, at in part:
            other.join({selection: at})
    assert one.begun() == other.begun()
    assert not other.join(one.begun())


def test_what_no_entry_can_be_as_old_as_is_forgotten() -> None:
    epochs = Epochs(keep_seconds=100.0)
    epochs.begin(Selection(A), 1_000.0)
    epochs.begin(Selection(B, tag="t"), 1_050.0)
    epochs.forget(1_100.0)
    assert set(epochs.begun()) == {Selection(A), Selection(B, tag="t")}
    epochs.forget(1_100.5)
    assert set(epochs.begun()) == {Selection(B, tag="t")}
    epochs.forget(1_151.0)
    assert not epochs
    with pytest.raises(InputError, match=r"keep_seconds: got 0"):
        Epochs(0.0)


class TestEpochFile(EpochStoreContract):
    @pytest.fixture
    def made(self, tmp_path: Path) -> Callable[[], Callable[[], EpochStore]]:
        numbers = itertools.count()

        def place() -> Callable[[], EpochStore]:
            path = tmp_path / "folder" / f"{next(numbers)}.epochs"
            return lambda: EpochFile(path)

        return place


class Alone(RedisEpochs):
    """No tier closes its connection."""

    async def close(self) -> None:
        await self._redis.aclose()


class TestRedisEpochs(EpochStoreContract):
    @pytest.fixture
    def made(self, redis_server: str) -> Callable[[], Callable[[], EpochStore]]:
        def place() -> Callable[[], EpochStore]:
            prefix = f"test-{uuid.uuid4().hex}"
            return lambda: Alone(patient(redis_server), prefix)

        return place


def test_a_file_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "tier.db.epochs"
    asyncio.run(EpochFile(path).join({Selection(A): 5.0}))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("text", ["", "[1]", '{"x": 1}', '{"[\\"a\\", \\"x\\", null, null]": "soon"}', '{"[1,2]": 3}'])
def test_a_file_that_says_something_else_is_told(tmp_path: Path, text: str) -> None:
    path = tmp_path / "spoilt"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(EpochsUnavailable, match=r"epochs: "):
        asyncio.run(EpochFile(path).read())


def test_keeping_takes_in_gives_back_and_goes_on_without_a_store(tmp_path: Path) -> None:
    async def scenario() -> None:
        file = EpochFile(tmp_path / "one")
        gone = RedisEpochs(connect(f"redis://127.0.0.1:{free_port()}/0"))
        here, there = (
            EpochKeeping(Epochs(1e12), [gone, file]),
            EpochKeeping(Epochs(1e12), [EpochFile(tmp_path / "one")]),
        )
        here.epochs.begin(Selection(A), 10.0)
        assert not await here.keep({Selection(A): 10.0})
        assert here.failed == 1
        await there.tend(20.0)
        assert there.epochs.begun() == {Selection(A): 10.0}
        there.epochs.begin(Selection(B), 15.0)
        await there.tend(20.0)
        await here.tend(20.0)
        assert here.epochs.begun() == there.epochs.begun() == await file.read()

    asyncio.run(scenario())


def test_keeping_clears_the_store_of_what_says_nothing_any_more(tmp_path: Path) -> None:
    async def scenario() -> Mapping[Selection, float]:
        file = EpochFile(tmp_path / "one")
        await file.join({Selection(A): 10.0, Selection(B): 90.0})
        keeping = EpochKeeping(Epochs(50.0), [file])
        await keeping.tend(100.0)
        assert keeping.epochs.begun() == {Selection(B): 90.0}
        return await file.read()

    assert asyncio.run(scenario()) == {Selection(B): 90.0}


def test_in_memory_only_nothing_lasts() -> None:
    keeping = EpochKeeping(Epochs())
    assert not keeping.lasting
    assert asyncio.run(keeping.keep({Selection(A): 1.0}))
