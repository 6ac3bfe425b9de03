"""A small value that fits a JSON schema: required fields only, free texts from a digest.

Understands type, enum, const, properties, required, items, prefixItems, anyOf, oneOf, allOf, $ref within the schema,
lengths, bounds, multipleOf and the usual formats. A `pattern` is met only where an example or a default of the schema
meets it. What it cannot fit raises Unfit; it never makes a value of which it knows that it is wrong.
"""

from __future__ import annotations

import math
import re
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from api.emulator.digests import Digest, below, derived

Schema = Mapping[str, Any]
MOST_VALUES = 10_000
MOST_CHARACTERS = 100_000  # of one text


class Unfit(Exception):
    """No value found for this schema."""


def instance(schema: Schema | bool, digest: Digest) -> Any:
    """Equal for equal arguments. Raises Unfit, also for what is not a schema at all."""
    maker = _Maker(schema if isinstance(schema, Mapping) else {}, digest)
    try:
        return maker.make(schema, (), frozenset())
    except RecursionError as error:
        raise Unfit("the schema is too deep") from error
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise Unfit(f"it is not a JSON schema: {error}") from error


class _Maker:
    """One pass over a schema. place: where in the value we are; inside: the references that we are within.

    A smallest value never needs a reference within itself, so such a way is given up and another one tried.
    """

    def __init__(self, root: Schema, digest: Digest) -> None:
        self.root, self.digest, self.made = root, digest, 0

    def make(self, schema: Schema | bool, place: tuple[str | int, ...], inside: frozenset[str]) -> Any:
        self.made += 1
        if schema is False or self.made > MOST_VALUES:
            raise Unfit("nothing fits the schema" if schema is False else "the schema is too large")
        if schema is True:
            schema = {}
        if "$ref" in schema:
            return self._referred(schema, place, inside)
        if "const" in schema:
            return schema["const"]
        if schema.get("enum"):
            return schema["enum"][below(self.digest, len(schema["enum"]), *place)]
        if "allOf" in schema:
            return self.make(self._merged(schema), place, inside)
        for key in ("anyOf", "oneOf"):
            if schema.get(key):
                return self._first(schema, key, place, inside)
        return self._typed(schema, place, inside)

    def _referred(self, schema: Schema, place: tuple[str | int, ...], inside: frozenset[str]) -> Any:
        name = schema["$ref"]
        if name in inside:
            raise Unfit(f"{name} needs itself")
        rest = {key: value for key, value in schema.items() if key != "$ref"}
        return self.make({**self._target(name), **rest}, place, inside | {name})

    def _target(self, name: str) -> Schema:
        if not name.startswith("#"):
            raise Unfit(f"{name} lies outside of the schema")
        found: Any = self.root
        for part in name.removeprefix("#").strip("/").split("/"):
            if part:
                part = part.replace("~1", "/").replace("~0", "~")
                if not isinstance(found, Mapping) or part not in found:
                    raise Unfit(f"{name} is not in the schema")
                found = found[part]
        if not isinstance(found, Mapping):
            raise Unfit(f"{name} is not a schema")
        return found

    def _merged(self, schema: Schema) -> Schema:
        """All of the parts as one schema, which is exact for what they usually hold: fields of one object."""
        parts = [self._target(part["$ref"]) if "$ref" in part else part for part in schema["allOf"]]
        parts.append({key: value for key, value in schema.items() if key != "allOf"})
        whole = {key: value for part in parts for key, value in part.items()}
        for key, join in (("properties", _fields), ("required", _names)):
            if any(key in part for part in parts):
                whole[key] = join([part[key] for part in parts if key in part])
        return whole

    def _first(self, schema: Schema, key: str, place: tuple[str | int, ...], inside: frozenset[str]) -> Any:
        """Options that are spelled out before those that refer elsewhere, null last of its kind."""
        rest = {name: value for name, value in schema.items() if name != key}
        reason = Unfit("no option fits")
        for option in sorted(schema[key], key=_weight):
            try:
                return self.make({"allOf": [option, rest]} if rest.keys() - _NOTES else option, place, inside)
            except Unfit as error:
                reason = error
        raise reason

    def _typed(self, schema: Schema, place: tuple[str | int, ...], inside: frozenset[str]) -> Any:
        kind = _kind(schema)
        if kind == "object":
            fields = schema.get("properties", {})
            return {
                name: self.make(fields.get(name, {}), (*place, name), inside) for name in schema.get("required", ())
            }
        if kind == "array":
            first = schema.get("prefixItems", [])
            return [
                self.make(first[i] if i < len(first) else schema.get("items", True), (*place, i), inside)
                for i in range(schema.get("minItems", 0))
            ]
        if kind not in _SCALARS:
            raise Unfit(f"{kind!r} is not a type of JSON")
        return _SCALARS[kind](schema, derived(self.digest, *place))


_NOTES = {"title", "description", "default", "examples", "$defs", "definitions", "discriminator", "$schema"}


def _weight(option: Any) -> tuple[bool, bool]:
    return isinstance(option, Mapping) and "$ref" in option, isinstance(option, Mapping) and option.get(
        "type"
    ) == "null"


def _fields(several: list[Schema]) -> Schema:
    return {name: field for fields in several for name, field in fields.items()}


def _names(several: list[list[str]]) -> list[str]:
    return list(dict.fromkeys(name for names in several for name in names))


def _kind(schema: Schema) -> Any:
    """Its type, or what its other words let guess. Of several types the first that is not null."""
    kind = schema.get("type")
    if isinstance(kind, list):
        return next((one for one in kind if one != "null"), "null")
    if kind is None:
        return (
            "object" if "properties" in schema or "required" in schema else "array" if "items" in schema else "string"
        )
    return kind


def _text(schema: Schema, digest: Digest) -> str:
    for known in (*schema.get("examples", ()), schema.get("default")):
        if isinstance(known, str) and _meets(known, schema):
            return known
    made = _FORMATS.get(schema.get("format", ""))
    text = f"{digest[:4].hex()} emulated" if made is None else made(digest)
    if made is None:
        least, most = schema.get("minLength", 0), schema.get("maxLength", len(text))
        if least > MOST_CHARACTERS:
            raise Unfit(f"a text of {least} characters is too long")
        text = (text * (least // len(text) + 1))[: max(least, min(most, len(text)))]
    if not _meets(text, schema):
        raise Unfit(f"no text was found for {dict(schema)}")
    return text


def _meets(text: str, schema: Schema) -> bool:
    if not schema.get("minLength", 0) <= len(text) <= schema.get("maxLength", math.inf):
        return False
    try:
        return "pattern" not in schema or re.search(schema["pattern"], text) is not None
    except re.error as error:
        raise Unfit(f"pattern {schema['pattern']!r}: {error}") from error


_FORMATS: dict[str, Callable[[Digest], str]] = {
    "date-time": lambda digest: f"{_date(digest)}T12:00:00Z",
    "date": lambda digest: _date(digest),
    "time": lambda _digest: "12:00:00Z",
    "duration": lambda digest: f"PT{below(digest, 100)}S",
    "email": lambda digest: f"{digest[:4].hex()}@emulated.example",
    "hostname": lambda digest: f"h{digest[:4].hex()}.emulated.example",
    "uri": lambda digest: f"https://emulated.example/{digest[:4].hex()}",
    "uuid": lambda digest: str(uuid.UUID(bytes=digest[:16], version=4)),
    "ipv4": lambda digest: f"192.0.2.{digest[0]}",
    "ipv6": lambda digest: f"2001:db8::{digest[0]:x}",
}


def _date(digest: Digest) -> str:
    return f"20{digest[0] % 100:02d}-{digest[1] % 12 + 1:02d}-{digest[2] % 28 + 1:02d}"


def _number(schema: Schema, digest: Digest, step: float) -> float:
    """One of the least hundred multiples of `step` within the bounds, from zero on where there is no lower bound."""
    lower = [math.ceil(schema["minimum"] / step)] if "minimum" in schema else []
    lower += [math.floor(schema["exclusiveMinimum"] / step) + 1] if "exclusiveMinimum" in schema else []
    upper = [math.floor(schema["maximum"] / step)] if "maximum" in schema else []
    upper += [math.ceil(schema["exclusiveMaximum"] / step) - 1] if "exclusiveMaximum" in schema else []
    least = max(lower, default=0 if min(upper, default=0) >= 0 else min(upper) - 99)
    most = min([*upper, least + 99])
    if most < least:
        raise Unfit(f"no number was found for {dict(schema)}")
    return step * (least + below(digest, most - least + 1))


def _integer(schema: Schema, digest: Digest) -> int:
    step = schema.get("multipleOf", 1)
    if step != int(step):
        raise Unfit(f"multipleOf {step} for an integer")
    return int(_number(schema, digest, int(step)))


def _real(schema: Schema, digest: Digest) -> float:
    """A whole number, or one of the quarters of a range that is too narrow for that."""
    if "multipleOf" in schema:
        return _number(schema, digest, schema["multipleOf"])
    try:
        return _number(schema, digest, 1)
    except Unfit:
        low = max(schema.get("minimum", -math.inf), schema.get("exclusiveMinimum", -math.inf))
        high = min(schema.get("maximum", math.inf), schema.get("exclusiveMaximum", math.inf))
        if low == high:
            return float(low)
        return _number(schema, digest, (high - low) / 4)


_SCALARS: dict[Any, Callable[[Schema, Digest], Any]] = {
    "string": _text,
    "integer": _integer,
    "number": _real,
    "boolean": lambda _schema, digest: bool(digest[0] % 2),
    "null": lambda _schema, _digest: None,
}
