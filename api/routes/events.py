"""Live change, as server-sent events."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header, Request
from fastapi.responses import Response

from api.events import Revisions
from api.http.delivery import EVENTS, EventStream
from api.routes.common import told

ROUTES = APIRouter(tags=["events"])
STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "A stream that goes on.",
        "content": {
            EVENTS: {
                "schema": {"type": "string"},
                "example": 'id: 4213\nevent: revision\ndata: {"revision":4213}\n\n',
            }
        },
    },
    **told(422),
}


@ROUTES.get("/events", response_class=Response, responses=STREAM)
async def listen(
    request: Request,
    last_event_id: Annotated[
        str | None, Header(max_length=32, description="The last `id` that you have, so that it is not sent again.")
    ] = None,
) -> Response:
    """A `revision` for each write to the ledger, as soon as it is seen, at once where it is not `Last-Event-ID`; an
    `unavailable` while the ledger cannot be read; and a comment after each silence."""
    revisions: Revisions = request.app.state.revisions
    return EventStream(revisions.stream(last_event_id), {"x-accel-buffering": "no"})
