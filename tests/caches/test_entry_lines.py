"""Entries as lines: what is written is read back, and what is wrong is named."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from caches.entry_lines import entry_of, fields_of, line_of
from caches.errors import InputError
from caches.keys.request_key import Partition, RequestKey
from caches.tiers.tier import Answer

SECONDS = st.floats(0.0, 1e12)
DIGEST = st.binary(min_size=32, max_size=32)
KEYS = st.builds(
    RequestKey,
    st.builds(Partition, st.text(), st.text()),
    DIGEST,
    DIGEST,
    st.none() | st.text(),
    st.text(),
    st.frozensets(st.text(), max_size=3),
)
COUNT = st.integers(0, 2**40)
ANSWERS = st.builds(Answer, st.binary(), SECONDS, st.none() | SECONDS, COUNT, COUNT, SECONDS)
LINE = line_of(
    RequestKey(Partition("a", "b"), bytes(32), bytes(32), "how far?", "m"), Answer(b"far", 7.0, None, 1, 2, 0.5)
)


@given(KEYS, ANSWERS)
def test_what_is_written_is_read_back(key: RequestKey, answer: Answer) -> None:
    line = line_of(key, answer, {"version": 1})
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert entry_of(fields_of(line)) == (key, answer)


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("tenant", 1, "tenant: got 1, expected text"),
        ("namespace", None, "namespace: got None, expected text"),
        ("fingerprint", "zz", "fingerprint: got 'zz', expected 64 hexadecimal digits"),
        ("context", "00", "context: got '00', expected 64 hexadecimal digits"),
        ("question", [], "question: got [], expected text"),
        ("model", None, "model: got None, expected text"),
        ("tags", "ab", "tags: got 'ab', expected a list of texts"),
        ("tags", [1], "tags: got [1], expected a list of texts"),
        ("body", "a", "body: got what is no base64"),
        ("body", "ä", "body: got what is no base64"),
        ("written_seconds", "1", "written_seconds: got '1', expected a number, 0 or more"),
        ("written_seconds", -1, "written_seconds: got -1, expected a number, 0 or more"),
        ("ttl_seconds", True, "ttl_seconds: got True, expected a number, 0 or more"),
        ("prompt_tokens", 1.5, "prompt_tokens: got 1.5, expected a whole number, 0 or more"),
        ("output_tokens", -1, "output_tokens: got -1, expected a whole number, 0 or more"),
        ("compute_seconds", None, "compute_seconds: got None, expected a number, 0 or more"),
    ],
)
def test_a_wrong_field_is_named(field: str, value: Any, told: str) -> None:
    with pytest.raises(InputError) as raised:
        entry_of(orjson.loads(LINE) | {field: value})
    assert str(raised.value).startswith(told)


@pytest.mark.parametrize("field", sorted(set(orjson.loads(LINE)) - {"question", "ttl_seconds"}))
def test_a_missing_field_is_named(field: str) -> None:
    fields = orjson.loads(LINE)
    del fields[field]
    with pytest.raises(InputError, match=rf"^{field}: got"):
        entry_of(fields)


@pytest.mark.parametrize("line", [b"", b"{", b"[]", b"\xff"])
def test_what_is_no_object_is_refused(line: bytes) -> None:
    with pytest.raises(InputError, match=r"^line: got"):
        fields_of(line)
