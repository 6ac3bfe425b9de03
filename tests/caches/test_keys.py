from __future__ import annotations

import copy
import itertools
from hashlib import sha256
from typing import Any

import orjson
import pytest

from caches.errors import InputError
from caches.keys.fields import ALWAYS_COUNTED, DEFAULTS, LEFT_OUT, NULL_IS_ABSENT, OPENAI_DEFAULTS, Endpoint
from caches.keys.fingerprint import meaning, request_key
from caches.keys.partitions import partition_of
from caches.keys.request_key import Partition, RequestKey
from caches.keys.rules import KeyRules

OURS = Partition("acme", "support")
PLAIN = KeyRules()

CHAT: dict[str, Any] = {
    "model": "small",
    "messages": [
        {"role": "system", "content": "Answer in one word."},
        {"role": "user", "content": "Capital of France?"},
    ],
    "temperature": 0,
}
PROMPT: dict[str, Any] = {"model": "small", "prompt": "Once upon a time", "temperature": 0}
TEXTS: dict[str, Any] = {"model": "embedder", "input": ["one", "two"]}
BODIES = {Endpoint.CHAT: CHAT, Endpoint.COMPLETIONS: PROMPT, Endpoint.EMBEDDINGS: TEXTS}
TOOL = {"type": "function", "function": {"name": "clock", "parameters": {"type": "object", "properties": {}}}}


def key(body: object, endpoint: Endpoint = Endpoint.CHAT, rules: KeyRules = PLAIN) -> RequestKey:
    return request_key(endpoint, body, OURS, rules)


def said(*messages: tuple[str, Any], **fields: Any) -> dict[str, Any]:
    return CHAT | {"messages": [{"role": role, "content": content} for role, content in messages]} | fields


# Frozen, with something of everything that has a form: whoever changes the form raises FORM_VERSION, and sees this.
GOLDEN: list[tuple[Endpoint, dict[str, Any], str]] = [
    (
        Endpoint.CHAT,
        said(
            ("system", [{"type": "text", "text": "R\u00e9ponds en un mot.\n"}]),
            ("user", "Quelle heure est-il, e\u0301tudiant \U0001f550 ?"),
            tools=[TOOL],
            tool_choice="auto",
            top_p=0.95,
            max_tokens=64.0,
            seed=2**63,
            stop='"END"',
            n=1,
            stream=True,
        ),
        "cb5d673e9790ec4cebd894bed108c229e31580faeb9262493893dc094a4ccfe1",
    ),
    (
        Endpoint.COMPLETIONS,
        PROMPT | {"echo": True, "logit_bias": {"9": -1.5, "10": 1e300}, "suffix": None},
        "9fd360a2d0bcb235c9188ad6199d7aa103f9dd611d8787d865ed69d49aa427ee",
    ),
    (
        Endpoint.EMBEDDINGS,
        TEXTS | {"input": [[1, 2], [3]], "encoding_format": "base64"},
        "ebafc8286cbd2915111c28f78a3b7f58a7532c7eb494801ca61b0257fbe00cc3",
    ),
]


@pytest.mark.parametrize(("endpoint", "body", "fingerprint"), GOLDEN)
def test_the_canonical_form_has_not_changed(endpoint: Endpoint, body: dict[str, Any], fingerprint: str) -> None:
    assert key(body, endpoint).fingerprint.hex() == fingerprint


def test_a_key_by_hand() -> None:
    # version 1, no defaults of OpenAI's, no trimming; then the fields in the order of their names, 0 for the question
    form = sha256(
        b'[1,false,false,["metadata","prompt_cache_key","prompt_cache_options","prompt_cache_retention",'
        b'"safety_identifier","service_tier","store","stream","stream_options","user"]]'
    ).digest()
    context = sha256(
        form + b'["/v1/chat/completions",{"messages":[{"content":"Answer in one word.","role":"system"},'
        b'{"content":0,"role":"user"}],"model":"small","temperature":0}]'
    ).digest()
    fingerprint = sha256(context + b"\x01Capital of France?").digest()
    made = request_key(Endpoint.CHAT, CHAT, OURS, tags={"geography"})
    assert made == RequestKey(OURS, fingerprint, context, "Capital of France?", "small", frozenset({"geography"}))


def test_a_key_without_a_question_by_hand() -> None:
    context = sha256(PLAIN.form + b'["/v1/embeddings",{"input":["one","two"],"model":"embedder"}]').digest()
    made = key(TEXTS, Endpoint.EMBEDDINGS)
    assert made == RequestKey(OURS, sha256(context + b"\x00").digest(), context, None, "embedder")


def test_the_order_of_keys_does_not_count() -> None:
    turned = dict(reversed(CHAT.items())) | {"messages": [dict(reversed(m.items())) for m in CHAT["messages"]]}
    assert orjson.dumps(turned) != orjson.dumps(CHAT)
    assert key(turned) == key(CHAT)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param({"temperature": 0}, {"temperature": 0.0}, id="whole number"),
        pytest.param({"temperature": 0}, {"temperature": -0.0}, id="minus zero"),
        pytest.param({"seed": 10**16}, {"seed": 1e16}, id="exponent"),
        pytest.param({"seed": 2**64}, {"seed": float(2**64)}, id="beyond 64 bits"),
        pytest.param({"x": [2**64, -(2**70)]}, {"x": [float(2**64), -float(2**70)]}, id="beyond 64 bits in a list"),
        pytest.param({"seed": None}, {}, id="null"),
        pytest.param({"stop": "END"}, {"stop": ["END"]}, id="one stop"),
        pytest.param({"tools": [TOOL], "tool_choice": "auto"}, {"tools": [TOOL]}, id="auto with tools"),
        pytest.param({"tool_choice": "none"}, {}, id="none without tools"),
        pytest.param(
            {"functions": [{"name": "f"}], "function_call": "auto"}, {"functions": [{"name": "f"}]}, id="auto"
        ),
        pytest.param({"x-caf\u00e9": "\u00e9"}, {"x-cafe\u0301": "e\u0301"}, id="NFC"),
    ],
)
def test_two_ways_to_say_the_same_are_one_request(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert key(CHAT | one) == key(CHAT | other)


VARIANTS: list[dict[str, Any]] = [
    {},
    {"model": "large"},
    {"temperature": 1},
    {"temperature": 1e-9},
    {"temperature": False},
    {"temperature": "0"},
    {"top_p": 0.5},
    {"n": 2},
    {"n": True},
    {"max_tokens": 16},
    {"max_completion_tokens": 16},
    {"max_tokens": 17},
    {"stop": ["a", "b"]},
    {"stop": ["b", "a"]},
    {"stop": ["ab"]},
    {"stop": "a"},
    {"seed": 1},
    {"seed": 9_007_199_254_740_993},
    {"seed": 9_007_199_254_740_992},
    {"presence_penalty": 0.1},
    {"presence_penalty": False},
    {"frequency_penalty": 0.1},
    {"logit_bias": {"50256": -100}},
    {"logit_bias": {"50256": 100}},
    {"logprobs": True},
    {"logprobs": 0},
    {"logprobs": True, "top_logprobs": 2},
    {"reasoning_effort": "low"},
    {"verbosity": "medium"},
    {"response_format": {"type": "json_object"}},
    {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"enum": [1, 2]}}}},
    {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"enum": [2, 1]}}}},
    {"tools": [TOOL]},
    {"tools": [TOOL], "tool_choice": "required"},
    {"tools": [TOOL], "tool_choice": "none"},
    {"tools": [TOOL], "parallel_tool_calls": False},
    {"tools": [TOOL, TOOL]},
    {"tools": []},
    {"tool_choice": "auto"},
    {"functions": [{"name": "clock"}]},
    {"modalities": ["text", "audio"]},
    {"prediction": {"type": "content", "content": "Paris"}},
    {"web_search_options": {}},
    {"top_k": 1},
    {"a field of tomorrow": 1},
    {"a field of tomorrow": None},
    {"a field of tomorrow": "1"},
    {"a field of tomorrow": {"a": 1, "b": 2}},
    {"a field of tomorrow": {"a": 2, "b": 1}},
    {"a field of tomorrow": {"a": {"b": 1}}},
    said(("system", "Answer in one word."), ("user", "capital of France?")),
    said(("system", "Answer in one word."), ("user", "Capital of France? ")),
    said(("system", "Answer in one word."), ("assistant", "Capital of France?")),
    said(("developer", "Answer in one word."), ("user", "Capital of France?")),
    said(("user", "Capital of France?"), ("system", "Answer in one word.")),
    said(("user", "Capital of France?")),
    said(("system", "Answer in one word.Capital of France?")),
    said(("system", "Answer in one word.Capital"), ("user", " of France?")),
    said(("system", "Answer in one word."), ("user", "Capital of"), ("user", " France?")),
    said(("system", "Answer in one word."), ("user", None)),
    said(("system", "Answer in one word."), ("user", "")),
    said(("system", "Answer in one word."), ("user", [])),
    said(
        ("system", "Answer in one word."),
        ("user", [{"type": "text", "text": "Capital of"}, {"type": "text", "text": "France?"}]),
    ),
    {"messages": [CHAT["messages"][0], CHAT["messages"][1] | {"name": "ann"}]},
    {"messages": [CHAT["messages"][0] | {"name": "ann"}, CHAT["messages"][1]]},
]


def test_every_difference_in_meaning_is_a_difference_in_the_fingerprint() -> None:
    prints = [key(CHAT | variant).fingerprint for variant in VARIANTS]
    assert [pair for pair in itertools.combinations(range(len(prints)), 2) if len({prints[i] for i in pair}) == 1] == []


def test_endpoints_share_no_fingerprint() -> None:
    body = CHAT | PROMPT | TEXTS
    assert len({key(body, endpoint).fingerprint for endpoint in Endpoint}) == 3


@pytest.mark.parametrize("endpoint", Endpoint)
@pytest.mark.parametrize("name", sorted(LEFT_OUT))
def test_what_is_left_out_does_not_count(endpoint: Endpoint, name: str) -> None:
    for value in (True, False, None, "ann", {"a": float("nan")}):
        assert key(BODIES[endpoint] | {name: value}, endpoint) == key(BODIES[endpoint], endpoint)


@pytest.mark.parametrize("name", sorted(NULL_IS_ABSENT))
def test_null_is_absent_where_it_is_documented(name: str) -> None:
    body = {field: value for field, value in CHAT.items() if field != name}
    assert key(body | {name: None}) == key(body)


@pytest.mark.parametrize(
    ("endpoint", "name"), [(endpoint, name) for endpoint, fields in DEFAULTS.items() for name in fields]
)
def test_a_default_is_absent(endpoint: Endpoint, name: str) -> None:
    body, default = BODIES[endpoint], DEFAULTS[endpoint][name]
    assert key(body | {name: default}, endpoint) == key(body, endpoint)
    if type(default) is int:
        assert key(body | {name: float(default)}, endpoint) == key(body, endpoint)
        assert key(body | {name: default + 1}, endpoint) != key(body, endpoint)
        assert key(body | {name: bool(default)}, endpoint) != key(body, endpoint)  # true is not 1
    else:
        assert key(body | {name: "another"}, endpoint) != key(body, endpoint)


@pytest.mark.parametrize(
    ("endpoint", "name"), [(endpoint, name) for endpoint, fields in OPENAI_DEFAULTS.items() for name in fields]
)
def test_a_default_that_servers_set_is_absent_only_where_the_rules_say_so(endpoint: Endpoint, name: str) -> None:
    absent = {field: value for field, value in BODIES[endpoint].items() if field != name}
    stated = absent | {name: OPENAI_DEFAULTS[endpoint][name]}
    openai = KeyRules(openai_defaults=True)
    assert key(stated, endpoint) != key(absent, endpoint)
    assert key(stated, endpoint, openai) == key(absent, endpoint, openai)
    assert key(absent | {name: 0.5}, endpoint, openai) != key(absent, endpoint, openai)


@pytest.mark.parametrize("role", ["system", "user", "assistant", "tool"])
def test_one_part_of_text_is_text(role: str) -> None:
    assert key(said((role, [{"type": "text", "text": "Hi"}]))) == key(said((role, "Hi")))


@pytest.mark.parametrize(
    "content",
    [
        [{"type": "text", "text": "Hi", "prompt_cache_breakpoint": {"mode": "explicit"}}],
        [{"type": "text", "text": "H"}, {"type": "text", "text": "i"}],
        [{"type": "refusal", "text": "Hi"}],
        ["Hi"],
    ],
)
def test_other_parts_stay_parts(content: list[Any]) -> None:
    assert key(said(("user", content))) != key(said(("user", "Hi")))
    assert key(said(("user", content))).question is None


@pytest.mark.parametrize("endpoint", [Endpoint.COMPLETIONS, Endpoint.EMBEDDINGS])
def test_one_text_is_a_list_of_it_and_token_numbers_are_as_they_are(endpoint: Endpoint) -> None:
    name = "prompt" if endpoint is Endpoint.COMPLETIONS else "input"
    one, many, numbers, nested = (
        key(BODIES[endpoint] | {name: value}, endpoint) for value in ("a", ["a"], [1, 2], [[1, 2]])
    )
    assert one == many
    assert len({one.fingerprint, numbers.fingerprint, nested.fingerprint}) == 3


def test_white_space_counts_unless_the_rules_trim() -> None:
    padded = said(("system", "Answer in one word.\n"), ("user", " Capital of France?"))
    inner = said(("system", "Answer in one word."), ("user", "Capital  of France?"))
    trim = KeyRules(trim_text=True)
    assert key(padded).fingerprint != key(CHAT).fingerprint
    assert key(padded, rules=trim) == key(CHAT, rules=trim)
    assert key(padded, rules=trim).question == "Capital of France?"
    assert key(inner, rules=trim) != key(CHAT, rules=trim)
    started = said(("user", "Go on"), ("assistant", "Once "))
    assert key(started, rules=trim) != key(said(("user", "Go on"), ("assistant", "Once")), rules=trim)


def test_a_namespace_can_leave_out_more_or_less() -> None:
    more, less = KeyRules(left_out=LEFT_OUT | {"request_id"}), KeyRules(left_out=LEFT_OUT - {"user"})
    assert key(CHAT | {"request_id": 7}) != key(CHAT)
    assert key(CHAT | {"request_id": 7}, rules=more) == key(CHAT, rules=more)
    assert key(CHAT | {"user": "ann"}, rules=less) != key(CHAT | {"user": "bob"}, rules=less)


def test_other_rules_never_meet_what_was_kept_under_the_old_ones() -> None:
    # without `user` in the key, Ann's answer may be kept under a body that Bob sends later
    forms = [PLAIN, KeyRules(openai_defaults=True), KeyRules(trim_text=True), KeyRules(left_out=LEFT_OUT - {"user"})]
    assert len({key(CHAT, rules=rules).fingerprint for rules in forms}) == 4
    assert len({key(CHAT, rules=rules).context for rules in forms}) == 4
    permissions = KeyRules(allow_sampled=True, allow_seeded=True, allow_stored=True)
    assert key(CHAT, rules=permissions) == key(CHAT)  # these change what may be kept, not what it means


@pytest.mark.parametrize("name", sorted(ALWAYS_COUNTED))
def test_no_rule_leaves_out_what_is_asked(name: str) -> None:
    with pytest.raises(InputError, match=f"left_out: got '{name}'"):
        KeyRules(left_out=LEFT_OUT | {name})


def test_the_partition_is_the_callers_and_not_the_bodys() -> None:
    theirs = request_key(Endpoint.CHAT, CHAT | {"partition": "acme", "tenant": "acme"}, partition_of("other"))
    assert theirs.partition == Partition("other", "default")
    assert request_key(Endpoint.CHAT, CHAT, partition_of("other")).fingerprint == key(CHAT).fingerprint


def test_a_body_is_left_as_it_was() -> None:
    body = said(("user", [{"type": "text", "text": " cafe\u0301 "}]), stop="END", temperature=0.0, seed=None)
    before = copy.deepcopy(body)
    key(body, rules=KeyRules(trim_text=True))
    assert body == before
    assert type(body["temperature"]) is float


def test_meaning_by_hand() -> None:
    body = said(("user", [{"type": "text", "text": "Hi"}]), n=1.0, stop="END", user="ann", top_p=None, temperature=0.0)
    assert meaning(Endpoint.CHAT, body) == {
        "model": "small",
        "messages": [{"role": "user", "content": "Hi"}],
        "stop": ["END"],
        "temperature": 0,
    }
