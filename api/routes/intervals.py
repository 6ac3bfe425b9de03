"""What was counted, interval by interval."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from api.conditional import Tag
from api.cursors import cursor_of, link_next, place_of
from api.errors import Problem
from api.routes.common import READ, CacheName, Cursor, Limit, Service
from api.schema_records import IntervalOut
from api.schemas import IntervalsOut
from caches.target import Arm

ROUTES = APIRouter(tags=["intervals"])
LARGEST_INDEX = 2**62
Index = Annotated[int | None, Query(ge=0, le=LARGEST_INDEX)]
KIND = "intervals"


@ROUTES.get("/caches/{cache}/intervals", responses=READ)
def list_intervals(
    request: Request,
    response: Response,
    tag: Tag,
    service: Service,
    cache: CacheName,
    first: Annotated[Index, Query(description="Of the oldest interval to list; else 0.")] = None,
    last: Annotated[Index, Query(description="Of the newest; else the newest that is over.")] = None,
    arm: Annotated[Arm | None, Query(description="Of this arm only.")] = None,
    limit: Annotated[Limit, Query(description="Intervals on a page, at most; an interval has up to two arms.")] = 100,
    histograms: Annotated[bool, Query(description="With the histograms of latency.")] = False,
    cursor: Cursor = None,
) -> IntervalsOut:
    """The newest intervals up to `last`, by index and arm; the next page has older ones."""
    tag(service.revision())
    newest = service.status(cache).state.index - 1
    end = newest if last is None else min(last, newest)
    if cursor is not None:
        (place,) = place_of(KIND, cursor, (int,))
        end = min(end, int(place))
    if first is not None and last is not None and last < first:
        raise Problem(422, f"last: got {last}, expected at least first, which is {first}")
    oldest = service.first_index(cache)
    least = max(end + 1 if oldest is None else oldest, first or 0)
    begin = max(least, end - limit + 1)
    found = service.intervals(cache, begin, end, arm) if begin <= end else ()
    more = cursor_of(KIND, begin - 1) if least < begin <= end else None
    return IntervalsOut(
        items=[IntervalOut.of(one, histograms) for one in found], next=link_next(request, response, more)
    )
