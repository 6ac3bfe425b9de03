"""Values made for a schema, against an independent validator."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from api.emulator.digests import Digest
from api.emulator.instances import Unfit, instance

HERE, THERE = Digest(bytes(range(32))), Digest(bytes(range(32, 64)))
NODE = {
    "$ref": "#/$defs/Node",
    "$defs": {
        "Node": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "next": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]}},
            "required": ["name", "next"],
            "additionalProperties": False,
        }
    },
}
SUM = {
    "anyOf": [{"$ref": "#/$defs/Sum"}, {"$ref": "#/$defs/Number"}],
    "$defs": {
        "Sum": {
            "type": "object",
            "properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}},
            "required": ["left", "right"],
        },
        "Number": {"type": "object", "properties": {"value": {"type": "number"}}, "required": ["value"]},
    },
}
SCHEMAS: list[Any] = [
    {},
    True,
    {"type": "string", "minLength": 40},
    {"type": "string", "maxLength": 3},
    {"type": "string", "minLength": 2, "maxLength": 2},
    {"type": "string", "pattern": "^[A-Z]{3}$", "examples": ["low", "ABC"]},
    {"type": "integer", "minimum": 5, "maximum": 5},
    {"type": "integer", "exclusiveMinimum": 5, "exclusiveMaximum": 7},
    {"type": "integer", "maximum": -3},
    {"type": "integer", "multipleOf": 7, "minimum": 1},
    {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
    {"type": "number", "minimum": 0.25, "maximum": 0.25},
    {"type": "number", "multipleOf": 0.5},
    {"type": "boolean"},
    {"type": "null"},
    {"type": ["null", "string"]},
    {"enum": ["a", 2, None]},
    {"const": {"deep": [1]}},
    {"type": "array", "items": {"type": "integer"}, "minItems": 3},
    {"type": "array", "items": {"type": "string"}, "minItems": 4, "uniqueItems": True},
    {"prefixItems": [{"type": "integer"}, {"type": "string"}], "type": "array", "minItems": 3},
    {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}, "required": ["b"]},
    {"type": "object", "required": ["not described"]},
    {"anyOf": [{"type": "string", "maxLength": 2}, {"type": "integer"}]},
    {"oneOf": [False, {"type": "integer"}]},
    {"type": "object", "properties": {"a": {"type": "string"}}, "anyOf": [{"required": ["a"]}], "required": []},
    {"allOf": [{"required": ["a"]}, {"properties": {"a": {"type": "integer"}}, "type": "object"}]},
    {"allOf": [{"$ref": "#/$defs/A"}], "description": "x", "$defs": {"A": {"type": "integer", "minimum": 9}}},
    NODE,
    SUM,
    *({"type": "string", "format": name} for name in ("date-time", "date", "time", "email", "uuid", "uri", "ipv4")),
]


@pytest.mark.parametrize("schema", SCHEMAS, ids=str)
@pytest.mark.parametrize("digest", [HERE, THERE])
def test_fits(schema: Any, digest: Digest) -> None:
    checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
    jsonschema.Draft202012Validator(schema, format_checker=checker).validate(instance(schema, digest))


def test_only_required_fields() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"const": 1}}, "required": ["b"]}
    assert instance(schema, HERE) == {"b": 1}


def test_follows_from_schema_and_digest() -> None:
    schema = {"type": "array", "items": {"type": "string"}, "minItems": 2}
    assert instance(schema, HERE) == instance(schema, HERE)
    assert instance(schema, HERE) != instance(schema, THERE)


def test_recursion_ends_at_the_first_way_out() -> None:
    assert instance(NODE, HERE)["next"] is None
    assert instance(SUM, HERE).keys() <= {"left", "right", "value"}


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (False, "nothing fits"),
        ({"type": "odd"}, "not a type"),
        ({"$ref": "#/$defs/None"}, "is not in the schema"),
        ({"$ref": "https://example.com/x.json"}, "outside"),
        ({"$ref": "#"}, "needs itself"),
        ({"type": "string", "pattern": "^[A-Z]$"}, "no text"),
        ({"type": "string", "pattern": "("}, "pattern"),
        ({"type": "integer", "minimum": 2, "maximum": 1}, "no number"),
        ({"type": "array", "minItems": 20_000}, "too large"),
        ({"type": "string", "minLength": 10**12}, "too long"),
        ({"type": "integer", "multipleOf": 0.5}, "multipleOf"),
        ({"type": "integer", "multipleOf": 0, "minimum": 1}, "not a JSON schema"),
        ({"type": "object", "required": 5}, "not a JSON schema"),
        ({"type": "string", "minLength": "5"}, "not a JSON schema"),
        ({"allOf": [{"$ref": "#"}]}, "too deep"),
    ],
)
def test_what_cannot_be_fitted_is_said(schema: Any, reason: str) -> None:
    with pytest.raises(Unfit, match=reason):
        instance(schema, HERE)
