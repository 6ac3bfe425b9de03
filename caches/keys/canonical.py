"""JSON values in one form: equal bytes where they mean the same, and other bytes where they do not."""

from __future__ import annotations

import math
import unicodedata
from typing import TypeAlias

import orjson

from caches.errors import InputError

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

DEEPEST = 100  # levels of lists and objects in one field: far more than any schema has, far less than the stack
LOWEST_INTEGER, INTEGERS_END = -(2**63), 2**64  # what 64 bits hold, signed or not; JSON readers keep these exactly
LONGEST_SHOWN = 40  # characters of a text that a message repeats; longer ones are often prompts


def canonical(value: object, field: str, levels: int = DEEPEST) -> Json:
    """The same value with text in NFC and whole numbers as integers; the order of keys is left to `encode`.

    field: its name, for the message where it is refused. Numbers beyond 64 bits become doubles, as JSON readers
    make them. Nothing that was given is changed.
    """
    if isinstance(value, str):
        return nfc(value)
    if isinstance(value, dict):
        return _object(value, field, levels)
    if isinstance(value, list):
        if levels == 0:
            raise refused(field, value, f"at most {DEEPEST} levels of lists and objects")
        levels -= 1
        # prompts come as thousands of token numbers too: these are not worth a call each
        return [
            item if type(item) is int and 0 <= item < INTEGERS_END else canonical(item, field, levels) for item in value
        ]
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, (int, float)):
        return _number(value, field)
    raise refused(field, value, "a JSON value")


def nfc(text: str) -> str:
    """Composed Unicode: é is one character, however it was typed."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def encode(value: Json) -> bytes:
    """Canonical value to bytes. JSON says where each part ends, so no two values share an encoding."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError as error:  # a lone surrogate is the one thing that gets here and has no bytes
        raise InputError(f"body: got text that is not Unicode ({error}), expected text that UTF-8 can hold") from error


def same(one: Json, other: Json) -> bool:
    """Whether two canonical values are equal; unlike in Python, true is not 1."""
    return type(one) is type(other) and one == other


def refused(field: str, value: object, expected: str) -> InputError:
    """What to raise for a bad value. Long text is counted and not repeated, since it may be somebody's prompt."""
    return InputError(f"{field}: got {_shown(value)}, expected {expected}")


def _object(value: dict[object, object], field: str, levels: int) -> dict[str, Json]:
    if levels == 0:
        raise refused(field, value, f"at most {DEEPEST} levels of lists and objects")
    done: dict[str, Json] = {}
    for name, item in value.items():
        if not isinstance(name, str):
            raise refused(f"a key in {field}", name, "text")
        if isinstance(item, str) and item.isascii():  # most of what there is; a call is what costs time here
            done[nfc(name)] = item
        else:
            done[nfc(name)] = canonical(item, field, levels - 1)
    if len(done) != len(value):  # one would hide the other, and which of them would be a matter of order
        raise refused(field, value, "keys that differ by more than how their accents are encoded")
    return done


def _number(value: int | float, field: str) -> int | float:
    if isinstance(value, int):
        if LOWEST_INTEGER <= value < INTEGERS_END:
            return value
        try:
            return float(value)
        except OverflowError:
            raise refused(field, math.inf, "a number that a double can hold") from None
    if not math.isfinite(value):
        raise refused(field, value, "a finite number")
    return int(value) if value.is_integer() and LOWEST_INTEGER <= value < INTEGERS_END else value


def _shown(value: object) -> str:
    if isinstance(value, str):
        return repr(value) if len(value) <= LONGEST_SHOWN else f"text of {len(value)} characters"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if isinstance(value, dict):
        return f"an object of {len(value)} fields"
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value) if isinstance(value, int | float) else f"a Python {type(value).__name__}"
