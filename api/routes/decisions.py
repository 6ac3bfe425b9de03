"""What was decided, and why."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from api.conditional import Tag
from api.cursors import cursor_of, link_next, place_of
from api.errors import Problem
from api.routes.common import READ, CacheName, Cursor, Limit, Service
from api.schema_records import DecisionOut
from api.schemas import DecisionsOut
from caches.target import Arm
from tuner.ledger import DecisionFilter
from tuner.records import Verdict

ROUTES = APIRouter(tags=["decisions"])
KIND = "decisions"


@ROUTES.get("/caches/{cache}/decisions", responses=READ)
def list_decisions(
    request: Request,
    response: Response,
    tag: Tag,
    service: Service,
    cache: CacheName,
    arm: Annotated[Arm | None, Query(description="Of this arm only.")] = None,
    verdict: Annotated[Verdict | None, Query(description="Only those that the guardrails judged so.")] = None,
    changed: Annotated[bool | None, Query(description="Only those that changed settings, or that did not.")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> DecisionsOut:
    """The decisions, newest first, each with its reasons."""
    tag(service.revision())
    before = None if cursor is None else place_of_decision(cursor)
    found = list(service.decisions(cache, DecisionFilter(arm, verdict, changed, before, limit + 1)))
    more = cursor_of(KIND, found[limit - 1].index, found[limit - 1].arm.value) if len(found) > limit else None
    return DecisionsOut(items=[DecisionOut.of(one) for one in found[:limit]], next=link_next(request, response, more))


def place_of_decision(cursor: str) -> tuple[int, Arm]:
    """Raises Problem for a cursor of something else."""
    index, arm = place_of(KIND, cursor, (int, str))
    if arm not in set(Arm) or not abs(int(index)) < 2**62:
        raise Problem(422, f"cursor: expected one that a list of {KIND} gave")
    return int(index), Arm(arm)
