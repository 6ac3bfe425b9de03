"""Bodies that are no request, answers that may not be kept, names that are no names."""

from __future__ import annotations

from typing import Any

import pytest

from caches.errors import InputError
from caches.keys.canonical import DEEPEST
from caches.keys.fields import Endpoint
from caches.keys.fingerprint import request_key
from caches.keys.partitions import checked, partition_of
from caches.keys.request_key import Partition
from caches.keys.rules import KeyRules, why_not_cached
from tests.caches.test_keys import BODIES, CHAT, PLAIN, PROMPT, TEXTS, key, said


def nested(levels: int) -> Any:
    value: Any = 0
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ([], "body: got a list of 0, expected a JSON object"),
        (None, "body: got nothing, expected a JSON object"),
        ("hi", "body: got 'hi', expected a JSON object"),
        ({"messages": CHAT["messages"]}, "model: got nothing, expected the name of a model"),
        (CHAT | {"model": ""}, "model: got '', expected the name of a model"),
        (CHAT | {"model": 4}, "model: got 4, expected the name of a model"),
        ({"model": "small"}, "messages: got nothing, expected a list of at least one message"),
        (CHAT | {"messages": "hi"}, "messages: got 'hi', expected a list of at least one message"),
        (CHAT | {"messages": {}}, "messages: got an object of 0 fields, expected a list"),
        (CHAT | {"messages": []}, "messages: got a list of 0, expected a list of at least one message"),
        (CHAT | {"messages": ["hi"]}, r"messages\[0\]: got 'hi', expected an object"),
        (CHAT | {"messages": [*CHAT["messages"], {}]}, r"messages\[2\]\.role: got nothing, expected a role"),
        (said(("user", 7)), r"messages\[0\]\.content: got 7, expected text or a list of parts"),
        (said(("user", {"text": "hi"})), r"messages\[0\]\.content: got an object of 1 fields"),
        (CHAT | {"top_p": float("nan")}, "top_p: got nan, expected a finite number"),
        (CHAT | {"top_p": float("-inf")}, "top_p: got -inf, expected a finite number"),
        (CHAT | {"tools": [{"maximum": float("inf")}]}, "tools: got inf, expected a finite number"),
        (CHAT | {"seed": 10**400}, "seed: got inf, expected a number that a double can hold"),
        (CHAT | {"tools": nested(DEEPEST + 1)}, "tools: got a list of 1, expected at most 100 levels"),
        (CHAT | {"metadata2": (1, 2)}, "metadata2: got a Python tuple, expected a JSON value"),
        (CHAT | {"logit_bias": {1: 2}}, "a key in logit_bias: got 1, expected text"),
        (CHAT | {1: 2}, "a key in body: got 1, expected text"),
        (
            CHAT | {"schema": {"\u00e9": 1, "e\u0301": 2}},
            "schema: got an object of 2 fields, expected keys that differ",
        ),
        (CHAT | {"\u00e9": 1, "e\u0301": 2}, "body: got an object of 5 fields, expected names of fields that differ"),
        (said(("user", "\ud800")), "messages: got text that is not Unicode"),
        (said(("user", "Hi"), ("assistant", "\ud800")), "body: got text that is not Unicode"),
    ],
)
def test_a_bad_body_names_field_value_and_expectation(body: object, message: str) -> None:
    with pytest.raises(InputError, match=f"^{message}"):
        key(body)


@pytest.mark.parametrize("value", [None, 7, {"text": "a"}, True])
def test_what_to_complete_or_embed_is_text_or_a_list(value: object) -> None:
    with pytest.raises(InputError, match=r"^prompt: got .*, expected text, a list of texts, or token numbers"):
        key(PROMPT | {"prompt": value}, Endpoint.COMPLETIONS)
    with pytest.raises(InputError, match=r"^input: got .*, expected text, a list of texts, or token numbers"):
        key(TEXTS | {"input": value}, Endpoint.EMBEDDINGS)


def test_a_prompt_is_not_repeated_in_a_message() -> None:
    with pytest.raises(InputError) as refused:
        key(CHAT | {"messages": "My account number is 12345678 and I would like to close it."})
    assert str(refused.value) == "messages: got text of 59 characters, expected a list of at least one message"


def test_the_deepest_body_passes() -> None:
    assert key(CHAT | {"tools": nested(DEEPEST)}).question is not None


@pytest.mark.parametrize("endpoint", [Endpoint.CHAT, Endpoint.COMPLETIONS])
@pytest.mark.parametrize(
    ("fields", "allowed_by"),
    [
        # what is sampled, and which of the permissions (none, seeded, sampled) keep it
        ({"temperature": 0}, {"", "seeded", "sampled"}),
        ({"temperature": 0.0}, {"", "seeded", "sampled"}),
        ({"temperature": 0, "seed": 1}, {"", "seeded", "sampled"}),
        ({"temperature": 0, "n": 2}, {"", "seeded", "sampled"}),
        ({"temperature": 1e-6}, {"sampled"}),
        ({"temperature": 1}, {"sampled"}),
        ({"temperature": None}, {"sampled"}),
        ({}, {"sampled"}),
        ({"seed": None}, {"sampled"}),
        ({"seed": 1}, {"seeded", "sampled"}),
        ({"seed": 0}, {"seeded", "sampled"}),
        ({"temperature": 0.7, "seed": 1}, {"seeded", "sampled"}),
    ],
)
def test_what_is_sampled_is_kept_only_where_it_may_be(
    endpoint: Endpoint, fields: dict[str, Any], allowed_by: set[str]
) -> None:
    body = {name: value for name, value in BODIES[endpoint].items() if name != "temperature"} | fields
    rules = {"": PLAIN, "seeded": KeyRules(allow_seeded=True), "sampled": KeyRules(allow_sampled=True)}
    assert {name for name, given in rules.items() if why_not_cached(endpoint, body, given) is None} == allowed_by


def test_the_reason_is_a_sentence_that_names_the_rule() -> None:
    reasons = [
        why_not_cached(Endpoint.CHAT, CHAT | change, PLAIN)
        for change in ({"temperature": 0.7}, {"temperature": None, "seed": 4}, {"store": True})
    ]
    assert reasons == [
        "The answer is sampled (the temperature is 0.7), which this namespace does not keep (allow_sampled).",
        "The answer is sampled with a fixed seed (no temperature is stated), which this namespace does not keep "
        "(allow_seeded).",
        "The request asks the backend to store its completion, which a hit would not do (allow_stored).",
    ]


def test_a_request_to_store_is_kept_only_where_it_may_be() -> None:
    stored = CHAT | {"store": True}
    assert why_not_cached(Endpoint.CHAT, stored, KeyRules(allow_sampled=True)) is not None
    assert why_not_cached(Endpoint.CHAT, stored, KeyRules(allow_stored=True)) is None
    for value in (False, None):
        assert why_not_cached(Endpoint.CHAT, CHAT | {"store": value}, PLAIN) is None


def test_embeddings_are_not_sampled() -> None:
    assert why_not_cached(Endpoint.EMBEDDINGS, TEXTS, PLAIN) is None


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("hi", "body: got 'hi', expected a JSON object"),
        ({"temperature": "0"}, "temperature: got '0', expected a number"),
        ({"temperature": False}, "temperature: got false, expected a number"),
        ({"temperature": 1, "seed": "a"}, "seed: got 'a', expected a number"),
        ({"store": 1}, "store: got 1, expected true or false"),
    ],
)
def test_what_decides_it_has_to_be_of_the_right_kind(body: object, message: str) -> None:
    with pytest.raises(InputError, match=f"^{message}"):
        why_not_cached(Endpoint.CHAT, body, PLAIN)


@pytest.mark.parametrize("name", ["a", "default", "Team-7", "eu.prod_2", "0", "a" * 64])
def test_a_name(name: str) -> None:
    assert partition_of(name, name) == Partition(name, name)


@pytest.mark.parametrize(
    "name",
    ["", " ", "a b", "a:b", "a/b", "{a}", "a\n", "a\0b", ".a", "-a", "_a", "*", "a" * 65, "\u00e9", "\u0430", None, 7],
)
def test_what_is_no_name(name: Any) -> None:
    expected = r", expected 1 to 64 of the characters A-Z a-z 0-9 \. _ -"
    with pytest.raises(InputError, match=f"^tenant: got .*{expected}"):
        partition_of(name, "default")
    with pytest.raises(InputError, match=f"^namespace: got .*{expected}"):
        checked(Partition("default", name))
    with pytest.raises(InputError, match=r"^namespace: got "):
        request_key(Endpoint.CHAT, CHAT, Partition("default", name))
