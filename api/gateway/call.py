"""A call of the backend for a request that can be cached, whole or as a stream, with an answer to store."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import orjson

from api.gateway.asked import Asked
from api.gateway.assemble import Assembly
from api.gateway.errors import Headers, NotStored, Reply, Unreachable
from api.gateway.events import END, data_of, event
from api.gateway.upstream import Reception, Upstream, reached, read_out, returned_headers, whole
from caches.flight import Flight
from caches.keys.fields import Endpoint
from caches.stack import Served
from caches.streams.streams import Streams
from caches.tiers.tier import Answer

# Of one client's response, and never of those who share its answer.
PRIVATE = frozenset({b"set-cookie"})
JSON: Headers = [(b"content-type", b"application/json")]


class BackendCall:
    """What the stack calls, at most once for all who wait. streams: where its stream is kept, if it is. returned: the
    headers of the backend's response, where this call was made and got so far; those who only share the answer have
    none."""

    def __init__(
        self,
        upstream: Upstream,
        asked: Asked,
        headers: Headers,
        clock: Callable[[], float],
        streams: Streams | None = None,
    ) -> None:
        self._upstream, self._asked, self._headers, self._clock = upstream, asked, headers, clock
        self._streams = streams
        self.returned: Headers = []

    async def __call__(self, flight: Flight[Served]) -> Answer:
        """A stream is published piece by piece. Raises NotStored, and what Upstream raises."""
        began, asked = time.monotonic(), self._asked
        async with self._upstream.opened(asked.endpoint.value, self._headers, asked.upstream_body()) as response:
            self.returned = [one for one in returned_headers(response) if one[0] not in PRIVATE]
            if response.status_code == 200 and _is_stream(response):
                parsed = await self._streamed(response, flight)
                body = orjson.dumps(parsed)
            else:
                body, parsed = await self._whole(response)
        return self._answer(body, parsed, time.monotonic() - began)

    async def _whole(self, response: Reception) -> tuple[bytes, dict[str, Any]]:
        reply = await whole(response)
        reply = Reply(reply.status, [one for one in reply.headers if one[0] not in PRIVATE], reply.body)
        if reply.status != 200:
            raise NotStored(reply)
        try:
            parsed = orjson.loads(reply.body)
        except orjson.JSONDecodeError:
            raise NotStored(reply) from None
        if not _is_answer(self._asked.endpoint, parsed):
            raise NotStored(reply)
        return reply.body, parsed

    async def _streamed(self, response: Reception, flight: Flight[Served]) -> dict[str, Any]:
        assembly = Assembly(self._asked.endpoint)
        if self._streams is not None:
            self._streams.record(flight, self._asked.key.id)
        with reached():
            async with aclosing(data_of(response.aiter_bytes())) as events:
                async for data in events:
                    if data == END:
                        answer = _assembled(assembly)
                        await read_out(events)
                        return answer
                    assembly.add(_chunk(data))
                    flight.publish(event(data))
        raise Unreachable("The backend ended its stream before the answer was complete.")

    def _answer(self, body: bytes, parsed: dict[str, Any], seconds: float) -> Answer:
        usage = parsed.get("usage")
        counts = usage if isinstance(usage, dict) else {}
        return Answer(
            body=body,
            written_seconds=self._clock(),
            ttl_seconds=self._asked.wishes.ttl_seconds,
            prompt_tokens=_count(counts.get("prompt_tokens")),
            output_tokens=_count(counts.get("completion_tokens")),
            compute_seconds=seconds,
        )


def _assembled(assembly: Assembly) -> dict[str, Any]:
    """Raises NotStored where the stream was ended in order, but does not say that all of the answer is there."""
    answer = assembly.whole()
    if not answer["choices"]:
        raise Unreachable("The backend's stream ended without an answer.")
    if not assembly.complete:
        raise NotStored(Reply(200, JSON, orjson.dumps(answer)))
    return answer


def _chunk(data: bytes) -> dict[str, Any]:
    """Raises NotStored for an error, which is told to those who wait as it is."""
    try:
        chunk = orjson.loads(data)
    except orjson.JSONDecodeError:
        raise Unreachable("The backend's stream holds something that is no JSON.") from None
    if not isinstance(chunk, dict) or not isinstance(chunk.get("choices", []), list | None):
        raise Unreachable("The backend's stream holds something that is no chunk of an answer.")
    if chunk.get("error"):
        raise NotStored(Reply(502, JSON, data), in_stream=True)
    return chunk


def _is_stream(response: Reception) -> bool:
    """Some backends answer whole though a stream was asked for."""
    return str(response.headers.get("content-type", "")).startswith("text/event-stream")


def _is_answer(endpoint: Endpoint, parsed: Any) -> bool:
    """Complete, so that it can be replayed either way."""
    if not isinstance(parsed, dict) or parsed.get("error"):
        return False
    if endpoint is Endpoint.EMBEDDINGS:
        return isinstance(parsed.get("data"), list)
    choices = parsed.get("choices")
    if not isinstance(choices, list) or not choices or not all(isinstance(choice, dict) for choice in choices):
        return False
    return endpoint is not Endpoint.CHAT or all(isinstance(choice.get("message"), dict) for choice in choices)


def _count(value: object) -> int:
    return value if isinstance(value, int) else 0
