"""Keys of bodies that nobody wrote by hand: what means the same is equal, and any change of meaning is not."""

from __future__ import annotations

import copy
import unicodedata
from typing import Any

import orjson
from hypothesis import assume, given
from hypothesis import strategies as st

from caches.errors import InputError
from caches.keys.canonical import canonical, encode, same
from caches.keys.fields import DEFAULTS, LEFT_OUT, OPENAI_DEFAULTS, Endpoint
from caches.keys.request_key import RequestKey
from caches.keys.rules import KeyRules
from tests.caches.test_keys import key

OPENAI = KeyRules(openai_defaults=True)

accents = st.text(st.sampled_from('ae\u0301\u00e9\u0323 \n"\\'), max_size=6)  # few characters, so that they meet
texts = st.text(max_size=12) | accents
names = texts.map(lambda text: unicodedata.normalize("NFC", text))
numbers = st.integers(-(2**52), 2**52) | st.floats(-1e6, 1e6)
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)
parts = st.builds(lambda text: {"type": "text", "text": text}, texts) | st.builds(
    lambda url: {"type": "image_url", "image_url": {"url": url}}, texts
)
messages = st.builds(
    lambda role, content, more: {"role": role, "content": content} | more,
    st.sampled_from(["system", "user", "assistant", "tool"]),
    st.none() | texts | st.lists(parts, min_size=2, max_size=3),
    st.dictionaries(st.sampled_from(["name", "tool_call_id", "tool_calls"]), values, max_size=2),
)
# no field is at its default, so that every change of one is a change of meaning
fields = st.fixed_dictionaries(
    {"model": texts.filter(bool), "messages": st.lists(messages, min_size=1, max_size=4)},
    optional={
        "temperature": st.sampled_from([0, 0.5, 2]),
        "top_p": st.sampled_from([0.1, 0.9]),
        "n": st.integers(2, 5),
        "max_tokens": st.integers(1, 100),
        "seed": st.integers(-(2**52), 2**52),
        "stop": st.lists(texts, min_size=2, max_size=3),
        "frequency_penalty": st.sampled_from([-2, 0.5, 2]),
        "logit_bias": st.dictionaries(st.sampled_from(["1", "2", "3"]), st.integers(-100, 100), min_size=1),
        "tools": st.lists(values, min_size=1, max_size=3),
        "tool_choice": st.just("required"),
        "response_format": st.fixed_dictionaries({"type": st.just("json_schema"), "json_schema": values}),
    },
)
bodies = st.builds(
    lambda known, unknown: known | {f"x-{name}": value for name, value in unknown.items()},
    fields,
    st.dictionaries(names, values, max_size=2),
)


def said_otherwise(value: Any, draw: st.DrawFn) -> Any:
    """The same value with its keys in another order, its numbers as the other kind, its accents apart."""
    if isinstance(value, dict):
        items = draw(st.permutations(list(value.items())))
        return {said_otherwise(name, draw): said_otherwise(item, draw) for name, item in items}
    if isinstance(value, list):
        return [said_otherwise(item, draw) for item in value]
    if isinstance(value, str):
        return unicodedata.normalize(draw(st.sampled_from(["NFC", "NFD"])), value)
    if isinstance(value, int) and not isinstance(value, bool):
        return draw(st.sampled_from([value, float(value)]))
    return int(value) if isinstance(value, float) and value.is_integer() else value


@st.composite
def pairs_that_mean_the_same(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any]]:
    body = draw(bodies)
    other = said_otherwise(body, draw)
    for message in other["messages"]:
        if isinstance(message["content"], str) and draw(st.booleans()):
            message["content"] = [{"text": message["content"], "type": "text"}]
    stated = {**DEFAULTS[Endpoint.CHAT], **OPENAI_DEFAULTS[Endpoint.CHAT]}
    for name in draw(st.sets(st.sampled_from(sorted(stated.keys() - body.keys())))):
        other[name] = said_otherwise(stated[name], draw)
    for name in draw(st.sets(st.sampled_from(sorted(LEFT_OUT)))):
        other[name] = draw(values)
    return body, dict(draw(st.permutations(list(other.items()))))


@given(pairs_that_mean_the_same())
def test_what_means_the_same_has_one_key(pair: tuple[dict[str, Any], dict[str, Any]]) -> None:
    one, other = pair
    assert key(one, rules=OPENAI) == key(other, rules=OPENAI)


Place = tuple[Any, Any]  # a list or an object, and where in it


def places(value: Any) -> list[Place]:
    inside = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else []
    return [(value, at) for at in inside] + [place for at in inside for place in places(value[at])]


def changed(value: Any, draw: st.DrawFn) -> Any:
    """Another value, in some way: another word, another number, one more, one less, another order."""
    if value is None:
        return draw(st.sampled_from(["", "x", [], {}]))
    if isinstance(value, bool):
        return draw(st.sampled_from([not value, int(value), None]))
    if isinstance(value, int | float):
        return draw(st.sampled_from([value + 1, -value - 1, str(value), [value]]))
    if isinstance(value, str):
        return draw(st.sampled_from([value + "x", value + " ", " " + value, value[1:] + "y", value.swapcase() + "z"]))
    if isinstance(value, dict):
        return draw(st.sampled_from([value | {"more": None}, value | {"more": 0}, {"inner": value}]))
    return draw(st.sampled_from([[*value, "more"], [*value, None], value[::-1], value[1:], [*value, *value], [value]]))


@st.composite
def pairs_that_differ_in_one_place(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any]]:
    body = draw(bodies)
    other = copy.deepcopy(body)
    container, at = draw(st.sampled_from(places(other)))
    if isinstance(container, dict) and draw(st.booleans()):
        del container[at]
    else:
        before = container[at]
        container[at] = changed(before, draw)
        assume(not same(canonical(before, ""), canonical(container[at], "")))  # a list may be its own reverse
    return body, other


def key_or_error(body: dict[str, Any]) -> RequestKey | str:
    try:
        return key(body)
    except InputError as error:
        return str(error)


@given(pairs_that_differ_in_one_place())
def test_any_change_of_meaning_is_another_key(pair: tuple[dict[str, Any], dict[str, Any]]) -> None:
    one, other = key(pair[0]), key_or_error(pair[1])
    if isinstance(other, str):  # no request any more, for lack of a model, a message or a role
        assert other.startswith(("model: ", "messages"))
        return
    assert one.fingerprint != other.fingerprint
    if one.context == other.context:  # then all that differs is the text of the question
        assert one.question is not None
        assert other.question is not None
        assert one.question != other.question


@given(bodies, texts.filter(str.strip), texts.filter(str.strip))
def test_the_context_is_all_but_the_text_of_the_question(body: dict[str, Any], one: str, other: str) -> None:
    body.pop("n", None)
    asked = [body | {"messages": [*body["messages"], {"role": "user", "content": text}]} for text in (one, other)]
    keys = [key(each) for each in asked]
    assert keys[0].context == keys[1].context
    assert [each.question for each in keys] == [unicodedata.normalize("NFC", text) for text in (one, other)]
    assert (keys[0].fingerprint == keys[1].fingerprint) == (keys[0].question == keys[1].question)


@given(values)
def test_what_is_encoded_can_be_read_back(value: Any) -> None:
    # so no two canonical values share an encoding
    plain = canonical(value, "value")
    again = orjson.loads(encode(plain))
    assert again == plain
    assert encode(again) == encode(plain)


@given(values)
def test_a_canonical_value_is_its_own(value: Any) -> None:
    plain = canonical(value, "value")
    assert repr(canonical(plain, "value")) == repr(plain)  # repr tells 1 from 1.0 and from true


@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**70), 2**70))
def test_numbers_of_one_value_are_one_number(number: float) -> None:
    same_number = int(number) if isinstance(number, float) and number.is_integer() else number
    assert encode(canonical(number, "number")) == encode(canonical(same_number, "number"))
    if abs(number) < 2**63:
        assert canonical(number, "number") == number
