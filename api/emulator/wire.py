"""Answers in the JSON of OpenAI's API, whole and in parts.

`created` is always 0: an answer depends on its request alone, so it cannot know the time.
"""

from __future__ import annotations

from typing import Any, Protocol

from api.emulator.answers import Answer, Choice
from api.emulator.digests import derived
from api.emulator.logprobs import chat_logprobs, completion_logprobs

CREATED = 0


class Form(Protocol):
    """How one endpoint writes an answer. Every method returns JSON and changes nothing."""

    def whole(self, answer: Answer, fingerprint: str) -> dict[str, Any]:
        """The response when it is not streamed."""

    def envelope(self, answer: Answer, fingerprint: str) -> dict[str, Any]:
        """What all chunks of a stream have in common."""

    def opening(self, choice: Choice) -> dict[str, Any] | None:
        """The `choices` entry before the first token; None where there is no such chunk."""

    def part(self, choice: Choice, start: int, end: int, top: int | None) -> dict[str, Any]:
        """The `choices` entry that brings the tokens start … end - 1, from 0."""

    def closing(self, choice: Choice) -> dict[str, Any]:
        """The last `choices` entry, which says why the answer ends."""


def usage(answer: Answer) -> dict[str, int]:
    prompt, completion = answer.prompt_tokens, answer.completion_tokens
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


class ChatForm:
    """POST /v1/chat/completions."""

    def whole(self, answer: Answer, fingerprint: str) -> dict[str, Any]:
        choices = [self._choice(choice, answer.top) for choice in answer.choices]
        return {
            **_head(answer, "chatcmpl", "chat.completion", fingerprint),
            "choices": choices,
            "usage": usage(answer),
        }

    def envelope(self, answer: Answer, fingerprint: str) -> dict[str, Any]:
        return _head(answer, "chatcmpl", "chat.completion.chunk", fingerprint)

    def opening(self, choice: Choice) -> dict[str, Any]:
        if choice.tool is None:
            return _delta(choice, {"role": "assistant", "content": ""})
        call = {"index": 0, **_call(choice, "")}
        return _delta(choice, {"role": "assistant", "content": None, "tool_calls": [call]})

    def part(self, choice: Choice, start: int, end: int, top: int | None) -> dict[str, Any]:
        piece = "".join(choice.pieces[start:end])
        if choice.tool is not None:
            return _delta(choice, {"tool_calls": [{"index": 0, "function": {"arguments": piece}}]})
        logprobs = None if top is None else chat_logprobs(choice, start, end, top)
        return _delta(choice, {"content": piece}) | {"logprobs": logprobs}

    def closing(self, choice: Choice) -> dict[str, Any]:
        return _delta(choice, {}) | {"finish_reason": choice.finish_reason}

    def _choice(self, choice: Choice, top: int | None) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": choice.text, "refusal": None}
        logprobs = None
        if choice.tool is not None:
            message |= {"content": None, "tool_calls": [_call(choice, choice.text)]}
        elif top is not None:
            logprobs = chat_logprobs(choice, 0, len(choice.pieces), top)
        return {
            "index": choice.index,
            "message": message,
            "logprobs": logprobs,
            "finish_reason": choice.finish_reason,
        }


class CompletionForm:
    """POST /v1/completions."""

    def whole(self, answer: Answer, fingerprint: str) -> dict[str, Any]:
        choices = [
            self._entry(choice, choice.text, self._logprobs(choice, 0, len(choice.pieces), answer.top))
            | {"finish_reason": choice.finish_reason}
            for choice in answer.choices
        ]
        return {**self.envelope(answer, fingerprint), "choices": choices, "usage": usage(answer)}

    def envelope(self, answer: Answer, fingerprint: str) -> dict[str, Any]:
        return _head(answer, "cmpl", "text_completion", fingerprint)

    def opening(self, choice: Choice) -> None:
        return None

    def part(self, choice: Choice, start: int, end: int, top: int | None) -> dict[str, Any]:
        return self._entry(choice, "".join(choice.pieces[start:end]), self._logprobs(choice, start, end, top))

    def closing(self, choice: Choice) -> dict[str, Any]:
        return self._entry(choice, "", None) | {"finish_reason": choice.finish_reason}

    def _logprobs(self, choice: Choice, start: int, end: int, top: int | None) -> dict[str, Any] | None:
        return None if top is None else completion_logprobs(choice, start, end, top)

    def _entry(self, choice: Choice, text: str, logprobs: dict[str, Any] | None) -> dict[str, Any]:
        return {"index": choice.index, "text": text, "logprobs": logprobs, "finish_reason": None}


def _head(answer: Answer, prefix: str, object_name: str, fingerprint: str) -> dict[str, Any]:
    return {
        "id": f"{prefix}-{answer.digest[:12].hex()}",
        "object": object_name,
        "created": CREATED,
        "model": answer.model,
        "system_fingerprint": fingerprint,
    }


def _delta(choice: Choice, delta: dict[str, Any]) -> dict[str, Any]:
    return {"index": choice.index, "delta": delta, "logprobs": None, "finish_reason": None}


def _call(choice: Choice, arguments: str) -> dict[str, Any]:
    return {
        "id": f"call_{derived(choice.digest, 'call')[:12].hex()}",
        "type": "function",
        "function": {"name": choice.tool, "arguments": arguments},
    }
