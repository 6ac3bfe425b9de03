"""Dense numbers by first appearance."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traces.encode import Encoder, renumber


@given(parts=st.lists(st.lists(st.text(max_size=2)), min_size=1), join_at=st.sampled_from([1, 4, 1000]))
def test_numbers_follow_first_appearance(parts: list[list[str]], join_at: int) -> None:
    encoder = Encoder(join_at)
    for part in parts:
        encoder.add(pa.array(part, pa.string()))
    numbers, values = encoder.finish()
    model: dict[str, int] = {}
    expected = [model.setdefault(value, len(model)) for part in parts for value in part]
    assert numbers.tolist() == expected
    assert values.to_pylist() == list(model)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.int64(), [-5, 2**62, -5]),
        (pa.uint64(), [2**64 - 1, 0, 2**64 - 1]),
        (pa.binary(), [b"\x00", b"", b"\x00"]),
        (pa.binary(2), [b"ab", b"ba", b"ab"]),
        (pa.large_string(), ["a", "ä", "a"]),
    ],
)
def test_every_type_of_key(kind: pa.DataType, values: list[object]) -> None:
    encoder = Encoder(join_at=1)
    for value in values:
        encoder.add(pa.array([value], kind))
    numbers, distinct = encoder.finish()
    assert numbers.tolist() == [0, 1, 0]
    assert distinct.to_pylist() == values[:2]


def test_renumber() -> None:
    numbers, distinct = renumber(np.array([7, 3, 7, 9, 3], dtype=np.int64))
    assert numbers.tolist() == [0, 1, 0, 2, 1]
    assert numbers.dtype == np.int32
    assert distinct == 3
