"""What is a question, and in which context it is asked."""

from __future__ import annotations

from typing import Any

import pytest

from caches.keys.fields import Endpoint
from caches.keys.rules import KeyRules
from tests.caches.test_keys import CHAT, PROMPT, TEXTS, TOOL, key, said

ASKED = said(("system", "Answer in one word."), ("user", "Capital of France?"))
OTHER = said(("system", "Answer in one word."), ("user", "France's capital?"))
IMAGE = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}


def test_another_question_in_the_same_context() -> None:
    one, other = key(ASKED), key(OTHER)
    assert (one.question, other.question) == ("Capital of France?", "France's capital?")
    assert one.context == other.context
    assert one.fingerprint != other.fingerprint


@pytest.mark.parametrize(
    "change",
    [
        {"model": "large"},
        {"temperature": 0.5},
        {"tools": [TOOL]},
        {"max_tokens": 3},
        {"response_format": {"type": "json_object"}},
        {"a field of tomorrow": 1},
        said(("system", "Answer in two words."), ("user", "Capital of France?")),
        said(("developer", "Answer in one word."), ("user", "Capital of France?")),
        said(("system", "Answer in one word."), ("user", "Hi"), ("assistant", "Hi"), ("user", "Capital of France?")),
        said(("user", "Capital of France?")),
        {"messages": [ASKED["messages"][0], ASKED["messages"][1] | {"name": "ann"}]},
    ],
)
def test_the_same_question_in_another_context(change: dict[str, Any]) -> None:
    changed = key(ASKED | change)
    assert changed.question == "Capital of France?"
    assert changed.context != key(ASKED).context


def test_earlier_turns_are_context_even_where_they_hold_the_same_words() -> None:
    # who said what must not move between the question and what came before it
    one = key(said(("user", "a"), ("user", "b")))
    other = key(said(("user", "b"), ("user", "a")))
    assert one.context != other.context


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(said(("user", [{"type": "text", "text": "What is this?"}, IMAGE])), id="an image beside it"),
        pytest.param(said(("user", [IMAGE])), id="an image"),
        pytest.param(said(("user", "Hi"), ("assistant", "Hello")), id="the assistant's turn"),
        pytest.param(said(("user", "Hi"), ("tool", "12:00")), id="what a tool said"),
        pytest.param(said(("user", "Hi"), ("system", "Be brief.")), id="a system message"),
        pytest.param(said(("user", "")), id="empty"),
        pytest.param(said(("user", " \n\u2003")), id="blank"),
        pytest.param(said(("user", None)), id="null"),
        pytest.param(CHAT | {"messages": [{"role": "user"}]}, id="absent"),
        pytest.param(CHAT | {"n": 2}, id="several answers"),
        pytest.param(CHAT | {"logprobs": True}, id="probabilities"),
    ],
)
def test_what_is_no_question(body: dict[str, Any]) -> None:
    assert key(body).question is None


def test_only_chats_hold_questions() -> None:
    chat = {"messages": CHAT["messages"]}
    assert key(CHAT).question is not None
    assert key(PROMPT | chat, Endpoint.COMPLETIONS).question is None
    assert key(TEXTS | chat, Endpoint.EMBEDDINGS).question is None


@pytest.mark.parametrize("change", [{"n": 1}, {"n": None}, {"logprobs": False}, {"tools": [TOOL]}, {"stream": True}])
def test_what_is_still_a_question(change: dict[str, Any]) -> None:
    assert key(CHAT | change).question == "Capital of France?"


def test_without_a_question_the_context_holds_everything() -> None:
    one, other = (key(CHAT | {"messages": ASKED["messages"], "n": 2}), key(OTHER | {"n": 2}))
    assert one.context != other.context
    images = [key(said(("user", [{"type": "image_url", "image_url": {"url": url}}]))) for url in ("a", "b")]
    assert images[0].context != images[1].context
    assert images[0].fingerprint != images[1].fingerprint


def test_a_question_is_text_in_nfc_with_its_white_space() -> None:
    assert key(said(("user", " cafe\u0301?\n"))).question == " caf\u00e9?\n"
    assert key(said(("user", " cafe\u0301?\n")), rules=KeyRules(trim_text=True)).question == "caf\u00e9?"
    assert key(said(("user", [{"type": "text", "text": "Hi"}]))).question == "Hi"
