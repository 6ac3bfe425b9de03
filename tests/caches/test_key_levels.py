"""Levels of normalisation: each says what it should, and what is equal at one is equal at all above it."""

from __future__ import annotations

import itertools
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from caches.errors import InputError
from caches.keys.fields import Endpoint
from caches.keys.levels import LEVELS, Level, level_ids
from caches.keys.partitions import partition_of
from caches.keys.request_key import Partition
from caches.semantic.lemmas import Lemmas
from tests.caches.test_keys import OURS, PROMPT, TEXTS, said
from tests.caches.test_keys_properties import bodies, pairs_that_mean_the_same

UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

FORM_OF = Lemmas("en").form_of


def ids(body: dict[str, Any] | bytes, partition: Partition = OURS, endpoint: Endpoint = Endpoint.CHAT) -> list[bytes]:
    return list(level_ids(endpoint, body if isinstance(body, bytes) else orjson.dumps(body), partition, FORM_OF))


def first_equal(one: Any, other: Any) -> Level | None:
    """The lowest level at which they are one request."""
    return next((level for level, a, b in zip(LEVELS, ids(one), ids(other), strict=True) if a == b), None)


ASKED = said(("system", "Be brief.\nCurrent time: 2026-11-30T10:00Z"), ("user", "How do I reset my café password?"))


def changed(**messages: str) -> dict[str, Any]:
    told = {one["role"]: one["content"] for one in ASKED["messages"]} | messages
    return ASKED | {"messages": [{"role": role, "content": content} for role, content in told.items()]}


CASES = [
    (ASKED, Level.RAW),
    (orjson.dumps(ASKED, option=orjson.OPT_INDENT_2), Level.ORDER),
    (dict(reversed(ASKED.items())), Level.ORDER),
    (changed(user="How do I reset my cafe\u0301 password?"), Level.ENCODING),
    (changed(user="How do I  reset my café password?"), Level.ENCODING),
    (orjson.dumps(ASKED).replace(b'"temperature":0', b'"temperature":0.0'), Level.ENCODING),
    (changed(system="Be brief.\nCurrent time: 2026-12-01T11:11Z"), Level.TRACKING),
    (ASKED | {"request_id": "7", "trace_id": "8"}, Level.TRACKING),
    (ASKED | {"n": 1, "seed": None, "user": "somebody"}, Level.OTHER),
    (changed(user="How do I reset my café passwords?"), Level.WORDING),
    (changed(user="Please, how to reset a café password"), Level.WORDING),
    (changed(user="How do I close my café account?"), None),
    (changed(system="Be brief!\nCurrent time: 2026-11-30T10:00Z"), None),
    (ASKED | {"model": "large"}, None),
]


@pytest.mark.parametrize(("other", "level"), CASES)
def test_where_two_requests_become_one(other: Any, level: Level | None) -> None:
    assert first_equal(ASKED, other) == level


@UNHURRIED
@given(pairs_that_mean_the_same())
def test_what_is_equal_at_one_level_is_equal_above_it(pair: tuple[dict[str, Any], dict[str, Any]]) -> None:
    equal = [a == b for a, b in zip(*map(ids, pair), strict=True)]
    assert equal == sorted(equal)
    assert [a == b for a, b in zip(ids(pair[0]), ids(pair[0]), strict=True)] == [True] * len(LEVELS)


@UNHURRIED
@given(bodies, st.sampled_from(["a  b", "a\r\nb", "Time: 2026-11-30", "request id: 7", "cafe\u0301 "]))
def test_whatever_is_added_a_level_is_a_function_of_the_one_below(body: dict[str, Any], text: str) -> None:
    variants = [
        body | {"messages": [{"role": role, "content": content}, *body["messages"]]}
        for role in ("system", "user", "assistant")
        for content in (text, " ".join(text.split()), [{"type": "text", "text": text}])
    ]
    seen: list[dict[bytes, bytes]] = [{} for _ in LEVELS]
    for one in map(ids, variants):
        for place, (low, high) in enumerate(itertools.pairwise(one)):
            assert seen[place].setdefault(low, high) == high


def test_partitions_and_endpoints_meet_at_no_level() -> None:
    assert not set(ids(ASKED)) & set(ids(ASKED, partition_of("acme", "other")))
    prompt, texts = ids(PROMPT, endpoint=Endpoint.COMPLETIONS), ids(TEXTS, endpoint=Endpoint.EMBEDDINGS)
    assert len({*prompt, *texts, *ids(ASKED)}) == len(set(prompt)) + len(set(texts)) + len(set(ids(ASKED)))
    assert prompt[-1] == prompt[-2]  # it has no question, so no wording either


def test_without_a_dictionary_wording_is_as_the_level_below() -> None:
    found = level_ids(Endpoint.CHAT, orjson.dumps(ASKED), OURS)
    assert found[-1] == found[-2]


def test_what_is_no_request_is_refused() -> None:
    with pytest.raises(InputError, match="model: "):
        ids({"messages": [{"role": "user", "content": "a"}]})
