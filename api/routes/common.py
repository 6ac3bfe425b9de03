"""What routes share: the service, who asks, and what every path may answer besides its own."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Header, Path, Query, Request

from api.access.audit import Audit
from api.access.callers import Caller
from api.errors import PROBLEM, TITLES, Problem
from tuner.api_sections import ApiRole
from tuner.service import TunerService

MOST_ITEMS = 500
NAMES = r"^[^\x00-\x1f\x7f/]+$"  # not every ledger can be asked for other characters, and no name has them


def service_of(request: Request) -> TunerService:
    service: TunerService = request.app.state.service
    return service


def audit_of(request: Request) -> Audit:
    audit: Audit = request.app.state.access.audit
    return audit


def caller_of(request: Request) -> Caller:
    caller: Caller = request.state.caller
    return caller


def require(caller: Caller, role: ApiRole) -> None:
    """Raises Problem for a role that does not reach."""
    if not caller.may(role):
        raise Problem(403, f"This needs the role {role.value}; the key of {caller.name} has {caller.role.value}.")


Service = Annotated[TunerService, Depends(service_of)]
Who = Annotated[Caller, Depends(caller_of)]
CacheName = Annotated[
    str,
    Path(
        description="Name of a cache.",
        min_length=1,
        max_length=200,
        pattern=NAMES,
        examples=["gateway"],
    ),
]
ExperimentId = Annotated[
    str,
    Path(
        description="Id of an experiment.",
        min_length=1,
        max_length=200,
        pattern=NAMES,
        examples=["2026-11-30-a"],
    ),
]
Limit = Annotated[int, Query(ge=1, le=MOST_ITEMS, description="Items on a page, at most.")]
Cursor = Annotated[str | None, Query(max_length=256, description="Of the page, as `next` gave it.")]
IdempotencyKey = Annotated[
    str | None,
    Header(
        min_length=1,
        max_length=128,
        pattern=r"^[!-~]+$",
        description="Of your choice, one for each thing that you want done: asked for again with the same key within a "
        "day, it is not done again, and the answer is the same. Another body with the same key is a 422.",
    ),
]


def told(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The problems that a path may answer, for the OpenAPI."""
    return {
        status: {
            "description": TITLES[status],
            "content": {PROBLEM: {"schema": {"$ref": "#/components/schemas/ProblemOut"}}},
        }
        for status in sorted({*statuses, 401, 403, 429, 503})
    }


UNCHANGED: dict[int | str, dict[str, Any]] = {304: {"description": "Not changed since the ETag that was sent"}}
READ = {**UNCHANGED, **told(404, 422)}
WRITE = told(400, 404, 409, 413, 415, 422)
