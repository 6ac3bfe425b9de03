"""An entry as a line of JSON: for a tier on disk, and for the hot set that moves from one gateway to another."""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Mapping
from typing import Any

import orjson

from caches.errors import InputError
from caches.keys.request_key import FINGERPRINT_BYTES, Partition, RequestKey
from caches.tiers.tier import Answer

SHOWN = 60  # characters of a wrong value


def line_of(key: RequestKey, answer: Answer, more: Mapping[str, object] | None = None) -> bytes:
    """With its line end. more: fields beside those of an entry."""
    fields = {
        **(more or {}),
        "tenant": key.partition.tenant,
        "namespace": key.partition.namespace,
        "fingerprint": key.fingerprint.hex(),
        "context": key.context.hex(),
        "question": key.question,
        "model": key.model,
        "tags": sorted(key.tags),
        "body": base64.b64encode(answer.body).decode(),
        "written_seconds": answer.written_seconds,
        "ttl_seconds": answer.ttl_seconds,
        "prompt_tokens": answer.prompt_tokens,
        "output_tokens": answer.output_tokens,
        "compute_seconds": answer.compute_seconds,
    }
    return orjson.dumps(fields, option=orjson.OPT_APPEND_NEWLINE)


def fields_of(line: bytes) -> dict[str, Any]:
    """Raises InputError where it is no JSON object."""
    try:
        fields = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise InputError(f"line: got no valid JSON ({error}), expected an object") from error
    if not isinstance(fields, dict):
        raise _wrong("line", fields, "a JSON object")
    return fields


def entry_of(fields: Mapping[str, Any]) -> tuple[RequestKey, Answer]:
    """What `line_of` wrote; other fields count for nothing. Raises InputError naming the field that is wrong."""
    question, tags, own = fields.get("question"), fields.get("tags"), fields.get("ttl_seconds")
    if not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
        raise _wrong("tags", tags, "a list of texts")
    key = RequestKey(
        Partition(_text(fields, "tenant"), _text(fields, "namespace")),
        _digest(fields, "fingerprint"),
        _digest(fields, "context"),
        None if question is None else _text(fields, "question"),
        _text(fields, "model"),
        frozenset(tags),
    )
    answer = Answer(
        _body(fields),
        number(fields, "written_seconds"),
        None if own is None else number(fields, "ttl_seconds"),
        _count(fields, "prompt_tokens"),
        _count(fields, "output_tokens"),
        number(fields, "compute_seconds"),
    )
    return key, answer


def number(fields: Mapping[str, Any], name: str) -> float:
    """0 or more, and finite. Raises InputError."""
    value = fields.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not (math.isfinite(value) and value >= 0):
        raise _wrong(name, value, "a number, 0 or more")
    return float(value)


def _count(fields: Mapping[str, Any], name: str) -> int:
    value = fields.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise _wrong(name, value, "a whole number, 0 or more")
    return value


def _text(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str):
        raise _wrong(name, value, "text")
    return value


def _digest(fields: Mapping[str, Any], name: str) -> bytes:
    text, expected = _text(fields, name), f"{2 * FINGERPRINT_BYTES} hexadecimal digits"
    try:
        value = bytes.fromhex(text)
    except ValueError as error:
        raise _wrong(name, text, expected) from error
    if len(value) != FINGERPRINT_BYTES:
        raise _wrong(name, text, expected)
    return value


def _body(fields: Mapping[str, Any]) -> bytes:
    """Its text is not shown: it is somebody's answer."""
    try:
        return base64.b64decode(_text(fields, "body"), validate=True)
    except (binascii.Error, ValueError) as error:
        raise InputError(f"body: got what is no base64 ({error}), expected the bytes of an answer") from error


def _wrong(name: str, value: object, expected: str) -> InputError:
    text = repr(value)
    shown = text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
    return InputError(f"{name}: got {shown}, expected {expected}")
