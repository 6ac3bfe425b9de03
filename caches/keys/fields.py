"""What the fields of an OpenAI-style request mean for its key. docs/keys.md explains each table.

Source: the OpenAI API reference, pages "Create chat completion", "Create completion" and "Create embeddings". A field
that is in none of these tables is part of the fingerprint as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from caches.keys.canonical import Json


class Endpoint(StrEnum):
    """The endpoints whose answers can be kept, by path."""

    CHAT = "/v1/chat/completions"
    COMPLETIONS = "/v1/completions"
    EMBEDDINGS = "/v1/embeddings"


# Fields that say how an answer is delivered, billed, watched or kept elsewhere, and not what it is.
LEFT_OUT = frozenset(
    {
        "metadata",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "safety_identifier",
        "service_tier",
        "store",
        "stream",
        "stream_options",
        "user",
    }
)

# What a request asks: no rule may leave these out.
ALWAYS_COUNTED = frozenset({"model", "messages", "prompt", "input"})

# Fields that the reference lets be null; null means the same as leaving them out.
NULL_IS_ABSENT = frozenset(
    {
        "audio",
        "best_of",
        "echo",
        "frequency_penalty",
        "logit_bias",
        "logprobs",
        "max_completion_tokens",
        "max_tokens",
        "modalities",
        "moderation",
        "n",
        "prediction",
        "presence_penalty",
        "reasoning_effort",
        "seed",
        "stop",
        "suffix",
        "temperature",
        "top_logprobs",
        "top_p",
        "verbosity",
    }
)

# A text here means a list of this one text.
TEXT_IS_A_LIST_OF_ONE = frozenset({"stop", "prompt", "input"})

# Defaults that the reference documents and that vLLM and SGLang share: stating them is the same as leaving them out.
DEFAULTS: Mapping[Endpoint, Mapping[str, Json]] = {
    Endpoint.CHAT: {
        "frequency_penalty": 0,
        "logprobs": False,
        "modalities": ["text"],
        "n": 1,
        "parallel_tool_calls": True,
        "presence_penalty": 0,
        "response_format": {"type": "text"},
    },
    Endpoint.COMPLETIONS: {"best_of": 1, "echo": False, "frequency_penalty": 0, "n": 1, "presence_penalty": 0},
    Endpoint.EMBEDDINGS: {"encoding_format": "float"},
}

# Defaults that the reference documents too, but that other servers take from the model's own files.
OPENAI_DEFAULTS: Mapping[Endpoint, Mapping[str, Json]] = {
    Endpoint.CHAT: {"temperature": 1, "top_p": 1, "verbosity": "medium"},
    Endpoint.COMPLETIONS: {"max_tokens": 16, "temperature": 1, "top_p": 1},
    Endpoint.EMBEDDINGS: {},
}

_ALL_DEFAULTS = {endpoint: {**DEFAULTS[endpoint], **OPENAI_DEFAULTS[endpoint]} for endpoint in Endpoint}

# A choice, and the list that it chooses from: its default is "auto" where there is something in the list, else "none".
CHOICES = (("tool_choice", "tools"), ("function_call", "functions"))


def defaults_of(endpoint: Endpoint, openai: bool) -> Mapping[str, Json]:
    """The defaults that count as absent; openai: also those that other servers take from elsewhere."""
    return _ALL_DEFAULTS[endpoint] if openai else DEFAULTS[endpoint]
