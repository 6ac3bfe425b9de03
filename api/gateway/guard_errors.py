"""What the gateway says where it does not ask the backend, and which errors of a backend others may answer for."""

from __future__ import annotations

import math

from api.gateway.errors import NotStored, TooLate, Unreachable
from api.http.errors import ApiError
from caches.guards.ladder import Why

TOO_BUSY, FAILED = 429, 500


class Refused(ApiError):
    """The backend is not asked."""

    status = 503
    code = "upstream_unavailable"

    def __init__(self, why: Why, message: str, retry_seconds: float) -> None:
        super().__init__(message, headers={"retry-after": str(max(math.ceil(retry_seconds), 1))})
        self.why = why


class OverRate(Refused):
    """It would take more tokens a second than the operator lets through."""

    status = 429
    kind = "tokens"
    code = "rate_limit_exceeded"


def is_failure(error: BaseException) -> bool:
    """Of the backend itself; what lies in the request is none, and being told to come later says nothing."""
    if isinstance(error, NotStored):
        return error.reply.status >= FAILED
    return isinstance(error, Unreachable | TooLate)


def why_of(error: BaseException) -> Why | None:
    """None for what nobody else should answer for."""
    if isinstance(error, Refused):
        return error.why
    busy = isinstance(error, NotStored) and error.reply.status == TOO_BUSY
    return Why.FAILED if busy or is_failure(error) else None
