"""The `openai` Python client makes its common calls against a real server, unchanged."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any, Literal

import numpy as np
import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from pydantic import BaseModel

from api.emulator.answers import NOTICE
from tests.api.emulator.conftest import emulator

ASK: list[Any] = [{"role": "user", "content": "How far is the moon?"}]
WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


@pytest.fixture
def client(fast: str) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{fast}/v1", api_key="none", max_retries=0, timeout=10) as one:
        yield one


@pytest.fixture
async def async_client(fast: str) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=f"{fast}/v1", api_key="none", max_retries=0, timeout=10) as one:
        yield one


def test_chat(client: OpenAI) -> None:
    answer = client.chat.completions.create(model="m", messages=ASK)
    message = answer.choices[0].message
    assert message.role == "assistant"
    assert NOTICE in (message.content or "")
    assert answer.system_fingerprint == "setpoint-emulator-qwen2.5-7b-a100"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == 4 + 5
    assert answer.usage.completion_tokens == -(-len(message.content or "") // 4)


def test_equal_calls_get_equal_answers(client: OpenAI) -> None:
    first, second, other = (
        client.chat.completions.create(model="m", messages=ASK, temperature=temperature) for temperature in (0, 0, 1)
    )
    assert first == second
    assert first.choices != other.choices
    assert first.id != other.id


def test_every_response_says_that_no_model_ran(client: OpenAI) -> None:
    raw = client.chat.completions.with_raw_response.create(model="m", messages=ASK)
    assert raw.headers["x-setpoint-emulator"] == "no model ran; profile qwen2.5-7b-a100"
    with pytest.raises(openai.NotFoundError) as caught:
        client.get("/nowhere", cast_to=object)
    assert "x-setpoint-emulator" in caught.value.response.headers


def test_stream_brings_the_same_with_usage_at_the_end(client: OpenAI) -> None:
    whole = client.chat.completions.create(model="m", messages=ASK, n=2)
    texts = {0: "", 1: ""}
    reasons = {}
    usage = None
    with client.chat.completions.create(
        model="m", messages=ASK, n=2, stream=True, stream_options={"include_usage": True}
    ) as stream:
        for chunk in stream:
            assert chunk.id == whole.id
            assert usage is None  # nothing comes after it
            usage = chunk.usage
            for choice in chunk.choices:
                texts[choice.index] += choice.delta.content or ""
                if choice.finish_reason:
                    reasons[choice.index] = choice.finish_reason
    assert texts == {choice.index: choice.message.content for choice in whole.choices}
    assert reasons == {choice.index: choice.finish_reason for choice in whole.choices}
    assert usage == whole.usage


def test_stream_without_usage(client: OpenAI) -> None:
    chunks = list(client.chat.completions.create(model="m", messages=ASK, stream=True, max_tokens=3))
    assert [chunk.choices[0].delta.role for chunk in chunks] == ["assistant", None, None, None, None]
    assert chunks[-1].choices[0].finish_reason == "length"
    assert all(chunk.usage is None for chunk in chunks)


def test_streamed_logprobs_are_those_of_the_whole(client: OpenAI) -> None:
    asked: Any = {"model": "m", "messages": ASK, "logprobs": True, "top_logprobs": 2, "max_tokens": 5}
    whole = client.chat.completions.create(**asked).choices[0].logprobs
    streamed = [
        token
        for chunk in client.chat.completions.create(**asked, stream=True)
        for choice in chunk.choices
        if choice.logprobs is not None
        for token in choice.logprobs.content or ()
    ]
    assert whole is not None
    assert streamed == whole.content


def test_tool_call_and_its_stream(client: OpenAI) -> None:
    whole = client.chat.completions.create(model="m", messages=ASK, tools=[WEATHER])
    (call,) = whole.choices[0].message.tool_calls or ()
    assert whole.choices[0].finish_reason == "tool_calls"
    assert call.type == "function"
    assert call.function.name == "weather"
    assert "emulated" in json.loads(call.function.arguments)["city"]
    with client.chat.completions.stream(model="m", messages=ASK, tools=[WEATHER]) as stream:
        final = stream.get_final_completion()
    (streamed,) = final.choices[0].message.tool_calls or ()
    assert (streamed.id, streamed.function.arguments) == (call.id, call.function.arguments)


def test_loop_over_tools_ends(client: OpenAI) -> None:
    messages = list(ASK)
    for _ in range(3):
        message = client.chat.completions.create(model="m", messages=messages, tools=[WEATHER]).choices[0].message
        if not message.tool_calls:
            break
        messages.append(message)
        messages += [{"role": "tool", "tool_call_id": call.id, "content": "rain"} for call in message.tool_calls]
    assert NOTICE in (message.content or "")


def test_json_mode(client: OpenAI) -> None:
    answer = client.chat.completions.create(model="m", messages=ASK, response_format={"type": "json_object"})
    assert json.loads(answer.choices[0].message.content or "")["emulated"] == NOTICE


class Place(BaseModel):
    name: str
    planet: Literal["earth", "moon"]
    kilometres: int | None
    near: list[Place]


def test_parse_into_a_model(client: OpenAI) -> None:
    parsed = client.chat.completions.parse(model="m", messages=ASK, response_format=Place)
    assert isinstance(parsed.choices[0].message.parsed, Place)


def test_completions(client: OpenAI) -> None:
    whole = client.completions.create(model="m", prompt=["Once", "Twice"], max_tokens=6, n=2, logprobs=1)
    assert [choice.index for choice in whole.choices] == [0, 1, 2, 3]
    assert {choice.finish_reason for choice in whole.choices} == {"length"}
    assert whole.usage is not None
    assert (whole.usage.prompt_tokens, whole.usage.completion_tokens) == (1 + 2, 4 * 6)
    texts = dict.fromkeys(range(4), "")
    stream = client.completions.create(model="m", prompt=["Once", "Twice"], max_tokens=6, n=2, logprobs=1, stream=True)
    for chunk in stream:
        texts[chunk.choices[0].index] += chunk.choices[0].text
    assert texts == {choice.index: choice.text for choice in whole.choices}


def test_embeddings_in_both_encodings(client: OpenAI) -> None:
    """The client asks for base64 unless it is told otherwise."""
    short = client.embeddings.create(model="m", input=["moon", "sun"], dimensions=16)
    plain = client.embeddings.create(model="m", input=["moon", "sun"], dimensions=16, encoding_format="float")
    for packed, listed in zip(short.data, plain.data, strict=True):
        assert np.allclose(packed.embedding, listed.embedding)
        assert np.linalg.norm(packed.embedding) == pytest.approx(1.0, abs=1e-6)
    assert short.usage.prompt_tokens == 2


def test_models(client: OpenAI) -> None:
    (model,) = client.models.list().data
    assert (model.id, model.owned_by) == ("qwen2.5-7b-a100", "setpoint-emulator")
    assert client.models.retrieve("qwen2.5-7b-a100") == model
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt/x")


def test_bad_request_names_the_field(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="m", messages=[])
    assert caught.value.param == "messages"
    assert caught.value.type == "invalid_request_error"


@pytest.mark.parametrize("kind", [openai.RateLimitError, openai.InternalServerError])
def test_failures_are_errors_that_the_client_knows(kind: type[openai.APIStatusError]) -> None:
    """Every request fails, half of them in either way: with a chance of 1 in 10^9 thirty are all of the other kind."""
    seen: list[openai.APIStatusError] = []
    with (
        emulator(fail_ratio=1.0) as address,
        OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0, timeout=10) as client,
    ):
        for i in range(30):
            with pytest.raises((openai.RateLimitError, openai.InternalServerError)) as caught:
                client.embeddings.create(model="m", input=f"question {i}")
            seen.append(caught.value)
            if isinstance(caught.value, kind):
                break
    assert isinstance(seen[-1], kind)
    limited = kind is openai.RateLimitError
    assert seen[-1].response.headers.get("retry-after") == ("1" if limited else None)
    assert seen[-1].code == ("rate_limit_exceeded" if limited else "emulated_failure")


async def test_async_chat_and_stream(async_client: AsyncOpenAI) -> None:
    whole = await async_client.chat.completions.create(model="m", messages=ASK)
    text = ""
    async with await async_client.chat.completions.create(model="m", messages=ASK, stream=True) as stream:
        async for chunk in stream:
            text += chunk.choices[0].delta.content or ""
    assert text == whole.choices[0].message.content


async def test_async_embeddings_models_and_errors(async_client: AsyncOpenAI) -> None:
    assert (await async_client.embeddings.create(model="m", input="moon")).data[0].index == 0
    assert [model.id async for model in async_client.models.list()] == ["qwen2.5-7b-a100"]
    with pytest.raises(openai.BadRequestError):
        await async_client.chat.completions.create(model="m", messages=ASK, n=0)
