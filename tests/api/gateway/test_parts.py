"""The parts that only turn values into others: events, assembly, replay, wishes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request

from api.gateway.asked import Wishes, wishes_of
from api.gateway.assemble import Assembly
from api.gateway.events import END, data_of, event, json_event, without_usage
from api.gateway.replay import replayed
from caches.keys.fields import Endpoint

TEXT = st.text(max_size=150)
CALL = st.fixed_dictionaries(
    {
        "id": st.sampled_from(["call_1", "call_2"]),
        "type": st.just("function"),
        "function": st.fixed_dictionaries({"name": st.just("weather"), "arguments": TEXT}),
    }
)
MESSAGE = st.one_of(
    st.fixed_dictionaries({"role": st.just("assistant"), "content": TEXT, "refusal": st.none()}),
    st.fixed_dictionaries(
        {
            "role": st.just("assistant"),
            "content": st.one_of(st.none(), TEXT.filter(bool)),
            "refusal": st.none(),
            "tool_calls": st.lists(CALL, min_size=1, max_size=3),
        }
    ),
    st.fixed_dictionaries(
        {"role": st.just("assistant"), "content": TEXT, "refusal": st.none(), "reasoning_content": TEXT}
    ),
)
TOKENS = st.lists(st.fixed_dictionaries({"token": TEXT, "logprob": st.floats(-9, 0), "top_logprobs": st.just([])}))


@given(
    messages=st.lists(MESSAGE, min_size=1, max_size=3),
    tokens=st.one_of(st.none(), TOKENS),
    reason=st.sampled_from(["stop", "length", "tool_calls"]),
)
def test_a_replayed_chat_assembles_to_itself(messages: list[Any], tokens: Any, reason: str) -> None:
    logprobs = None if tokens is None or any("tool_calls" in one for one in messages) else {"content": tokens}
    answer = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 7,
        "model": "m",
        "choices": [
            {"index": index, "message": message, "logprobs": logprobs, "finish_reason": reason}
            for index, message in enumerate(messages)
        ],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3},
    }
    assert joined(Endpoint.CHAT, replayed(Endpoint.CHAT, answer, with_usage=True)) == answer


@given(texts=st.lists(TEXT, min_size=1, max_size=3))
def test_a_replayed_completion_assembles_to_itself(texts: list[str]) -> None:
    choices = [
        {"index": index, "text": text, "logprobs": None, "stop_reason": 7, "finish_reason": "stop"}
        for index, text in enumerate(texts)
    ]
    answer = {"id": "1", "object": "text_completion", "choices": choices, "usage": {"total_tokens": 3}}
    assert joined(Endpoint.COMPLETIONS, replayed(Endpoint.COMPLETIONS, answer, with_usage=True)) == answer


def joined(endpoint: Endpoint, pieces: Any) -> dict[str, Any]:
    *chunks, done = (piece.removeprefix(b"data: ").removesuffix(b"\n\n") for piece in pieces)
    assert done == END
    assembly = Assembly(endpoint)
    for chunk in chunks:
        assembly.add(orjson.loads(chunk))
    assert assembly.complete
    return assembly.whole()


def test_tool_calls_in_parts_are_joined_by_their_index() -> None:
    """Two calls that come in turns; ids and names once, and once more with nothing."""
    deltas: list[Any] = [
        {"role": "assistant", "content": ""},
        {"tool_calls": [{"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": ""}}]},
        {"tool_calls": [{"index": 1, "id": "b", "type": "function", "function": {"name": "g", "arguments": "{"}}]},
        {
            "tool_calls": [
                {"index": 0, "function": {"name": "", "arguments": "[1"}},
                {"index": 1, "function": {"arguments": "}"}},
            ]
        },
        {"tool_calls": [{"index": 0, "id": None, "function": {"arguments": "]"}}]},
    ]
    assembly = Assembly(Endpoint.CHAT)
    for delta in deltas:
        assembly.add({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
    assert not assembly.complete
    assembly.add({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})
    message = assembly.whole()["choices"][0]["message"]
    assert message["content"] is None
    told = [(call["id"], call["function"]["name"], call["function"]["arguments"]) for call in message["tool_calls"]]
    assert told == [("a", "f", "[1]"), ("b", "g", "{}")]
    assert all("index" not in call for call in message["tool_calls"])


@given(cuts=st.sets(st.integers(0, 60)))
async def test_events_are_read_however_they_are_cut(cuts: set[int]) -> None:
    raw = b": hello\n\nevent: x\ndata: one\r\n\r\ndata:two\ndata: 2\n\n\n\nid: 7\n\ndata: [DONE]\n\ndata: half"

    async def pieces() -> AsyncIterator[bytes]:
        ends = [*sorted(cut for cut in cuts if cut < len(raw)), len(raw)]
        for start, end in zip([0, *ends], ends, strict=False):
            yield raw[start:end]

    assert [data async for data in data_of(pieces())] == [b"one", b"two\n2", b"[DONE]"]


def test_usage_is_taken_out_and_nothing_else() -> None:
    plain = json_event({"choices": [{"delta": {"content": "a"}}]})
    assert without_usage(plain) == plain
    assert without_usage(json_event({"choices": [], "usage": {"total_tokens": 1}})) is None
    assert without_usage(json_event({"choices": [1], "usage": None})) == json_event({"choices": [1]})
    said = event(b'{"choices": [{"delta": {"content": "the \\"usage\\" of"}}]}')
    assert without_usage(said) == said


@pytest.mark.parametrize(
    ("headers", "wishes"),
    [
        ({}, Wishes()),
        ({"cache-control": "no-store"}, Wishes(no_store=True)),
        ({"cache-control": "No-Cache, max-age=60"}, Wishes(max_age_seconds=0.0)),
        ({"cache-control": "max-age=60, max-age=30"}, Wishes(max_age_seconds=30.0)),
        ({"cache-control": 'max-age="60"'}, Wishes(max_age_seconds=60.0)),
        ({"cache-control": "max-age"}, Wishes(max_age_seconds=0.0)),
        ({"cache-control": "public, s-maxage=3"}, Wishes()),
        ({"x-setpoint-ttl": "1.5"}, Wishes(ttl_seconds=1.5)),
    ],
)
def test_wishes(headers: dict[str, str], wishes: Wishes) -> None:
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    assert wishes_of(Request({"type": "http", "headers": raw})) == wishes
