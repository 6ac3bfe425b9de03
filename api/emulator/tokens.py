"""How the emulator counts tokens: four characters are a token, and what is left over is one more.

The rule is the same for prompts, answers, streams and logprobs. It needs no vocabulary, comes close to what common
tokenizers make of English, and takes apart and joins without loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from api.emulator.bodies import ChatBody, Message

CHARACTERS = 4
MESSAGE_TOKENS = 4  # role and markers around a message
ATTACHMENT_TOKENS = 256  # an image, a sound or a file: its bytes say little about its tokens


def count(text: str) -> int:
    return -(-len(text) // CHARACTERS)


def pieces(text: str) -> list[str]:
    """The tokens of a text; joined, they are the text."""
    return [text[start : start + CHARACTERS] for start in range(0, len(text), CHARACTERS)]


def chat_prompt_tokens(body: ChatBody) -> int:
    """Messages, and the tools and schema that an engine writes into the prompt."""
    total = sum(map(_message_tokens, body.messages))
    for tool in body.tools or ():
        total += _json_tokens(tool.function.model_dump(mode="json"))
    if body.schema_wanted is not None:
        total += _json_tokens(body.schema_wanted)
    return total


def prompt_tokens(prompt: str | Sequence[int]) -> int:
    """A text, or tokens that the client has made: those count as they are."""
    return count(prompt) if isinstance(prompt, str) else len(prompt)


def _message_tokens(message: Message) -> int:
    total = MESSAGE_TOKENS
    if isinstance(message.content, str):
        total += count(message.content)
    else:
        for part in message.content or ():
            text = part.get("text", part.get("refusal"))
            total += count(text) if isinstance(text, str) else ATTACHMENT_TOKENS
    return total + sum(_json_tokens(call) for call in message.tool_calls or ())


def _json_tokens(value: Any) -> int:
    return count(orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode())
