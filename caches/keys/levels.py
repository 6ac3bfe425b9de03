"""The same request at rising levels of normalisation, each a function of the one below: requests that are equal at one
are equal at all above it. By how much fewer keys there are, level by level, one sees what keeps equal requests apart.

    raw        the bytes of the body
    order      parsed: the order of keys in objects, and white space between them, are gone
    encoding   Unicode in NFC, numbers by value, ends of lines, runs of spaces in prose, addresses in one spelling
    tracking   without times, ids and labels that say who carried a request and when (`caches.keys.structure.ALL`)
    other      without defaults stated, nulls, and what is left out by rule: the fingerprint under all rules
    wording    without the inflection of the question and its small words (`Lemmas.form`)

The key that a namespace has in use lies beside these, not among them: it is `other` without the rules that are off.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from hashlib import sha256
from typing import Any

import orjson

from caches.keys.canonical import canonical, encode, nfc
from caches.keys.fields import Endpoint
from caches.keys.fingerprint import request_key
from caches.keys.request_key import Partition
from caches.keys.rules import KeyRules
from caches.keys.structure import ALL, TRACKING_FIELDS, Structure

ENCODING = Structure(line_ends=True, spaces=True, addresses=True)
RULES = KeyRules(trim_text=True, structure=ALL)


class Level(StrEnum):
    """From the lowest."""

    RAW = "raw"
    ORDER = "order"
    ENCODING = "encoding"
    TRACKING = "tracking"
    OTHER = "other"
    WORDING = "wording"


LEVELS = tuple(Level)
FormOf = Callable[[str], str | None]


def level_ids(endpoint: Endpoint, raw: bytes, partition: Partition, form_of: FormOf | None = None) -> tuple[bytes, ...]:
    """The names of a request at each of LEVELS, as `RequestKey.id` is one: they begin with the partition.

    raw: the body as it came. form_of: of a question; None leaves `wording` as `other`, and so does a request without a
    question. Raises InputError where the body is no request.
    """
    body = orjson.loads(raw)
    encoded = {nfc(name): ENCODING.apply(name, canonical(value, name)) for name, value in body.items()}
    untracked = {
        name: ALL.apply(name, value) for name, value in _copied(encoded).items() if name not in TRACKING_FIELDS
    }
    key = request_key(endpoint, untracked, partition, RULES)
    form = None if form_of is None or key.question is None else form_of(key.question)
    digests = (
        sha256(raw).digest(),
        sha256(orjson.dumps(body, option=orjson.OPT_SORT_KEYS)).digest(),
        sha256(encode(encoded)).digest(),
        sha256(encode(untracked)).digest(),
        key.fingerprint,
        key.fingerprint if form is None else sha256(key.context + form.encode()).digest(),
    )
    return tuple(partition.prefix + digest for digest in digests)


def _copied(body: dict[str, Any]) -> dict[str, Any]:
    """Anew, since rules change messages in place."""
    copied: dict[str, Any] = orjson.loads(encode(body))
    return copied
