"""The rest of a stream for a client that lost its connection: the same bytes from its last event on."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass

from fastapi import Request
from fastapi.responses import Response

from api.gateway.access import partition_of_request, tenant_of
from api.gateway.access_log import Handler, visit_of
from api.gateway.asked import Wishes, asked_of, read_body
from api.gateway.events import DONE, json_event
from api.gateway.settings import GatewaySettings
from api.gateway.stream_tokens import LAST_EVENT_HEADER, RESUME_HEADER, Marking, Token, event_of, token_of
from api.http.delivery import EventStream
from api.http.errors import ApiError, BadRequest, Missing
from caches.keys.fields import Endpoint
from caches.stream import Part, StreamState
from caches.streams.streams import Streams
from caches.tiers.tier import TierError

CACHE_HEADER, RESUMED = "x-setpoint-cache", "resumed"
WAIT_SECONDS = 1.0  # of a read; each counts as interest in the stream
PATH = "/v1/cache/streams/{token}"


class StreamGone(ApiError):
    """There is nothing to resume: it ended too long ago, was lost, or never was this client's."""

    status = 410
    kind = "invalid_request_error"
    code = "stream_gone"


class OtherStream(ApiError):
    """The token is of another request's stream."""

    status = 409
    kind = "invalid_request_error"
    code = "other_stream"


class StreamsAway(ApiError):
    """Where streams are kept cannot be reached."""

    status = 503
    code = "streams_unreachable"


@dataclass
class ResumeCounts:
    """resumed: requests that got a rest. refused: that there was nothing for. resumed_bytes: of these rests."""

    resumed: int = 0
    refused: int = 0
    resumed_bytes: int = 0


class Resuming:
    """Raises BadRequest, StreamGone, OtherStream and StreamsAway."""

    def __init__(self, settings: GatewaySettings, streams: Streams) -> None:
        self._settings, self.streams, self.counts = settings, streams, ResumeCounts()

    def handling(self, endpoint: Endpoint, handler: Handler) -> Handler:
        """The handler; a request that names a place in a stream gets the rest, if the stream is of an equal one."""

        async def handle(request: Request) -> Response:
            wanted = _wanted(request, request.headers.get(RESUME_HEADER))
            if wanted is None:
                return await handler(request)
            return await self._same(endpoint, request, wanted)

        return handle

    async def get(self, request: Request) -> Response:
        """Without the body of the request: who has the token, of the same tenant, is believed."""
        wanted = _wanted(request, request.path_params["token"])
        if wanted is None:
            raise Missing("No stream is named here.")
        tenant = tenant_of(request, self._settings)
        return self._response(wanted, await self._found(wanted, tenant))

    async def _same(self, endpoint: Endpoint, request: Request, wanted: Marking) -> Response:
        visit = visit_of(request)
        partition = visit.partition = partition_of_request(request, self._settings)
        rules = self._settings.rules_of(partition.namespace)
        raw = await read_body(request, self._settings.largest_body_bytes)
        asked = asked_of(endpoint, raw, partition, rules.key_rules, Wishes()) if rules.cached else None
        visit.is_read = visit.resumed = True
        part = await self._found(wanted, partition.tenant)
        if asked is None or not asked.streamed or asked.key.id != part.name:
            raise OtherStream("This request is not the one whose stream is named. Send it without a place to begin at.")
        return self._response(wanted, part)

    async def _found(self, wanted: Marking, tenant: str) -> Part:
        try:
            part = await self.streams.read(wanted.token.stream, wanted.seen)
        except TierError:
            raise StreamsAway("Where streams are kept cannot be reached now.", headers={"retry-after": "1"}) from None
        if part is None or not part.name.startswith(b"%b\0" % tenant.encode()):
            raise self._gone()
        return part

    def _gone(self) -> StreamGone:
        """The same whatever the reason, so that nobody learns which streams there are."""
        self.counts.refused += 1
        return StreamGone("There is no such stream to resume, or none any more. Ask anew.")

    def _response(self, wanted: Marking, part: Part) -> Response:
        self.counts.resumed += 1
        headers = {CACHE_HEADER: RESUMED, RESUME_HEADER: wanted.token.text}
        return EventStream(self._rest(wanted, part), headers)

    async def _rest(self, marking: Marking, part: Part) -> AsyncGenerator[bytes, None]:
        """Up to the end of the stream, as its first client gets it."""
        found: Part | None = part
        while found is not None:
            told = marking.told(found.events)
            self.counts.resumed_bytes += len(told)
            if told:
                yield told
            if found.state is not StreamState.RUNNING:
                yield _ending(found)
                return
            try:
                found = await self.streams.read(marking.token.stream, marking.seen, WAIT_SECONDS)
            except TierError:
                yield json_event(StreamsAway("Where streams are kept cannot be reached any more.").as_json())
                return
        yield json_event(self._gone().as_json())


def _ending(part: Part) -> bytes:
    if part.state is StreamState.DONE:
        return DONE
    return part.why or json_event(StreamGone("Who received this stream is gone; there is no more of it.").as_json())


def _wanted(request: Request, token: str | None) -> Marking | None:
    """The place that a request names. None without one: ids of events that are not ours are none. Raises BadRequest for
    a token of another form, and where two places are named."""
    last = request.headers.get(LAST_EVENT_HEADER)
    place = None if last is None else event_of(last)
    if token is None:
        return None if place is None else Marking(*place)
    named: Token | None = token_of(token)
    if named is None:
        raise BadRequest(f"{RESUME_HEADER}: got {token[:40]!r}, expected what a response said", RESUME_HEADER)
    if last is not None and (place is None or place[0] != named):
        raise BadRequest(f"{LAST_EVENT_HEADER}: got {last[:60]!r}, expected an id of that stream", LAST_EVENT_HEADER)
    return Marking(named, 0 if place is None else place[1])
