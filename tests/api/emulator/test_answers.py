"""Answers follow from the request, differ between requests and keep to what the request asks."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.emulator.answers import LONGEST, NOTICE, SHORTEST, WORDS, Answer, chat_answer, completion_answer
from api.emulator.bodies import ChatBody, CompletionBody, EmbeddingBody, checked
from api.emulator.digests import Digest, request_digest
from api.emulator.embeddings import embedding, embedding_answer
from api.emulator.tokens import count, pieces
from api.emulator.wire import ChatForm, CompletionForm
from api.http.errors import BadRequest

PATH = "/v1/chat/completions"
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1, "maximum": 7}},
            "required": ["city", "days"],
        },
    },
}
CLOCK = {"type": "function", "function": {"name": "clock"}}


def chat(seed: int = 0, **fields: Any) -> Answer:
    raw = {"model": "m", "messages": [{"role": "user", "content": "How far is the moon?"}], **fields}
    return chat_answer(checked(ChatBody, raw), request_digest(seed, PATH, raw))


def completion(**fields: Any) -> Answer:
    raw = {"model": "m", "prompt": "Once upon a time", **fields}
    return completion_answer(checked(CompletionBody, raw), request_digest(0, "/v1/completions", raw))


def only(answer: Answer) -> str:
    (choice,) = answer.choices
    return choice.text


def test_four_characters_are_a_token() -> None:
    assert [count("a" * length) for length in (0, 1, 4, 5, 8)] == [0, 1, 1, 2, 2]
    assert pieces("abcdefghij") == ["abcd", "efgh", "ij"]


def test_words_are_64_for_a_byte_to_pick_without_bias() -> None:
    assert len(set(WORDS)) == len(WORDS) == 64


def test_equal_requests_get_equal_answers() -> None:
    assert chat() == chat()


@pytest.mark.parametrize(
    "change",
    [
        {"model": "other"},
        {"messages": [{"role": "user", "content": "How far is the sun?"}]},
        {"messages": [{"role": "system", "content": "How far is the moon?"}]},
        {"temperature": 0.5},
        {"seed": 1},
        {"user": "somebody"},
        {"max_tokens": 1000},
    ],
)
def test_any_difference_makes_another_answer(change: dict[str, Any]) -> None:
    assert only(chat(**change))[:4] != only(chat())[:4]


def test_the_seed_makes_another_answer() -> None:
    assert only(chat(seed=1)) != only(chat())


def test_a_stream_brings_the_same_answer() -> None:
    assert chat(stream=True, stream_options={"include_usage": True}) == chat(stream=False) == chat()


def test_text_says_that_it_is_emulated() -> None:
    assert NOTICE in only(chat())


def test_lengths_are_drawn_from_the_request() -> None:
    answers = [chat(seed=seed) for seed in range(50)]
    lengths = [answer.completion_tokens for answer in answers]
    assert len(set(lengths)) > 25
    assert SHORTEST <= min(lengths) <= max(lengths) <= LONGEST
    assert {answer.choices[0].finish_reason for answer in answers} == {"stop"}


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_limit_cuts_the_text(name: str) -> None:
    (choice,) = chat(**{name: 7}).choices
    assert (len(choice.pieces), choice.finish_reason) == (7, "length")


def test_the_newer_limit_rules() -> None:
    assert chat(max_tokens=30, max_completion_tokens=5).completion_tokens == 5


def test_completions_are_16_tokens_where_nothing_is_said() -> None:
    assert completion().completion_tokens == 16


def test_ignore_eos_makes_exactly_as_many() -> None:
    (choice,) = chat(max_tokens=1234, ignore_eos=True).choices
    assert (len(choice.pieces), choice.finish_reason) == (1234, "length")


def test_min_tokens_makes_no_less() -> None:
    assert chat(min_tokens=700).completion_tokens == 700


def test_stop_ends_before_itself() -> None:
    stop = [" model", "emulated", ""]
    text = only(chat(stop=stop))
    assert text.endswith(" (")
    assert chat(stop=stop).choices[0].finish_reason == "stop"


def test_choices_differ() -> None:
    answer = chat(n=3)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert len({choice.text for choice in answer.choices}) == 3


def test_prompts_come_in_order_with_n_choices_each() -> None:
    """Prompts of 2 and 1 tokens count once, not once per choice."""
    answer = completion(prompt=["abcde", "abc"], n=2)
    assert [choice.prompt_tokens for choice in answer.choices] == [2, 2, 1, 1]
    assert answer.prompt_tokens == 3


@pytest.mark.parametrize(("prompt", "tokens"), [([5, 6, 7], 3), ([[5, 6], [7]], 3), ("abcdefg", 2)])
def test_prompts_may_be_tokens(prompt: Any, tokens: int) -> None:
    assert completion(prompt=prompt).prompt_tokens == tokens


def test_prompt_tokens_of_a_chat() -> None:
    """4 a message; 2 for the text; 256 for the image."""
    content = [{"type": "text", "text": "abcde"}, {"type": "image_url", "image_url": {"url": "data:,"}}]
    messages = [{"role": "user", "content": content}, {"role": "assistant", "content": None}]
    assert chat(messages=messages).prompt_tokens == 4 + 2 + 256 + 4


def test_tools_count_in_the_prompt() -> None:
    assert chat(tools=[WEATHER]).prompt_tokens > chat().prompt_tokens


@pytest.mark.parametrize(
    ("choice", "called"),
    [
        (None, "weather"),
        ("auto", "weather"),
        ("required", "weather"),
        ("none", None),
        ({"type": "function", "function": {"name": "clock"}}, "clock"),
    ],
)
def test_calls_the_named_or_the_first_tool(choice: Any, called: str | None) -> None:
    assert chat(tools=[WEATHER, CLOCK], tool_choice=choice).choices[0].tool == called


def test_arguments_fit_the_required_fields() -> None:
    (choice,) = chat(tools=[WEATHER]).choices
    arguments = json.loads(choice.text)
    assert arguments.keys() == {"city", "days"}
    assert "emulated" in arguments["city"]
    assert 1 <= arguments["days"] <= 7
    assert choice.finish_reason == "tool_calls"


def test_no_further_call_after_a_result() -> None:
    messages = [{"role": "user", "content": "Rain?"}, {"role": "tool", "content": "no", "tool_call_id": "1"}]
    assert chat(messages=messages, tools=[WEATHER]).choices[0].tool is None
    assert chat(messages=messages, tools=[WEATHER], tool_choice="required").choices[0].tool == "weather"


def test_json_mode_is_an_object_that_says_what_it_is() -> None:
    assert json.loads(only(chat(response_format={"type": "json_object"})))["emulated"] == NOTICE


def test_json_schema_is_met() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}
    told = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    assert isinstance(json.loads(only(chat(response_format=told)))["a"], bool)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "king", "content": "x"}]}, "messages.0.role"),
        ({"max_tokens": "5"}, "max_tokens"),
        ({"n": 0}, "n"),
        ({"temperature": 3}, "temperature"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [WEATHER], "tool_choice": {"type": "function", "function": {"name": "x"}}}, "tool_choice"),
        ({"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "odd"}}}]}, "tools"),
    ],
)
def test_bad_body_names_its_field(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequest) as caught:
        chat(**fields)
    assert caught.value.param == param


def test_echo_is_refused() -> None:
    with pytest.raises(BadRequest, match="echo"):
        completion(echo=True)


def test_logprobs_join_to_the_text_and_rank_the_token_first() -> None:
    answer = chat(logprobs=True, top_logprobs=3, max_tokens=9)
    choice = ChatForm().whole(answer, "f")["choices"][0]
    content = choice["logprobs"]["content"]
    assert "".join(token["token"] for token in content) == choice["message"]["content"]
    for token in content:
        assert [token["logprob"]] == sorted((top["logprob"] for top in token["top_logprobs"]), reverse=True)[:1]
        assert len({top["token"] for top in token["top_logprobs"]}) == 3
        assert token["logprob"] <= 0
        assert bytes(token["bytes"]).decode() == token["token"]


def test_completion_logprobs_are_columns() -> None:
    choice = CompletionForm().whole(completion(logprobs=0, max_tokens=3), "f")["choices"][0]
    assert "".join(choice["logprobs"]["tokens"]) == choice["text"]
    assert choice["logprobs"]["text_offset"] == [0, 4, 8]
    assert [list(top) for top in choice["logprobs"]["top_logprobs"]] == [[], [], []]


def test_embeddings_are_unit_vectors_that_follow_from_the_text() -> None:
    here, again, other = (embedding(0, "m", text, 512) for text in ("a", "a", "b"))
    assert np.array_equal(here, again)
    assert np.linalg.norm(here) == pytest.approx(1.0)
    assert abs(float(here @ other)) < 0.2


def test_embeddings_come_one_per_input() -> None:
    body = checked(EmbeddingBody, {"model": "m", "input": ["abcde", [1, 2, 3]], "dimensions": 8})
    answer = embedding_answer(body, 0)
    assert [len(row["embedding"]) for row in answer["data"]] == [8, 8]
    assert answer["usage"] == {"prompt_tokens": 5, "total_tokens": 5}


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False)
    | st.text("abcä€", max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["metadata", "user", "extra", "logit_bias", "a"]), values), st.randoms())
def test_order_of_keys_changes_nothing(fields: dict[str, Any], random: Any) -> None:
    assert digest(shuffled(fields, random)) == digest(fields)


@given(st.dictionaries(st.sampled_from(["metadata", "user"]), values), st.sampled_from(["x", "y"]), values)
def test_another_value_changes_the_digest(fields: dict[str, Any], name: str, value: Any) -> None:
    assert digest({**fields, name: value}) != digest(fields)


def digest(fields: dict[str, Any]) -> Digest:
    return request_digest(0, PATH, fields)


def shuffled(value: Any, random: Any) -> Any:
    if isinstance(value, list):
        return [shuffled(item, random) for item in value]
    if not isinstance(value, dict):
        return value
    names = list(value)
    random.shuffle(names)
    return {name: shuffled(value[name], random) for name in names}
