"""What people asked of the daemon, and asking it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request, Response

from api.asking import Asked, ask
from api.conditional import Tag
from api.cursors import cursor_of, link_next, place_of
from api.errors import Problem
from api.routes.common import READ, WRITE, CacheName, Cursor, IdempotencyKey, Limit, Service
from api.routes.media import JsonOnly, wish_place
from api.schema_records import WishOut
from api.schemas import WishesOut, WishIn

ROUTES = APIRouter(tags=["wishes"])
KIND = "wishes"
LARGEST_ID = 2**62


@ROUTES.get("/caches/{cache}/wishes", responses=READ)
def list_wishes(
    request: Request,
    response: Response,
    tag: Tag,
    service: Service,
    cache: CacheName,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> WishesOut:
    """All wishes, newest first, with what came of them."""
    tag(service.revision())
    before = None if cursor is None else int(place_of(KIND, cursor, (int,))[0])
    if before is not None and not 0 < before < LARGEST_ID:
        raise Problem(422, f"cursor: expected one that a list of {KIND} gave")
    found = service.wishes(cache, limit + 1, before)
    more = cursor_of(KIND, found[limit - 1].id or 0) if len(found) > limit else None
    return WishesOut(items=[WishOut.of(one) for one in found[:limit]], next=link_next(request, response, more))


@ROUTES.get("/caches/{cache}/wishes/{wish}", responses=READ)
def read_wish(
    tag: Tag,
    service: Service,
    cache: CacheName,
    wish: Annotated[int, Path(ge=1, le=LARGEST_ID, description="Id of a wish.", examples=[17])],
) -> WishOut:
    """One wish: whether the daemon has acted on it, and what came of it."""
    tag(service.revision())
    return WishOut.of(service.find_wish(cache, wish))


@ROUTES.post("/caches/{cache}/wishes", status_code=202, responses=WRITE, dependencies=[JsonOnly])
def make_wish(
    request: Request, response: Response, cache: CacheName, body: WishIn, idempotency_key: IdempotencyKey = None
) -> WishOut:
    """Ask the daemon to pause, resume, promote, roll back, release, stop or kill. It acts at its next tick; `kill` is
    the operator's static settings for all keys, held until a `resume`."""
    wish = WishOut.of(ask(request, Asked(cache, body.wish_kind, body.reason, key=idempotency_key)))
    response.headers["location"] = wish_place(wish)
    return wish
