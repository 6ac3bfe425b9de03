"""One contract for every networked store of vectors, beside a list that is searched from end to end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from caches.keys.request_key import Partition
from caches.semantic.embedder import Vectors, unit_rows
from caches.semantic.index import Group
from caches.semantic.store import Alike, Place, VectorStore

DIMENSIONS = 8
SPACES = (b"s" * 16, b"\xff\0" * 8)
PARTITIONS = (Partition("a", "x"), Partition("a", "y"), Partition("b", "x"), Partition("a", "x.y"))
CONTEXTS = (b"c" * 32, b"\0*?[" + b"d" * 28)
GROUPS = tuple(Group(partition, context) for partition in PARTITIONS for context in CONTEXTS)
ROWS = unit_rows(np.random.default_rng(7).normal(size=(12, DIMENSIONS)).astype(np.float32))


@dataclass(frozen=True)
class VectorSubject:
    """make: an empty store. tolerance: of its similarities. examples: so many sequences."""

    make: Callable[[], AbstractAsyncContextManager[VectorStore]]
    tolerance: float
    examples: int = 30


def name_of(number: int) -> bytes:
    return b"%02d" % number + b"\0\xff" * 15


def question_of(number: int) -> str:
    return f'question "{number}" größe 日本'


Held = dict[Place, Vectors]
STEP = st.one_of(
    st.tuples(st.just("add"), st.sampled_from(SPACES), st.sampled_from(GROUPS[:4]), st.integers(0, 11)),
    st.tuples(st.just("remove"), st.sampled_from(SPACES), st.sampled_from(GROUPS[:4]), st.integers(0, 11)),
    st.tuples(st.just("nearest"), st.sampled_from(SPACES), st.sampled_from(GROUPS[:4]), st.integers(0, 11)),
)


class VectorContract:
    """Subclass it in a test module, with a fixture or attribute `subject`."""

    subject: VectorSubject

    def test_it_does_what_the_list_does(self) -> None:
        @settings(
            max_examples=self.subject.examples,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(steps=st.lists(STEP, min_size=10, max_size=40))
        def walk(steps: list[tuple[str, bytes, Group, int]]) -> None:
            asyncio.run(self._walk(steps))

        walk()

    async def _walk(self, steps: list[tuple[str, bytes, Group, int]]) -> None:
        async with self.subject.make() as store:
            held: Held = {}
            for what, space, group, number in steps:
                place = Place(space, group, name_of(number))
                if what == "add":
                    await store.add(place, ROWS[number], question_of(number))
                    held[place] = ROWS[number]
                elif what == "remove":
                    await store.remove([place, Place(space, group, name_of(99))])
                    held.pop(place, None)
                else:
                    self._agrees(await store.nearest(space, group, ROWS[number], 3), held, place, ROWS[number])

    def _agrees(self, found: list[Alike], held: Held, at: Place, asked: Vectors) -> None:
        mine = {p.fingerprint: float(v @ asked) for p, v in held.items() if (p.space, p.group) == (at.space, at.group)}
        expected = sorted(mine.values(), reverse=True)[:3]
        np.testing.assert_allclose([one.similarity for one in found], expected, atol=self.subject.tolerance)
        for one in found:
            assert abs(mine[one.fingerprint] - one.similarity) <= self.subject.tolerance
            assert one.question == question_of(int(one.fingerprint[:2]))

    def test_no_search_leaves_its_space_partition_and_context(self) -> None:
        async def scenario(store: VectorStore) -> None:
            places = [Place(space, group, name_of(n)) for n, group in enumerate(GROUPS) for space in SPACES]
            for place in places:
                assert await store.nearest(place.space, place.group, ROWS[0], 9) == []
                await store.add(place, ROWS[0], question_of(int(place.fingerprint[:2])))
            for place in places:
                found = await store.nearest(place.space, place.group, ROWS[0], 9)
                assert [one.fingerprint for one in found] == [place.fingerprint]

        self._with(scenario)

    def test_an_equal_vector_is_as_similar_as_can_be(self) -> None:
        async def scenario(store: VectorStore) -> None:
            await store.begin()
            place = Place(SPACES[0], GROUPS[0], name_of(1))
            for row in (ROWS[2], ROWS[1]):  # the second in place of the first
                await store.add(place, row, question_of(1))
            (found,) = await store.nearest(SPACES[0], GROUPS[0], ROWS[1], 3)
            assert abs(found.similarity - 1.0) <= self.subject.tolerance

        self._with(scenario)

    def test_clearing_takes_all_of_a_partition_and_nothing_else(self) -> None:
        async def scenario(store: VectorStore) -> None:
            places = [Place(space, group, name_of(1)) for group in GROUPS for space in SPACES]
            for place in places:
                await store.add(place, ROWS[0], question_of(1))
            await store.clear(PARTITIONS[0])
            for place in places:
                found = await store.nearest(place.space, place.group, ROWS[0], 3)
                assert len(found) == (place.group.partition != PARTITIONS[0]), place
            await store.add(places[0], ROWS[1], question_of(1))
            assert len(await store.nearest(places[0].space, places[0].group, ROWS[1], 3)) == 1

        self._with(scenario)

    def test_many_are_removed_at_once(self) -> None:
        async def scenario(store: VectorStore) -> None:
            places = [Place(SPACES[0], GROUPS[n % 2], name_of(n)) for n in range(20)]
            for place in places:
                await store.add(place, ROWS[0], question_of(1))
            gone = places[:18] + [Place(SPACES[1], GROUPS[5], name_of(n)) for n in range(300)]
            await store.remove(gone)
            await store.remove(gone)
            left = [await store.nearest(SPACES[0], GROUPS[n], ROWS[0], 30) for n in (0, 1)]
            assert [[one.fingerprint for one in some] for some in left] == [[name_of(18)], [name_of(19)]]

        self._with(scenario)

    def _with(self, scenario: Callable[[VectorStore], object]) -> None:
        async def whole() -> None:
            async with self.subject.make() as store:
                await scenario(store)  # type: ignore[misc]

        asyncio.run(whole())
