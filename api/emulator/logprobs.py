"""Logprobs of an emulated answer: numbers of the right form that follow from the request, without any meaning."""

from __future__ import annotations

from typing import Any

from api.emulator.answers import WORDS, Choice
from api.emulator.digests import derived, random_bytes
from api.emulator.tokens import CHARACTERS

STEP = 0.5  # from one alternative to the next


def chat_logprobs(choice: Choice, start: int, end: int, top: int) -> dict[str, Any]:
    """Of the tokens start … end - 1, with `top` alternatives each, the token itself first."""
    content = []
    for position in range(start, end):
        ranked = [
            {"token": token, "logprob": value, "bytes": list(token.encode())}
            for token, value in _ranked(choice, position, max(top, 1))
        ]
        content.append({**ranked[0], "top_logprobs": ranked[:top]})
    return {"content": content, "refusal": None}


def completion_logprobs(choice: Choice, start: int, end: int, top: int) -> dict[str, Any]:
    """As chat_logprobs, in the form of /v1/completions: columns."""
    ranked = [_ranked(choice, position, max(top, 1)) for position in range(start, end)]
    return {
        "tokens": [row[0][0] for row in ranked],
        "token_logprobs": [row[0][1] for row in ranked],
        "top_logprobs": [dict(row[:top]) for row in ranked],
        "text_offset": [position * CHARACTERS for position in range(start, end)],
    }


def _ranked(choice: Choice, position: int, wanted: int) -> list[tuple[str, float]]:
    """The token that was generated, and others that were not, each less likely than the one before."""
    token = choice.pieces[position]
    bits = random_bytes(derived(choice.digest, "logprob", position), 2)
    others = (f" {word}" for word in WORDS[bits[1] % len(WORDS) :] + WORDS if f" {word}" != token)
    names = [token, *dict(zip(others, range(wanted - 1), strict=False))]
    return [(name, -bits[0] / 256 - STEP * rank) for rank, name in enumerate(names)]
