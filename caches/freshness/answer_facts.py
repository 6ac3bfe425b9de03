"""What the log-probabilities in an answer's body say of it, where the request asked for them.

Of a chat each token stands in `choices[].logprobs.content[]` with its `logprob` and perhaps `top_logprobs`; of a
completion the same lies in columns, `token_logprobs` and `top_logprobs`. An answer without them has no facts; tokens
whose logprob is not a number are left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

REST = ""  # in a distribution: all tokens that were not told; no token is empty


class _Token(NamedTuple):
    """top: chances of the most likely tokens by text, this one among them; empty where none were told."""

    logprob: float
    top: Mapping[str, float]


@dataclass(frozen=True)
class AnswerFacts:
    """mean_logprob: of the tokens; None without logprobs. entropy_bits: mean over the positions, with all tokens that
    were not told as one, so a lower bound; None without top_logprobs. distribution: of tokens, the mean over the
    positions; empty without top_logprobs."""

    mean_logprob: float | None = None
    entropy_bits: float | None = None
    distribution: Mapping[str, float] = field(default_factory=dict)


NONE_KNOWN = AnswerFacts()


def facts_of(body: bytes) -> AnswerFacts:
    """Of a stored body; quick where it has no logprobs. What is no JSON object has no facts."""
    if b'"logprobs"' not in body and b'"token_logprobs"' not in body:
        return NONE_KNOWN
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError:
        return NONE_KNOWN
    tokens = list(_tokens(parsed))
    if not tokens:
        return NONE_KNOWN
    mean = sum(token.logprob for token in tokens) / len(tokens)
    tops = [top for token in tokens if (top := _whole(token.top))]
    if not tops:
        return AnswerFacts(mean)
    shared: dict[str, float] = {}
    for top in tops:
        for name, chance in top.items():
            shared[name] = shared.get(name, 0.0) + chance / len(tops)
    return AnswerFacts(mean, sum(map(_bits, tops)) / len(tops), shared)


def divergence_nats(new: Mapping[str, float], old: Mapping[str, float], smoothing: float = 0.01) -> float | None:
    """Kullback and Leibler's, of the new distribution from the old one, each mixed with a little of the even one over
    all tokens of both, so that it is finite. None where one of them is empty."""
    if not new or not old:
        return None
    names = new.keys() | old.keys()
    even = smoothing / len(names)
    pairs = [(_mixed(new, name, smoothing, even), _mixed(old, name, smoothing, even)) for name in names]
    return max(0.0, sum(one * math.log(one / other) for one, other in pairs))


def _mixed(chances: Mapping[str, float], name: str, smoothing: float, even: float) -> float:
    return (1.0 - smoothing) * chances.get(name, 0.0) + even


def _whole(top: Mapping[str, float]) -> dict[str, float]:
    """With the rest, so that it sums to 1; empty where nothing was told."""
    if not top:
        return {}
    told = sum(top.values())
    scale = min(1.0, 1.0 / told) if told > 0.0 else 0.0
    whole = {name: chance * scale for name, chance in top.items()}
    return whole | {REST: 1.0 - min(told, 1.0)}


def _bits(chances: Mapping[str, float]) -> float:
    return -sum(chance * math.log2(chance) for chance in chances.values() if chance > 0.0)


def _tokens(parsed: Any) -> Iterator[_Token]:
    choices = parsed.get("choices") if isinstance(parsed, dict) else None
    for choice in choices if isinstance(choices, list) else ():
        logprobs = choice.get("logprobs") if isinstance(choice, dict) else None
        if not isinstance(logprobs, dict):
            continue
        content = logprobs.get("content")
        if isinstance(content, list):
            yield from _of_chat(content)
        elif isinstance(logprobs.get("token_logprobs"), list):
            yield from _of_columns(logprobs)


def _of_chat(content: list[Any]) -> Iterator[_Token]:
    for one in content:
        if isinstance(one, dict) and _is_logprob(one.get("logprob")):
            listed = one.get("top_logprobs")
            rows = [row for row in listed if isinstance(row, dict)] if isinstance(listed, list) else []
            top = {row["token"]: row.get("logprob") for row in rows if isinstance(row.get("token"), str)}
            yield _Token(float(one["logprob"]), _chances(top))


def _of_columns(logprobs: dict[str, Any]) -> Iterator[_Token]:
    tops = logprobs.get("top_logprobs")
    rows = tops if isinstance(tops, list) else []
    for place, value in enumerate(logprobs["token_logprobs"]):
        if _is_logprob(value):
            top = rows[place] if place < len(rows) and isinstance(rows[place], dict) else {}
            yield _Token(float(value), _chances(top))


def _chances(logprobs: Mapping[str, Any]) -> dict[str, float]:
    return {name: math.exp(value) for name, value in logprobs.items() if _is_logprob(value)}


def _is_logprob(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and -1e6 < value <= 1e-3
