"""What a client asks: body, key, and its wishes about the cache."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import Any

import orjson
from fastapi import Request

from api.gateway.errors import TooLarge
from api.http.errors import BadRequest
from caches.errors import InputError
from caches.keys.fields import Endpoint
from caches.keys.fingerprint import request_key
from caches.keys.partitions import EXPECTED, NAME
from caches.keys.request_key import Partition, RequestKey
from caches.keys.rules import KeyRules, why_not_cached

TTL_HEADER = "x-setpoint-ttl"
TAGS_HEADER = "x-setpoint-tags"
MOST_TAGS = 8
STALE_IF_ERROR = re.compile(r"stale-if-error\s*=\s*\"?(\d{1,12})\"?")
MAX_AGE = re.compile(r"max-age\s*=\s*\"?(\d{1,12})\"?")


@dataclass(frozen=True)
class Wishes:
    """no_store: past the cache both ways. max_age_seconds: of an answer to be served; 0 for none but a new one.
    ttl_seconds: of the answer that is stored, where the tier's is not shorter. tags: of that answer, for
    invalidation. stale_seconds: how long after its lifetime an answer may be served where the backend has none; None:
    as the operator says."""

    no_store: bool = False
    max_age_seconds: float | None = None
    ttl_seconds: float | None = None
    tags: frozenset[str] = frozenset()
    stale_seconds: float | None = None

    def within(self, ttl_seconds: float | None) -> Wishes:
        """With a lifetime that is no longer than this one."""
        if ttl_seconds is None or (self.ttl_seconds is not None and self.ttl_seconds <= ttl_seconds):
            return self
        return replace(self, ttl_seconds=ttl_seconds)


@dataclass(frozen=True)
class Asked:
    """A request that the cache may answer. raw: the body as it came."""

    endpoint: Endpoint
    raw: bytes
    body: dict[str, Any]
    key: RequestKey
    wishes: Wishes

    @property
    def streamed(self) -> bool:
        """Embeddings do not stream."""
        return self.endpoint is not Endpoint.EMBEDDINGS and self.body.get("stream") is True

    @property
    def with_usage(self) -> bool:
        return bool((self.body.get("stream_options") or {}).get("include_usage"))

    def upstream_body(self) -> bytes:
        """As it came; a stream always with usage, which is stored."""
        if not self.streamed or self.with_usage:
            return self.raw
        options = {**(self.body.get("stream_options") or {}), "include_usage": True}
        return orjson.dumps({**self.body, "stream_options": options})


def wishes_of(request: Request) -> Wishes:
    """Raises BadRequest. Of Cache-Control, what is not known counts for nothing; a max-age that is no number, for 0."""
    directives = [part.strip().lower() for part in request.headers.get("cache-control", "").split(",")]
    age: float | None = None
    stale: float | None = None
    for directive in directives:
        if directive.startswith("stale-if-error"):
            found = STALE_IF_ERROR.fullmatch(directive)
            stale = float(found[1]) if found else 0.0
        if directive.startswith("max-age"):
            found = MAX_AGE.fullmatch(directive)
            age = min(float(found[1]) if found else 0.0, math.inf if age is None else age)
    if "no-cache" in directives:
        age = 0.0
    ttl, tags = _ttl(request.headers.get(TTL_HEADER)), _tags(request.headers.getlist(TAGS_HEADER))
    return Wishes("no-store" in directives, age, ttl, tags, stale)


def asked_of(endpoint: Endpoint, raw: bytes, partition: Partition, rules: KeyRules, wishes: Wishes) -> Asked | None:
    """None where the cache has nothing to do with it: by the rules, by the client's wish, or because it is a request
    of which the backend should say what is wrong."""
    if wishes.no_store:
        return None
    try:
        body = orjson.loads(raw)
        if why_not_cached(endpoint, body, rules) is not None or not _delivery_is_known(body):
            return None
        return Asked(endpoint, raw, body, request_key(endpoint, body, partition, rules, wishes.tags), wishes)
    except (orjson.JSONDecodeError, InputError):
        return None


async def read_body(request: Request, most_bytes: int) -> bytes:
    """Raises TooLarge, as soon as that is known."""
    stated = request.headers.get("content-length", "0")
    if stated.isdecimal() and int(stated) > most_bytes:
        raise TooLarge(f"The body has {int(stated):,} bytes, and this gateway takes {most_bytes:,}.")
    pieces, total = [], 0
    async for piece in request.stream():
        total += len(piece)
        if total > most_bytes:
            raise TooLarge(f"The body has more than the {most_bytes:,} bytes that this gateway takes.")
        pieces.append(piece)
    return b"".join(pieces)


def _delivery_is_known(body: dict[str, Any]) -> bool:
    """The key says nothing of these two, so they are looked at here."""
    options = body.get("stream_options")
    usage = options.get("include_usage") if isinstance(options, dict) else None
    known = isinstance(options, dict | None) and isinstance(usage, bool | None)
    return known and isinstance(body.get("stream"), bool | None) and (options is None or body.get("stream") is True)


def _tags(given: list[str]) -> frozenset[str]:
    """Of all such headers, each with a list of names."""
    if not given:
        return frozenset()
    names = [part.strip() for header in given for part in header.split(",") if header.strip()]
    for name in names:
        if not NAME.fullmatch(name):
            raise BadRequest(f"{TAGS_HEADER}: got {name[:40]!r}, expected names of {EXPECTED}", TAGS_HEADER)
    if len({*names}) > MOST_TAGS:
        raise BadRequest(f"{TAGS_HEADER}: got {len({*names})} tags, expected {MOST_TAGS} at most", TAGS_HEADER)
    return frozenset(names)


def _ttl(given: str | None) -> float | None:
    if given is None:
        return None
    try:
        seconds = float(given)
    except ValueError:
        seconds = math.nan
    if not (math.isfinite(seconds) and seconds >= 0):
        raise BadRequest(f"{TTL_HEADER}: got {given[:40]!r}, expected seconds, 0 or more", TTL_HEADER)
    return seconds
