"""Which caches there are, where each stands, and what its settings and limits are."""

from __future__ import annotations

from urllib.parse import quote

from fastapi import APIRouter, Response

from api.conditional import Tag
from api.routes.common import READ, UNCHANGED, CacheName, Service, Who, told
from api.schema_records import DecisionOut, IntervalOut, SettingsOut, WishOut
from api.schemas import (
    CacheOut,
    CacheSettingsOut,
    CachesOut,
    CallerOut,
    LeaseOut,
    LimitOut,
    SplitOut,
    StatusOut,
)
from api.wording import in_words
from tuner.service import Status

ROUTES = APIRouter(tags=["caches"])


@ROUTES.get("/caches", responses={**UNCHANGED, **told()})
def list_caches(tag: Tag, service: Service) -> CachesOut:
    """The caches that a daemon has acted on."""
    tag(service.revision())
    return CachesOut(
        items=[CacheOut(name=name, status=f"/v1/caches/{quote(name, safe='')}/status") for name in service.caches()]
    )


@ROUTES.get("/caches/{cache}/status", responses=READ)
def read_status(tag: Tag, service: Service, cache: CacheName) -> StatusOut:
    """Where the control loop stands: phase, experiment, newest decisions, open wishes, and whether a daemon is at
    work."""
    revision = service.revision()
    status = service.status(cache)
    tag(revision, status.active)
    return _status_out(status, revision)


@ROUTES.get("/caches/{cache}/settings", responses=READ)
def read_settings(tag: Tag, service: Service, cache: CacheName) -> CacheSettingsOut:
    """What the settings are, and the ranges and largest steps that bind them."""
    tag(service.revision())
    state, limits = service.status(cache).state, service.limits(cache)
    return CacheSettingsOut(
        cache=cache,
        index=state.index,
        confirmed=state.confirmed,
        split=SplitOut(treatment=state.plan.split.treatment),
        control=SettingsOut.of(state.plan.control),
        treatment=SettingsOut.of(state.plan.treatment),
        limits=None if limits is None else [LimitOut.model_validate(vars(knob)) for knob in limits.knobs],
    )


@ROUTES.get("/me", tags=["access"], responses=told())
def read_caller(caller: Who, response: Response) -> CallerOut:
    """Who you are here, by the key that you sent."""
    response.headers["cache-control"] = "no-store"
    return CallerOut(name=caller.name, role=caller.role)


def _status_out(status: Status, revision: int) -> StatusOut:
    state, lease = status.state, status.lease
    return StatusOut(
        cache=state.cache,
        revision=revision,
        index=state.index,
        opened_seconds=state.opened_seconds,
        confirmed=state.confirmed,
        phase=state.phase,
        step=state.step,
        experiment=state.experiment,
        paused=state.paused,
        latched=state.latched,
        in_words=in_words(state),
        split=SplitOut(treatment=state.plan.split.treatment),
        lease=None
        if lease is None
        else LeaseOut(holder=lease.holder, fence=lease.fence, until_seconds=lease.until_seconds, active=status.active),
        decisions=[DecisionOut.of(one) for one in status.decisions.values()],
        intervals=[IntervalOut.of(one) for one in status.intervals.values()],
        open_wishes=[WishOut.of(one) for one in status.open_wishes],
    )
