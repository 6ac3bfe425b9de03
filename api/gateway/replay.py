"""From a stored answer to the stream that it could have come as."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from api.gateway.events import DONE, json_event
from caches.keys.fields import Endpoint

OBJECTS = {Endpoint.CHAT: "chat.completion.chunk", Endpoint.COMPLETIONS: "text_completion"}
PIECE_CHARACTERS = 64  # about 16 tokens: a page reads well, and a long answer is not thousands of chunks
CHOICE = frozenset({"index", "message", "text", "logprobs", "finish_reason"})


def replayed(endpoint: Endpoint, answer: dict[str, Any], *, with_usage: bool) -> Iterator[bytes]:
    """Events, of a choice each; joined, they are the answer."""
    head = {name: value for name, value in answer.items() if name not in {"choices", "usage"}}
    head["object"] = OBJECTS[endpoint]
    if with_usage:
        head["usage"] = None
    entries = _chat if endpoint is Endpoint.CHAT else _completion
    for choice in answer["choices"]:
        for entry in entries(choice):
            yield json_event({**head, "choices": [entry]})
    if with_usage:
        yield json_event({**head, "choices": [], "usage": answer.get("usage")})
    yield DONE


def _chat(choice: dict[str, Any]) -> Iterator[dict[str, Any]]:
    message = dict(choice["message"])
    role, content = message.pop("role", "assistant"), message.pop("content", None)
    calls = message.pop("tool_calls", None)
    others = {name: value for name, value in message.items() if value is not None}
    text = content if isinstance(content, str) else ""
    yield _delta(choice, {"role": role, "content": "" if isinstance(content, str) else content, **others})
    logprobs = choice.get("logprobs")
    # tokens and characters do not end together: probabilities come with all of the text
    for piece in _pieces(text, whole=logprobs is not None):
        yield _delta(choice, {"content": piece}) | {"logprobs": logprobs}
    for index, call in enumerate(calls or ()):
        yield from _call(choice, index, call)
    yield _delta(choice, {}) | _ending(choice)


def _call(choice: dict[str, Any], index: int, call: dict[str, Any]) -> Iterator[dict[str, Any]]:
    function = call.get("function")
    if not isinstance(function, dict) or not isinstance(function.get("arguments"), str):
        yield _delta(choice, {"tool_calls": [{"index": index, **call}]})
        return
    opening = {"index": index, **call, "function": {**function, "arguments": ""}}
    yield _delta(choice, {"tool_calls": [opening]})
    for piece in _pieces(function["arguments"]):
        yield _delta(choice, {"tool_calls": [{"index": index, "function": {"arguments": piece}}]})


def _completion(choice: dict[str, Any]) -> Iterator[dict[str, Any]]:
    logprobs = choice.get("logprobs")
    for piece in _pieces(choice.get("text") or "", whole=logprobs is not None):
        yield {"index": choice.get("index", 0), "text": piece, "logprobs": logprobs, "finish_reason": None}
    yield {"index": choice.get("index", 0), "text": "", "logprobs": None} | _ending(choice)


def _pieces(text: str, *, whole: bool = False) -> list[str]:
    if whole:
        return [text]
    return [text[start : start + PIECE_CHARACTERS] for start in range(0, len(text), PIECE_CHARACTERS)]


def _delta(choice: dict[str, Any], delta: dict[str, Any]) -> dict[str, Any]:
    return {"index": choice.get("index", 0), "delta": delta, "logprobs": None, "finish_reason": None}


def _ending(choice: dict[str, Any]) -> dict[str, Any]:
    """Why it ends, and what servers say of a choice beside the text."""
    return {name: value for name, value in choice.items() if name not in CHOICE} | {
        "finish_reason": choice.get("finish_reason")
    }
