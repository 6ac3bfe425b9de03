"""Questions in several wordings, half of them written differently in one way: the workload of keys and meanings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any

import fow_cache
import numpy as np

from benchmarks.key_spellings import in_another_order, in_other_characters
from benchmarks.technique_backend import idle_seconds
from benchmarks.technique_time import BEGINS_SECONDS
from benchmarks.technique_traffic import SLOTS, Ask, Body, Traffic, Truth, body_of, sent, zipf

PER_SECOND, PROMPT_TOKENS = 4.0, 300
PICTURED_SHARE = 0.1  # of the pairs
CHANGED_SHARE = 0.5
Chance = np.random.Generator
Change = Callable[[Body, Chance, float], Body]


@cache
def pairs() -> list[dict[str, Any]]:
    return list(fow_cache.load_questions())


@cache
def meanings() -> dict[str, int]:
    """By question. Two have one meaning where a pair, or a chain of pairs, says that one answer is right for both."""
    above: dict[str, str] = {}

    def root(text: str) -> str:
        while above.setdefault(text, text) != text:
            text = above[text]
        return text

    for pair in pairs():
        one, other = root(pair["a"]), root(pair["b"])
        if pair["same_answer"]:
            above[one] = other
    numbers: dict[str, int] = {}
    return {text: numbers.setdefault(root(text), len(numbers)) for text in above}


def wordings(requests: int, seed: int) -> Traffic:
    rng, meaning_of = np.random.default_rng(seed), meanings()
    output = rng.integers(60, 260, len(set(meaning_of.values())))
    pictured = rng.random(len(pairs())) < PICTURED_SHARE
    due, work = np.cumsum(rng.exponential(1.0 / PER_SECOND, requests)), idle_seconds(PROMPT_TOKENS, output)
    asks = []
    for seconds, place in zip(due.tolist(), zipf(rng, len(pairs()), requests).tolist(), strict=True):
        text = pairs()[place]["ab"[int(rng.integers(2))]]
        meaning = meaning_of[text]
        question = [{"type": "text", "text": text}, _picture(place)] if pictured[place] else text
        body = body_of(question, meaning, PROMPT_TOKENS, int(output[meaning]))
        if rng.random() < CHANGED_SHARE:
            body = _changes(is_pictured=bool(pictured[place]))[int(rng.integers(7))](body, rng, seconds)
        asks.append(Ask(seconds, sent(body), meaning, float(work[meaning])))
    return Traffic(asks, Truth([[] for _ in output]), SLOTS)


def _picture(place: int) -> Body:
    return {"type": "image_url", "image_url": {"url": f"https://shop.example/pictures/{place}.png"}}


def _changes(*, is_pictured: bool) -> Sequence[Change]:
    """Seven, of equal chance. What only a picture or only a text has is in place of each other."""
    characters: Change = _other_address if is_pictured else _other_characters
    parameters: Change = _more_parameters if is_pictured else _other_characters
    return (_order, _line_ends, _time, _request_line, _tracking, characters, parameters)


def _order(body: Body, rng: Chance, _now: float) -> Body:
    return in_another_order(body, rng)


def _other_characters(body: Body, rng: Chance, _now: float) -> Body:
    return in_other_characters(body, rng)


def _line_ends(body: Body, _rng: Chance, _now: float) -> Body:
    first, *rest = body["messages"]
    return body | {"messages": [first | {"content": first["content"].replace("\n", "\r\n")}, *rest]}


def _time(body: Body, _rng: Chance, now: float) -> Body:
    said = datetime.fromtimestamp(BEGINS_SECONDS + now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return _with_line(body, f"Current time: {said}")


def _request_line(body: Body, rng: Chance, _now: float) -> Body:
    return _with_line(body, f"Request id: {int(rng.integers(2**31)):08x}")


def _tracking(body: Body, rng: Chance, _now: float) -> Body:
    return body | {"request_id": f"{int(rng.integers(2**31)):08x}"}


def _other_address(body: Body, _rng: Chance, _now: float) -> Body:
    return _with_address(body, lambda url: url.replace("https://shop.example/", "HTTPS://Shop.Example:443/"))


def _more_parameters(body: Body, rng: Chance, _now: float) -> Body:
    return _with_address(body, lambda url: f"{url}?utm_source=mail{int(rng.integers(1_000))}")


def _with_line(body: Body, line: str) -> Body:
    first, *rest = body["messages"]
    return body | {"messages": [first | {"content": f"{first['content']}\n{line}"}, *rest]}


def _with_address(body: Body, respelled: Callable[[str], str]) -> Body:
    first, last = body["messages"]
    text, picture = last["content"]
    url = {"url": respelled(picture["image_url"]["url"])}
    return body | {"messages": [first, last | {"content": [text, picture | {"image_url": url}]}]}
