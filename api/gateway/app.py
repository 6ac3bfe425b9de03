"""The gateway as a web application: paths, lifespan, errors, and nothing of what an answer is."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

from fastapi import FastAPI, Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import BaseRoute, Route

from api.gateway.access import tenant_of
from api.gateway.admin import Admin
from api.gateway.answering import BYPASS, CACHE_HEADER, Answering, telling
from api.gateway.metrics import CONTENT_TYPE, GatewayMetrics, tier_counts
from api.gateway.passing import PassThrough
from api.gateway.service import GatewayService
from api.gateway.upkeep import Upkeep
from api.gateway.upstream import Upstream
from api.http.delivery import error_response, gone_response, handled_error, handled_refusal, json_response
from api.http.errors import ApiError
from caches.keys.fields import Endpoint

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")
OTHER, REFUSED = "other", "refused"
Handler = Callable[[Request], Awaitable[Response]]


def create_gateway(service: GatewayService) -> FastAPI:
    """An application with metrics of its own. It needs its lifespan, which tends the tiers and closes them."""
    gateway = _Gateway(service)
    admin = Admin(service)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        async with gateway.upkeep.running():
            yield

    # plain routes: what FastAPI does for a function with typed arguments costs more than a hit
    cached = [Route(endpoint.value, gateway.cached(endpoint), methods=["POST"]) for endpoint in Endpoint]
    routes: list[BaseRoute] = [
        *cached,
        Route("/v1/cache/stats", admin.stats, methods=["GET"]),
        Route("/v1/cache/invalidate", admin.invalidate, methods=["POST"]),
        Route("/v1/cache/settings", admin.settings, methods=["GET"]),
        Route("/v1/cache/settings", admin.apply, methods=["PUT"]),
        Route("/v1/{path:path}", gateway.timed(OTHER, gateway.passed), methods=METHODS),
        Route("/healthz", gateway.health, methods=["GET"]),
        Route("/readyz", gateway.ready, methods=["GET"]),
        Route("/metrics", gateway.metrics_page, methods=["GET"]),
    ]
    app = FastAPI(
        title="Setpoint gateway", docs_url=None, redoc_url=None, openapi_url=None, routes=routes, lifespan=lifespan
    )
    app.add_exception_handler(ApiError, handled_error)
    app.add_exception_handler(HTTPException, handled_refusal)
    return app


class _Gateway:
    """The endpoints, beside those for whoever looks after the cache."""

    def __init__(self, service: GatewayService) -> None:
        self._service, self._metrics = service, GatewayMetrics()
        self._upstream = Upstream(service.client, service.settings)
        self.upkeep = Upkeep(service, self._metrics)
        self._passing = PassThrough(self._upstream, service.settings)
        self._answering = Answering(service, self._upstream, self._passing, self.upkeep)

    def cached(self, endpoint: Endpoint) -> Handler:
        return self.timed(endpoint.value, partial(self._answering.answer, endpoint))

    def timed(self, name: str, handler: Handler) -> Handler:
        """Counted, by how it was answered and how soon."""

        async def handle(request: Request) -> Response:
            began = time.perf_counter()
            try:
                response = await handler(request)
            except ApiError as error:
                response = error_response(error)
            except ClientDisconnect:
                response = gone_response()
            outcome = response.headers.get(CACHE_HEADER, REFUSED)
            self._metrics.answered(name, outcome, time.perf_counter() - began)
            return response

        return handle

    async def passed(self, request: Request) -> Response:
        tenant_of(request, self._service.settings)  # raises NoKey
        with telling(BYPASS):
            response = await self._passing.streamed(request)
        response.headers[CACHE_HEADER] = BYPASS
        return response

    async def health(self, _request: Request) -> Response:
        return json_response({"status": "ok"})

    async def ready(self, _request: Request) -> Response:
        ready = await self._upstream.is_ready()
        return json_response({"ready": ready, "upstream": ready}, 200 if ready else 503)

    async def metrics_page(self, _request: Request) -> Response:
        page = self._metrics.page(await tier_counts(self._service.stack.places))
        return Response(page, headers={"content-type": CONTENT_TYPE})
