"""What is sent and what is wanted: media types of bodies and answers."""

from __future__ import annotations

from collections.abc import Sequence
from email.message import Message
from urllib.parse import quote

from fastapi import Depends, Request

from api.errors import Problem
from api.schema_records import WishOut

JSON = "application/json"


def json_only(request: Request) -> None:
    """Raises Problem for a body of another kind. That a form of another site cannot be of this one is what keeps such
    forms out."""
    if _kind(request.headers.get("content-type", "")) != JSON:
        raise Problem(415, f"The body has to be {JSON}.", {"accept-post": JSON})


JsonOnly = Depends(json_only)


def chosen(accept: str | None, offered: Sequence[str]) -> str:
    """The media type of `offered` that the Accept header wants most, the earlier one where it wants two alike.

    Raises Problem where it wants none.
    """
    ranges = [_range(part) for part in (accept or "*/*").split(",") if part.strip()]
    weights = [(_weight(kind, ranges), -place, kind) for place, kind in enumerate(offered)]
    weight, _, kind = max(weights)
    if weight <= 0.0:
        raise Problem(406, f"This can be had as {', '.join(offered)}.")
    return kind


def wish_place(wish: WishOut) -> str:
    return f"/v1/caches/{quote(wish.cache, safe='')}/wishes/{wish.id}"


def _kind(header: str) -> str:
    message = Message()
    message["content-type"] = header
    return message.get_content_type() if header else ""


def _range(part: str) -> tuple[str, float]:
    kind, *parameters = (one.strip().lower() for one in part.split(";"))
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return kind, min(max(float(value), 0.0), 1.0)
            except ValueError:
                return kind, 0.0
    return kind, 1.0


def _weight(kind: str, ranges: Sequence[tuple[str, float]]) -> float:
    """Of the most exact range that fits; 0 where none does."""
    group = f"{kind.partition('/')[0]}/*"
    for wanted in (kind, group, "*/*"):
        found = [weight for name, weight in ranges if name == wanted]
        if found:
            return max(found)
    return 0.0
