"""The `openai` Python client makes its common calls through the gateway, unchanged, and twice: a miss, then a hit."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from pydantic import BaseModel

from tests.api.gateway.conftest import Backend, emulated, gateway, openai_at

QUESTION: Any = {"role": "user", "content": "How far is the moon?"}
ASK: dict[str, Any] = {"model": "m", "temperature": 0, "messages": [QUESTION]}
WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
CALLS: list[dict[str, Any]] = [
    {},
    {"n": 2},
    {"tools": [WEATHER]},
    {"logprobs": True, "top_logprobs": 2, "max_tokens": 5},
    {"response_format": {"type": "json_object"}},
    {"max_tokens": 3},
]


@pytest.mark.parametrize("fields", CALLS, ids=str)
def test_chat_is_that_of_the_backend(client: OpenAI, backend: Backend, fields: dict[str, Any]) -> None:
    with openai_at(backend.address) as direct:
        expected = direct.chat.completions.create(**ASK, **fields)
    backend.calls.clear()
    assert client.chat.completions.create(**ASK, **fields) == expected
    assert client.chat.completions.create(**ASK, **fields) == expected
    assert len(backend.calls) == 1


@pytest.mark.parametrize("fields", CALLS, ids=str)
@pytest.mark.parametrize("streamed_first", [True, False])
def test_stream_joined_is_the_whole_answer(
    client: OpenAI, backend: Backend, fields: dict[str, Any], streamed_first: bool
) -> None:
    """A streamed miss, a streamed hit and a whole hit, or a whole miss before them, all say the same."""
    with openai_at(backend.address) as direct:
        expected = direct.chat.completions.create(**ASK, **fields)
    backend.calls.clear()
    if not streamed_first:
        client.chat.completions.create(**ASK, **fields)
    options: dict[str, Any] = {"stream_options": {"include_usage": True}}
    for _ in range(2):
        final = _joined(client, fields | options)
        assert final.usage == expected.usage
        assert [_said(one) for one in final.choices] == [_said(one) for one in expected.choices]
    assert client.chat.completions.create(**ASK, **fields) == expected
    assert len(backend.calls) == 1


def _joined(client: OpenAI, fields: dict[str, Any]) -> Any:
    with client.chat.completions.stream(**ASK, **fields) as stream:
        try:
            return stream.get_final_completion()
        except openai.LengthFinishReasonError as error:
            return error.completion


def _said(choice: Any) -> Any:
    told = choice.to_dict()
    message = told["message"]
    calls = [
        (call["id"], call["type"], call["function"]["name"], call["function"]["arguments"])
        for call in message.get("tool_calls") or ()
    ]
    tokens = (told.get("logprobs") or {}).get("content")
    return told["index"], told["finish_reason"], message["role"], message.get("content"), calls, tokens


def test_usage_comes_only_where_it_was_asked_for(client: OpenAI) -> None:
    for _ in range(2):
        chunks = list(client.chat.completions.create(**ASK, stream=True))
        assert all(chunk.choices and "usage" not in chunk.to_dict() for chunk in chunks)
    told = list(client.chat.completions.create(**ASK, stream=True, stream_options={"include_usage": True}))
    assert told[-1].choices == []
    assert told[-1].usage == client.chat.completions.create(**ASK).usage
    assert all(chunk.usage is None for chunk in told[:-1])


@pytest.mark.parametrize("logprobs", [None, 1])
@pytest.mark.parametrize("streamed_first", [True, False])
def test_completions(client: OpenAI, backend: Backend, logprobs: int | None, streamed_first: bool) -> None:
    asked: Any = {"model": "m", "prompt": ["Once", "Twice"], "max_tokens": 60, "n": 2, "temperature": 0}
    asked |= {} if logprobs is None else {"logprobs": logprobs}
    with openai_at(backend.address) as direct:
        expected = direct.completions.create(**asked)
    if not streamed_first:
        assert client.completions.create(**asked) == expected
    for _ in range(2):
        texts, tokens = dict.fromkeys(range(4), ""), {index: list[str]() for index in range(4)}
        for chunk in client.completions.create(**asked, stream=True):
            (choice,) = chunk.choices
            texts[choice.index] += choice.text
            tokens[choice.index] += (choice.logprobs.tokens or []) if choice.logprobs else []
        assert texts == {choice.index: choice.text for choice in expected.choices}
        if logprobs is not None:
            assert tokens == {one.index: one.logprobs.tokens for one in expected.choices if one.logprobs}
    assert client.completions.create(**asked) == expected


def test_embeddings_in_both_encodings(client: OpenAI, backend: Backend) -> None:
    """The client asks for base64 unless it is told otherwise; the two are not the same request."""
    for _ in range(2):
        short = client.embeddings.create(model="m", input=["moon", "sun"], dimensions=16)
        plain = client.embeddings.create(model="m", input=["moon", "sun"], dimensions=16, encoding_format="float")
        for packed, listed in zip(short.data, plain.data, strict=True):
            assert np.allclose(packed.embedding, listed.embedding)
    assert len(backend.calls) == 2


def test_models(client: OpenAI) -> None:
    (model,) = client.models.list().data
    assert client.models.retrieve(model.id) == model
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt/x")


class Planet(BaseModel):
    name: str
    moons: int


def test_parse_into_a_model(client: OpenAI) -> None:
    one, two = (client.chat.completions.parse(**ASK, response_format=Planet) for _ in range(2))
    assert isinstance(two.choices[0].message.parsed, Planet)
    assert one.choices[0].message.content == two.choices[0].message.content


def test_loop_over_tools_ends(client: OpenAI) -> None:
    messages: list[Any] = list(ASK["messages"])
    for _ in range(2):
        answer = client.chat.completions.create(model="m", temperature=0, messages=messages, tools=[WEATHER])
        message = answer.choices[0].message
        messages.append(message)
        messages += [{"role": "tool", "tool_call_id": call.id, "content": "rain"} for call in message.tool_calls or ()]
    assert not message.tool_calls
    assert message.content


def test_bad_request_names_the_field(client: OpenAI, backend: Backend) -> None:
    """What the gateway cannot key, the backend judges."""
    for stream in (False, True):
        with pytest.raises(openai.BadRequestError) as caught:
            client.chat.completions.create(model="m", messages=[], stream=stream)
        assert caught.value.param == "messages"
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(**ASK, top_p=7)
    assert caught.value.param == "top_p"
    assert len(backend.calls) == 3


def test_client_that_runs_out_of_time() -> None:
    with (
        emulated(speed=1.0, slots=1) as slow,
        gateway(slow.address) as front,
        openai_at(front, timeout=0.5) as client,
        pytest.raises(openai.APITimeoutError),
    ):
        client.chat.completions.create(**ASK, max_tokens=10_000, extra_body={"ignore_eos": True})


async def test_async_client(front: str) -> None:
    async with AsyncOpenAI(base_url=f"{front}/v1", api_key="none", max_retries=0, timeout=10) as client:
        whole = await client.chat.completions.create(**ASK)
        text = ""
        async with await client.chat.completions.create(**ASK, stream=True) as stream:
            async for chunk in stream:
                text += chunk.choices[0].delta.content or ""
        assert text == whole.choices[0].message.content
        assert [model.id async for model in client.models.list()] == ["qwen2.5-7b-a100"]
        raw = await client.embeddings.with_raw_response.create(model="m", input="moon")
        assert raw.headers["x-setpoint-cache"] == "miss"
        assert json.loads(raw.text)["data"]
