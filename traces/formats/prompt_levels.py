"""Prompts of a request log at the levels of normalisation that `caches.keys.levels` tells apart."""

from __future__ import annotations

from collections.abc import Callable

import orjson

from caches.keys.fields import Endpoint
from caches.keys.levels import LEVELS, Level, level_ids
from caches.keys.partitions import partition_of
from caches.semantic.lemmas import ENGLISH, Lemmas

PARTITION = partition_of()


def prompt_levels(level: Level) -> Callable[[str, object], bytes]:
    """From a model and a prompt to the key at one level; words are taken for English.

    A list of messages is a chat as it stands. Any other prompt is read as the text of one user message: what a log says
    of it is not enough to tell more.
    """
    place, form_of = LEVELS.index(level), Lemmas(ENGLISH).form_of if level is Level.WORDING else None

    def key_of(model: str, prompt: object) -> bytes:
        content = prompt if isinstance(prompt, str) else orjson.dumps(prompt).decode()
        messages = prompt if _is_chat(prompt) else [{"role": "user", "content": content}]
        raw = orjson.dumps({"model": model or "default", "messages": messages})
        return level_ids(Endpoint.CHAT, raw, PARTITION, form_of)[place]

    return key_of


def _is_chat(prompt: object) -> bool:
    return isinstance(prompt, list) and bool(prompt) and all(map(_is_message, prompt))


def _is_message(one: object) -> bool:
    if not isinstance(one, dict):
        return False
    return isinstance(one.get("role"), str) and isinstance(one.get("content"), str | list | None)
