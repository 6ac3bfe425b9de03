"""Experiments: which there were, how one stands, starting and stopping one."""

from __future__ import annotations

import math
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from api.asking import Asked, ask
from api.conditional import Tag
from api.cursors import cursor_of, link_next, place_of
from api.errors import Problem
from api.routes.common import (
    READ,
    WRITE,
    CacheName,
    Cursor,
    ExperimentId,
    IdempotencyKey,
    Limit,
    Service,
)
from api.routes.media import JsonOnly, wish_place
from api.schema_records import ExperimentOut, JudgementOut, WishOut
from api.schemas import AccountOut, ExperimentIn, ExperimentsOut, ReasonIn
from tuner.records import WishKind

ROUTES = APIRouter(tags=["experiments"])
KIND = "experiments"


@ROUTES.get("/experiments", responses=READ)
def list_experiments(
    request: Request,
    response: Response,
    tag: Tag,
    service: Service,
    cache: Annotated[str | None, Query(max_length=200, description="Of this cache only.")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> ExperimentsOut:
    """All experiments, newest first."""
    tag(service.revision())
    before = None if cursor is None else float(place_of(KIND, cursor, (float,))[0])
    if before is not None and not math.isfinite(before):
        raise Problem(422, f"cursor: expected one that a list of {KIND} gave")
    found = service.experiments(cache, limit + 1, before)
    more = cursor_of(KIND, float(found[limit - 1].began_seconds)) if len(found) > limit else None
    items = [ExperimentOut.of(one) for one in found[:limit]]
    return ExperimentsOut(items=items, next=link_next(request, response, more))


@ROUTES.get("/experiments/{experiment}", responses=READ)
def read_experiment(tag: Tag, service: Service, experiment: ExperimentId) -> AccountOut:
    """One experiment, with what the analysis said last."""
    tag(service.revision())
    account = service.account(experiment)
    last = JudgementOut.of(account.judgements[-1]) if account.judgements else None
    return AccountOut(
        experiment=ExperimentOut.of(account.experiment), judgement=last, judgements=len(account.judgements)
    )


@ROUTES.post("/caches/{cache}/experiments", status_code=202, responses=WRITE, dependencies=[JsonOnly])
def start_experiment(
    request: Request,
    response: Response,
    service: Service,
    cache: CacheName,
    body: ExperimentIn,
    idempotency_key: IdempotencyKey = None,
) -> WishOut:
    """Ask the daemon to try a challenger on a share of the keys. The experiment is there once the daemon has begun it;
    the answer of the wish says under which id."""
    service.check_version(body.challenger)
    design = body.design.model_dump(mode="json", exclude_unset=True)
    arguments: dict[str, object] = {"challenger": body.challenger, "design": design}
    wish = WishOut.of(ask(request, Asked(cache, WishKind.START, body.reason, arguments, idempotency_key)))
    response.headers["location"] = wish_place(wish)
    return wish


@ROUTES.post("/experiments/{experiment}/stop", status_code=202, responses=WRITE, dependencies=[JsonOnly])
def stop_experiment(
    request: Request,
    response: Response,
    service: Service,
    experiment: ExperimentId,
    body: ReasonIn,
    idempotency_key: IdempotencyKey = None,
) -> WishOut:
    """Ask the daemon to end an experiment without a result."""
    found = service.account(experiment).experiment
    if found.ended_seconds is not None and idempotency_key is None:
        raise Problem(409, f"Experiment {experiment} has ended.")
    arguments: dict[str, object] = {"experiment": experiment}
    wish = WishOut.of(ask(request, Asked(found.cache, WishKind.STOP, body.reason, arguments, idempotency_key)))
    response.headers["location"] = wish_place(wish)
    return wish
