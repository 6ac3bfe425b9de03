"""Errors as RFC 9457 words them: application/problem+json, with a title, a status and what to do in `detail`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from caches.errors import InputError, NotFound, SetpointError
from tuner.ledger import LedgerUnavailable

PROBLEM = "application/problem+json"
TITLES = {
    400: "Bad request",
    401: "No valid key",
    403: "Not allowed",
    404: "Not found",
    405: "Method not allowed",
    406: "Not acceptable",
    409: "Conflict",
    413: "Too large",
    415: "Unsupported media type",
    422: "Not valid",
    429: "Too many requests",
    500: "Internal error",
    503: "Not available now",
}
RETRY_SECONDS = "5"


class Problem(Exception):
    """Ends a request. errors: of single fields, each with `pointer` and `detail`."""

    def __init__(
        self,
        status: int,
        detail: str,
        headers: Mapping[str, str] | None = None,
        errors: Sequence[Mapping[str, str]] = (),
    ) -> None:
        super().__init__(detail)
        self.status, self.detail, self.headers, self.errors = status, detail, dict(headers or {}), errors

    def as_json(self) -> dict[str, Any]:
        told: dict[str, Any] = {"type": "about:blank", "title": TITLES.get(self.status, "Error")}
        told |= {"status": self.status, "detail": self.detail}
        return told | ({"errors": list(self.errors)} if self.errors else {})


def problem_response(problem: Problem) -> Response:
    headers = {"cache-control": "no-store", **problem.headers}
    return Response(orjson.dumps(problem.as_json()), problem.status, headers, PROBLEM)


def problem_of(request: Request, error: Exception) -> Problem:
    """What an exception means to whoever asked. What nobody foresaw is a 500 that says nothing of itself."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, RequestValidationError):
        return _invalid(error)
    if isinstance(error, HTTPException):
        return _refused(request, error)
    if isinstance(error, NotFound):
        return Problem(404, str(error))
    if isinstance(error, InputError):
        return Problem(422, str(error))
    if isinstance(error, LedgerUnavailable):
        return Problem(503, f"The ledger cannot be used now: {error}", {"retry-after": RETRY_SECONDS})
    if isinstance(error, SetpointError):
        return Problem(503, str(error), {"retry-after": RETRY_SECONDS})
    return Problem(500, "This is a bug of the server; its log has more.")


def _invalid(error: RequestValidationError) -> Problem:
    """Values are not repeated: they may be long, and a key may be among them."""
    errors = [{"pointer": _pointer(one["loc"]), "detail": str(one["msg"])} for one in error.errors()]
    broken = any(one["type"] == "json_invalid" for one in error.errors())
    detail = "; ".join(f"{one['pointer']}: {one['detail']}" for one in errors[:5])
    return Problem(400, "The body is not valid JSON.") if broken else Problem(422, detail, errors=errors)


def _pointer(place: Sequence[str | int]) -> str:
    return "/".join(str(part) for part in place)


def _refused(request: Request, error: HTTPException) -> Problem:
    headers = dict(error.headers or {})
    if error.status_code == 404:
        return Problem(404, f"There is nothing at {request.url.path[:200]}.")
    if error.status_code == 405:
        allowed = ", ".join(sorted(_methods(request)))
        return Problem(405, f"{request.method} does not go here; what does: {allowed}.", {"allow": allowed})
    return Problem(error.status_code, str(error.detail), headers)


def _methods(request: Request) -> set[str]:
    """Of all routes of the path: the framework names those of the first one only."""
    found: set[str] = set()
    for prefix, group in request.app.state.groups:
        path = request.url.path.removeprefix(prefix)
        found |= {name for route in group.routes if route.path_regex.match(path) for name in route.methods}
    return found or {"GET"}
