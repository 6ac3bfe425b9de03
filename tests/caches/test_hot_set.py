"""The hot set out of one set of tiers and into another."""

from __future__ import annotations

import orjson
import pytest

from caches.entry_lines import entry_of, fields_of
from caches.errors import InputError
from caches.freshness.epochs import Epochs
from caches.hot_keys import HotKeys
from caches.hot_set import Imported, exported, take_in
from caches.keys.request_key import Partition, RequestKey
from caches.knobs import KnobSettings
from caches.place import Place
from caches.tiers.memory import MemoryTier
from caches.tiers.tier import Found
from tests.contracts.tier_contract import SPACE, START, answer_of, key_of


class Tiers:
    """Two tiers in memory, and what is known of requests."""

    def __init__(self) -> None:
        self.upper, self.lower = MemoryTier(SPACE, "upper"), MemoryTier(SPACE, "lower")
        self.places, self.hot = [Place(self.upper), Place(self.lower)], HotKeys()

    def of(self, partition: Partition) -> list[Place]:
        return self.places

    async def set_ttl(self, seconds: float) -> None:
        """And make them small."""
        for place in self.places:
            await place.tier.apply(KnobSettings(20.0, seconds, 0.0), START)
            await place.tier.tend(START)
            await place.tend_ttl()

    async def lines(self, now: float = START) -> list[bytes]:
        ranked = self.hot.ranked(now, float("inf"))
        return [line async for line in exported(ranked, self.of, lambda: now, Epochs())]

    async def take(self, line: bytes, now: float = START) -> Imported:
        counts = Imported()
        await take_in(line, self.of, self.hot, now, counts)
        return counts


async def filled() -> Tiers:
    """Three entries, the first the hottest: in both tiers, in the lower one, and gone."""
    tiers = Tiers()
    for number in range(3):
        for _ in range(3 - number):
            tiers.hot.seen(key_of(number), answer_of(number, 10, START - 5.0, 60.0), START)
    await tiers.upper.store(key_of(0), answer_of(0, 10, START - 5.0, 60.0), START)
    for number in (0, 1):
        await tiers.lower.store(key_of(number), answer_of(number, 10, START - 5.0, 60.0), START)
    return tiers


async def test_what_is_held_comes_out_hottest_first_and_goes_in_with_its_age() -> None:
    lines = await (await filled()).lines()
    told = [orjson.loads(line) for line in lines]
    assert [(one["version"], one["popularity"], one["written_seconds"]) for one in told] == [
        (1, 3.0, START - 5.0),
        (1, 2.0, START - 5.0),
    ]
    other = Tiers()
    assert [await other.take(line) for line in lines] == [Imported(taken=1), Imported(taken=1)]
    for tier in (other.upper, other.lower):
        for number in (0, 1):
            assert await tier.lookup(key_of(number), START) == Found(answer_of(number, 10, START - 5.0, 60.0))
        assert (await tier.stats()).warmups == 2
        assert await tier.lookup(key_of(0), START + 54.9) is not None
        assert await tier.lookup(key_of(0), START + 55.1) is None  # 60 s after the write
    assert [(one.key, one.popularity) for one in other.hot.ranked(START, 1e12)] == [(key_of(0), 3.0), (key_of(1), 2.0)]


async def test_what_is_there_stays_and_what_is_old_is_left() -> None:
    (hottest, second) = await (await filled()).lines()
    other = Tiers()
    newer = answer_of(7, 10, START + 1.0)
    await other.upper.store(key_of(0), newer, START + 1.0)
    assert await other.take(hottest) == Imported(taken=1)  # into the lower tier
    assert await other.take(hottest) == Imported(there=1)
    assert await other.upper.lookup(key_of(0), START + 1.0) == Found(newer)
    assert await other.take(second, START + 55.0) == Imported(old=1)
    await other.set_ttl(4.0)
    assert await other.take(second) == Imported(old=1)  # under these tiers' lifetime
    await other.set_ttl(100.0)
    assert await other.take(second) == Imported(refused=1)  # larger than they are
    assert len(other.hot) == 1


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"version": 2}, "version: got 2, expected 1"),
        ({"popularity": "high"}, "popularity: got 'high', expected a number"),
        ({"namespace": "a/b"}, "namespace: got 'a/b', expected 1 to 64"),
        ({"written_seconds": START + 3_600.0}, "written_seconds: got 3,600 s ahead of this machine's clock"),
    ],
)
async def test_a_wrong_line_changes_nothing(change: dict[str, object], told: str) -> None:
    line, *_ = await (await filled()).lines()
    other = Tiers()
    with pytest.raises(InputError) as raised:
        await other.take(orjson.dumps(orjson.loads(line) | change))
    assert str(raised.value).startswith(told)
    assert (await other.upper.stats()).entries == len(other.hot) == 0


async def test_an_answer_to_a_like_question_is_not_taken_for_its_own() -> None:
    class Alike(MemoryTier):
        async def lookup(self, key: RequestKey, now_seconds: float) -> Found | None:
            return Found(answer_of(9, 10, START), similarity=0.95)

    tiers = await filled()
    upper = tiers.places[0].tier = Alike(SPACE, "alike")
    await upper.store(key_of(0), answer_of(9, 10, START), START)
    hottest, _ = await tiers.lines()
    assert entry_of(fields_of(hottest)) == (key_of(0), answer_of(0, 10, START - 5.0, 60.0))  # from the tier below
