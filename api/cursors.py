"""Places in lists: what a client sends to have the next page. They say nothing to it, and only come from here."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence

import orjson
from fastapi import Request, Response

from api.errors import Problem

LONGEST = 256


def cursor_of(kind: str, *place: str | float) -> str:
    return base64.urlsafe_b64encode(orjson.dumps([kind, *place])).decode().rstrip("=")


def place_of(kind: str, cursor: str, types: Sequence[type]) -> list[str | float]:
    """Raises Problem for one that is of another list, or made up."""
    try:
        told = orjson.loads(base64.b64decode(cursor + "=" * (-len(cursor) % 4), b"-_", validate=True))
    except (binascii.Error, ValueError) as error:
        raise _unknown(kind) from error
    if not isinstance(told, list) or len(told) != 1 + len(types) or told[0] != kind:
        raise _unknown(kind)
    place = told[1:]
    if any(type(part) is not wanted for part, wanted in zip(place, types, strict=True)):
        raise _unknown(kind)
    return place


def link_next(request: Request, response: Response, cursor: str | None) -> str | None:
    """The path of the next page, also as a Link header (RFC 8288); None at the end."""
    if cursor is None:
        return None
    url = request.url.include_query_params(cursor=cursor)
    path = f"{url.path}?{url.query}"
    response.headers["link"] = f'<{path}>; rel="next"'
    return path


def _unknown(kind: str) -> Problem:
    return Problem(
        422,
        f"cursor: expected one that a list of {kind} gave",
        errors=[{"pointer": "query/cursor", "detail": f"expected one that a list of {kind} gave"}],
    )
