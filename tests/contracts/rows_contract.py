"""One contract for every structure that holds the vectors of a group and finds the nearest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from caches.semantic.embedder import Vectors, unit_rows
from caches.semantic.rows import MakeRows

DIMENSIONS = 6
POOL = unit_rows(np.random.default_rng(5).normal(size=(40, DIMENSIONS)).astype(np.float32))
NUMBERS, ROW = st.integers(0, 60), st.integers(0, len(POOL) - 1)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), NUMBERS, ROW),
        st.tuples(st.just("add"), NUMBERS, ROW),
        st.tuples(st.just("remove"), NUMBERS),
        st.tuples(st.just("search"), ROW, st.integers(1, 12)),
        st.tuples(st.just("vectors")),
    ),
    max_size=150,
)


class RowsContract:
    """Subclass it with the structure to be held to it. exact: whether it finds all."""

    make: MakeRows
    exact: bool = False

    @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
    @given(steps=STEPS)
    def test_it_finds_what_it_holds_with_the_similarity_of_the_vectors(self, steps: list[tuple[Any, ...]]) -> None:
        rows, held = type(self).make(DIMENSIONS), dict[int, Vectors]()
        for what, *with_ in steps:
            match what, with_:
                case "add", [number, row] if number not in held:
                    rows.add(number, POOL[row])
                    held[number] = POOL[row]
                case "remove", [number] if number in held:
                    rows.remove(number)
                    del held[number]
                case "search", [row, count]:
                    self.check(rows.search(POOL[row], count), held, POOL[row], count)
                case "vectors", _:
                    assert np.array_equal(rows.vectors(list(held)), np.array([*held.values()]).reshape(-1, DIMENSIONS))
            assert len(rows) == len(held)

    def check(self, found: list[tuple[int, float]], held: dict[int, Vectors], asked: Vectors, count: int) -> None:
        assert len({number for number, _ in found}) == len(found) <= count
        for number, similarity in found:
            assert similarity == pytest.approx(float(held[number] @ asked), abs=1e-5)
        assert [one for _, one in found] == sorted((one for _, one in found), reverse=True)
        best = sorted((float(vector @ asked) for vector in held.values()), reverse=True)[:count]
        if self.exact:
            assert [one for _, one in found] == pytest.approx(best, abs=1e-5)

    def test_a_vector_that_is_there_is_found(self) -> None:
        rows = type(self).make(DIMENSIONS)
        for number, vector in enumerate(POOL):
            rows.add(number, vector)
        for number, vector in enumerate(POOL):
            found, similarity = rows.search(vector, 1)[0]
            assert (found, similarity) == (number, pytest.approx(1.0, abs=1e-5))

    def test_among_equals_the_first_comes_first(self) -> None:
        rows = type(self).make(DIMENSIONS)
        for number in (3, 1, 2):
            rows.add(number, POOL[0])
        assert [number for number, _ in rows.search(POOL[0], 3)] == [1, 2, 3]

    def test_an_empty_one_finds_nothing(self) -> None:
        rows = type(self).make(DIMENSIONS)
        assert rows.search(POOL[0], 3) == []
        rows.add(1, POOL[1])
        rows.remove(1)
        assert rows.search(POOL[1], 3) == []
        assert rows.vectors([]).shape == (0, DIMENSIONS)
