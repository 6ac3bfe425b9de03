"""What the emulator answers: text, JSON or a tool call that follows from a hash of the request alone.

A text begins with 16 digits of the hash, so that answers to different requests differ from their first token on, and
goes on to say that no model ran.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import orjson

from api.emulator.bodies import ChatBody, CompletionBody, NamedTool, Tool
from api.emulator.digests import Digest, below, derived, random_bytes
from api.emulator.instances import Unfit, instance
from api.emulator.tokens import CHARACTERS, chat_prompt_tokens, count, pieces, prompt_tokens
from api.http.errors import BadRequest

# Tokens of a text that nothing limits, uniform over requests.
SHORTEST, LONGEST = 32, 288

NOTICE = "(emulated by setpoint, no model ran)"
# 64 words, so that a byte of a hash picks one without bias.
_WORDS = (
    "above across after again along among apart around away before behind below beside between beyond "
    "bridge bright calm clear cloud corner day deep early east evening far field first forest garden "
    "gentle green harbour high hill house island lake late light long meadow moon morning mountain near "
    "night north open path quiet rain river road sea slow small snow south spring star stone water"
)
WORDS = _WORDS.split()


@dataclass(frozen=True)
class Choice:
    """One answer of a request. text: what was generated, which for a call of `tool` are its arguments."""

    index: int
    prompt_tokens: int
    text: str
    finish_reason: str
    digest: Digest
    tool: str | None = None

    @cached_property
    def pieces(self) -> list[str]:
        return pieces(self.text)


@dataclass(frozen=True)
class Answer:
    """All answers of a request. top: alternatives in its logprobs; None where it wants none."""

    digest: Digest
    model: str
    choices: tuple[Choice, ...]
    prompt_tokens: int
    top: int | None

    @property
    def completion_tokens(self) -> int:
        return sum(len(choice.pieces) for choice in self.choices)


@dataclass(frozen=True)
class _Length:
    """What a request says about the length of an answer, in tokens."""

    limit: int | None
    least: int
    exact: bool  # goes on up to the limit
    stops: Sequence[str]


def chat_answer(body: ChatBody, digest: Digest) -> Answer:
    """Raises BadRequest for a schema that cannot be fitted and for a tool that is not there."""
    tokens, length = chat_prompt_tokens(body), _length_of(body)
    tool = _tool_to_call(body)
    choices = []
    for index in range(body.n or 1):
        own = derived(digest, "choice", index)
        if tool is not None:
            text, reason = _cut(_json_text(tool.function.parameters or {}, own, "tools"), length, "tool_calls")
        elif body.response_format is not None and body.response_format.type != "text":
            text, reason = _cut(_json_answer(body, own), length, "stop")
        else:
            text, reason = _prose(own, length)
        choices.append(Choice(index, tokens, text, reason, own, tool.function.name if tool else None))
    return Answer(digest, body.model, tuple(choices), tokens, body.top)


def completion_answer(body: CompletionBody, digest: Digest) -> Answer:
    """`n` choices for every prompt, in the order of the prompts."""
    counts = [prompt_tokens(prompt) for prompt in body.prompts]
    choices: list[Choice] = []
    for tokens in counts:
        for _ in range(body.n or 1):
            own = derived(digest, "choice", len(choices))
            choices.append(Choice(len(choices), tokens, *_prose(own, _length_of(body)), own))
    return Answer(digest, body.model, tuple(choices), sum(counts), body.logprobs)


def _length_of(body: ChatBody | CompletionBody) -> _Length:
    return _Length(body.limit, body.min_tokens or 0, bool(body.ignore_eos), body.stops)


def _tool_to_call(body: ChatBody) -> Tool | None:
    """The named one, else the first. Left to choose, the emulator does not call again once it has been given a result:
    a program that calls tools until there is an answer must come to an end."""
    wanted = body.tool_choice or "auto"
    tools = {tool.function.name: tool for tool in reversed(body.tools or ())}
    if isinstance(wanted, NamedTool):
        if wanted.function.name not in tools:
            raise BadRequest(
                f"tool_choice names {wanted.function.name!r}, which is not among the tools.", "tool_choice"
            )
        return tools[wanted.function.name]
    if wanted == "required" and not tools:
        raise BadRequest("tool_choice is 'required' and there are no tools.", "tool_choice")
    if wanted == "none" or not body.tools or (wanted == "auto" and body.messages[-1].role == "tool"):
        return None
    return body.tools[0]


def _json_answer(body: ChatBody, digest: Digest) -> str:
    schema = body.schema_wanted
    if schema is None:
        return orjson.dumps({"answer": digest[:8].hex(), "emulated": NOTICE}).decode()
    return _json_text(schema, digest, "response_format")


def _json_text(schema: dict[str, Any], digest: Digest, param: str) -> str:
    try:
        return orjson.dumps(instance(schema, digest)).decode()
    except Unfit as error:
        raise BadRequest(f"The emulator finds no value for the schema: {error}.", param) from error


def _prose(digest: Digest, length: _Length) -> tuple[str, str]:
    """A text and why it ends."""
    drawn = max(SHORTEST + below(digest, LONGEST - SHORTEST + 1, "length"), length.least)
    if length.limit == length.least:  # it has to be that long, and ends there by itself
        drawn = length.least
    tokens = length.limit if length.exact and length.limit else drawn
    text = _words(digest, tokens * CHARACTERS)
    if length.exact:
        return _cut(text, length, "length")
    return _cut(text[:-1].rstrip() + ".", length, "stop")


def _words(digest: Digest, characters: int) -> str:
    """So many characters, beginning with the hash and NOTICE."""
    chosen = random_bytes(derived(digest, "words"), characters // 4 + 1)  # no word is shorter than 3, and a space
    words = " ".join([digest[:8].hex(), NOTICE, *(WORDS[byte % len(WORDS)] for byte in chosen)])
    return words[:characters]


def _cut(text: str, length: _Length, reason: str) -> tuple[str, str]:
    """At the limit, then before the first of the stops."""
    if length.limit is not None and count(text) > length.limit:
        text, reason = text[: length.limit * CHARACTERS], "length"
    found = [at for at in map(text.find, length.stops) if at >= 0]
    return (text[: min(found)], "stop") if found else (text, reason)
