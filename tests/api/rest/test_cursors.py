"""Cursors come back as they were, and nothing else is one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.cursors import cursor_of, place_of
from api.errors import Problem


@given(st.integers(-(2**62), 2**62), st.text(st.characters(exclude_categories=["Cs"]), max_size=50))
def test_a_cursor_comes_back_as_it_was(number: int, text: str) -> None:
    cursor = cursor_of("things", number, text)
    assert place_of("things", cursor, (int, str)) == [number, text]
    assert cursor.isascii()
    for kind, types in (("others", (int, str)), ("things", (str, int)), ("things", (int,))):
        with pytest.raises(Problem):
            place_of(kind, cursor, types)


@given(st.text(max_size=80))
def test_what_is_made_up_is_none(text: str) -> None:
    with pytest.raises(Problem):
        place_of("things", text, (int, str))
