"""The gateway's side of the access log: what a request came to, as a record, once that is known."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

import anyio.to_thread
from fastapi import Request
from fastapi.responses import Response
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, Metric

from api.gateway.asked import Asked
from api.gateway.feed import Feed
from api.http.delivery import ClosedStream
from api.http.errors import ApiError
from caches.keys.request_key import Partition
from caches.stack import Served
from traces.access.log import AccessLog
from traces.access.record import BYPASS, MISS, RESUMED, AccessRecord

Handler = Callable[[Request], Awaitable[Response]]
LevelsOf = Callable[[Asked], tuple[bytes, ...] | None]
VISIT = "setpoint.visit"  # in the scope of a request
COUNTS_END = 2**31  # of what a trace can hold


@dataclass(slots=True)
class Visit:
    """What is found out about a request on its way. partition: None until it is known whose request it is. asked: None
    where the cache has nothing to do with it, once `is_read`. served: the answer. feed: where it comes from as a
    stream. arm: of the tuned tier, to which the key belongs; None where it is not tuned for it. resumed: it asks for
    the rest of a stream."""

    partition: Partition | None = None
    asked: Asked | None = None
    is_read: bool = False
    served: Served | None = None
    feed: Feed | None = None
    arm: str | None = None
    resumed: bool = False


def visit_of(request: Request) -> Visit:
    """To be filled in by who answers; read by nobody where there is no log."""
    visit: Visit = request.scope.get(VISIT) or Visit()
    return visit


def logging(
    log: AccessLog | None, clock: Callable[[], float], handler: Handler, levels_of: LevelsOf | None = None
) -> Handler:
    """The handler, with a record of each request that is not refused by the gateway itself. clock: Unix time; what
    counts is when a request came. The record is added when its answer is there: of a stream, at its end. levels_of:
    what is recorded of keys beside the one in use; None: nothing."""
    if log is None:
        return handler
    add = partial(_add, log.add, levels_of)

    async def handle(request: Request) -> Response:
        arrival = clock()
        visit = request.scope[VISIT] = Visit()
        try:
            response = await handler(request)
        except ApiError as error:
            add(arrival, visit, None, error.status)
            raise
        if visit.feed is not None and visit.served is None and isinstance(response, ClosedStream):
            _add_at_end(add, arrival, visit, visit.feed, response)
        else:
            add(arrival, visit, visit.served, response.status_code)
        return response

    return handle


@asynccontextmanager
async def running(log: AccessLog | None) -> AsyncIterator[None]:
    """Starts the log, and waits in the end until it is written."""
    if log is None:
        yield
        return
    log.start()
    try:
        yield
    finally:
        await anyio.to_thread.run_sync(log.close)


def metrics_page(log: AccessLog | None) -> bytes:
    """Its counts as Prometheus reads them; nothing without a log."""
    if log is None:
        return b""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Counts(log))
    return generate_latest(registry)


class _Counts:
    """A Prometheus collector."""

    def __init__(self, log: AccessLog) -> None:
        self._log = log

    def collect(self) -> Iterable[Metric]:
        for name, told, value in (
            ("recorded", "Requests recorded for the access log.", self._log.recorded),
            ("dropped", "Of these, those that could not be written.", self._log.dropped),
        ):
            yield CounterMetricFamily(f"setpoint_access_log_{name}", told, value=value)


def _add_at_end(
    add: Callable[[float, Visit, Served | None, int], None],
    arrival: float,
    visit: Visit,
    feed: Feed,
    response: ClosedStream,
) -> None:
    close = response.close

    async def closed() -> None:
        try:
            if close is not None:
                await close()
        finally:
            add(arrival, visit, feed.ended, response.status_code)

    response.close = closed


def _add(
    add: Callable[[AccessRecord], None],
    levels_of: LevelsOf | None,
    arrival: float,
    visit: Visit,
    served: Served | None,
    status: int,
) -> None:
    partition, asked = visit.partition, visit.asked
    if partition is None or not visit.is_read:
        return
    tenant, namespace = partition.tenant, partition.namespace
    if asked is None:  # no request of a key's own
        add(AccessRecord(arrival, None, tenant, namespace, RESUMED if visit.resumed else BYPASS, status))
        return
    key_id, ttl = asked.key.id, asked.wishes.ttl_seconds
    levels = None if levels_of is None else levels_of(asked)
    if served is None:
        add(
            AccessRecord(
                arrival, key_id, tenant, namespace, MISS, status, ttl_seconds=ttl, arm=visit.arm, levels=levels
            )
        )
        return
    answer, tier = served.answer, served.tier
    add(
        AccessRecord(
            arrival,
            key_id,
            tenant,
            namespace,
            MISS if tier is None else tier,
            status,
            answer.size_bytes,
            _stated(answer.prompt_tokens),
            _stated(answer.output_tokens),
            answer.compute_seconds if tier is None else None,
            served.similarity if served.similarity < 1.0 else None,
            ttl,
            visit.arm,
            levels,
        )
    )


def _stated(count: int) -> int | None:
    """An answer has 0 where the backend said nothing; what a backend says may be nonsense."""
    return count if 0 < count < COUNTS_END else None
