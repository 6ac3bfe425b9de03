"""The gateway as a web application: paths, lifespan, errors, and nothing of what an answer is."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from functools import partial

from fastapi import FastAPI, Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import BaseRoute, Route

from api.gateway import access_log, stages, stream_metrics
from api.gateway.access import check_metrics, tenant_of
from api.gateway.admin import Admin
from api.gateway.answering import BYPASS, CACHE_HEADER, Answering, telling
from api.gateway.arm_admin import ArmsAdmin
from api.gateway.arm_metrics import ArmsCollector
from api.gateway.arms import LiveArms
from api.gateway.backend_metrics import BackendCollector
from api.gateway.fresh import FreshnessAtWork
from api.gateway.freshness_metrics import FreshnessCollector
from api.gateway.guard_metrics import GuardCollector
from api.gateway.guarding import Guard
from api.gateway.hot_set import HotSet
from api.gateway.metrics import CONTENT_TYPE, GatewayMetrics, tier_counts
from api.gateway.passing import PassThrough
from api.gateway.resuming import PATH, Resuming
from api.gateway.semantic_report import SemanticCollector
from api.gateway.service import GatewayService
from api.gateway.stage_metrics import StageMetrics
from api.gateway.upkeep import Upkeep
from api.gateway.upstream import Upstream
from api.gateway.warming import GatewayWarming
from api.gateway.warming_metrics import WarmingCollector
from api.http.delivery import error_response, gone_response, handled_error, handled_refusal, json_response
from api.http.direct import DirectApp, Handler
from api.http.errors import ApiError
from caches.keys.fields import Endpoint

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")
OTHER, REFUSED = "other", "refused"


def create_gateway(service: GatewayService) -> FastAPI:
    """An application with metrics of its own. It needs its lifespan, which tends the tiers and closes them."""
    gateway = _Gateway(service)
    admin = Admin(service, gateway.warming, gateway.upkeep.verifying, gateway.fresh, gateway.guard)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        async with (
            stages.running(service.stages),
            access_log.running(service.access_log),
            gateway.upkeep.running(),
            gateway.warming.running(),
            gateway.guard.running() if gateway.guard is not None else nullcontext(),
            gateway.fresh.running(),
        ):
            yield

    cached = {endpoint.value: gateway.cached(endpoint) for endpoint in Endpoint}
    routes: list[BaseRoute] = [
        *(Route(path, handler, methods=["POST"]) for path, handler in cached.items()),
        Route("/v1/cache/stats", admin.stats, methods=["GET"]),
        Route("/v1/cache/invalidate", admin.invalidate, methods=["POST"]),
        Route("/v1/cache/settings", admin.settings, methods=["GET"]),
        Route("/v1/cache/settings", admin.apply, methods=["PUT"]),
        *HotSet(service, gateway.warming).routes(),
        *ArmsAdmin(service.settings, gateway.arms, gateway.warming.hot).routes(),
        *gateway.resume_routes(),
        *gateway.fresh.routes(),
        Route("/v1/{path:path}", gateway.timed(OTHER, gateway.passed), methods=METHODS),
        Route("/healthz", gateway.health, methods=["GET"]),
        Route("/readyz", gateway.ready, methods=["GET"]),
        Route("/metrics", gateway.metrics_page, methods=["GET"]),
    ]
    app = DirectApp(
        cached,
        title="Setpoint gateway",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        routes=routes,
        lifespan=lifespan,
    )
    app.add_exception_handler(ApiError, handled_error)
    app.add_exception_handler(HTTPException, handled_refusal)
    return app


class _Gateway:
    """The endpoints, beside those for whoever looks after the cache."""

    def __init__(self, service: GatewayService) -> None:
        self._service, self._metrics = service, GatewayMetrics()
        self._upstream = Upstream(service.client, service.settings)
        self.arms = None if service.tuned is None else LiveArms(service.tuned, service.stack, service.clocks)
        counting = None if self.arms is None else self.arms.counting
        self.fresh = FreshnessAtWork(service)
        self._metrics.registry.register(FreshnessCollector(self.fresh.told))
        self.upkeep = Upkeep(service, self._metrics, self._upstream, counting, self.fresh.freshening)
        self.warming = GatewayWarming(service, self._upstream, service.settings.warming, counting)
        if self.fresh.freshening is not None:
            self.warming.kept = self.fresh.freshening.kept
        self._metrics.registry.register(WarmingCollector(self.warming))
        self._metrics.registry.register(BackendCollector(self._upstream.backends))
        if self.arms is not None:
            self._metrics.registry.register(ArmsCollector(self.arms))
        if self.upkeep.verifying is not None:
            self._metrics.registry.register(SemanticCollector(self.upkeep.verifying))
        if service.stages is not None:
            service.stages.timed = StageMetrics(self._metrics.registry, service.stages.budget).timed
        self._resuming = None if service.streams is None else Resuming(service.settings, service.streams)
        if self._resuming is not None:
            stream_metrics.register(self._metrics.registry, self._resuming)
        self._passing = PassThrough(self._upstream, service.settings, self.warming.load)
        self.guard = None if service.resilience is None else Guard(service, service.resilience, self._upstream)
        if self.guard is not None:
            self._metrics.registry.register(GuardCollector(self.guard))
        self._answering = Answering(
            service,
            self._upstream,
            self._passing,
            self.upkeep,
            self.warming,
            self.guard,
            self.fresh.freshening,
        )

    def cached(self, endpoint: Endpoint) -> Handler:
        answer: Handler = partial(self._answering.answer, endpoint)
        if self.arms is not None:
            answer = self.arms.counting.handling(answer)
        if self._service.stages is not None:
            answer = self._service.stages.handling(endpoint, answer)
        if self._resuming is not None:
            answer = self._resuming.handling(endpoint, answer)
        service = self._service
        logged = access_log.logging(service.access_log, service.clock, answer, service.levels_of)
        return self.timed(endpoint.value, logged)

    def resume_routes(self) -> list[BaseRoute]:
        """Where streams are kept."""
        return [] if self._resuming is None else [Route(PATH, self.timed(OTHER, self._resuming.get), methods=["GET"])]

    def timed(self, name: str, handler: Handler) -> Handler:
        """Counted, by how it was answered and how soon."""

        ticks = self._service.clocks.ticks

        async def handle(request: Request) -> Response:
            began = ticks()
            try:
                response = await handler(request)
            except ApiError as error:
                response = error_response(error)
            except ClientDisconnect:
                response = gone_response()
            outcome = response.headers.get(CACHE_HEADER, REFUSED)
            seconds = ticks() - began
            self._metrics.answered(name, outcome, seconds)
            self.warming.load.answered(seconds)
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
        await self._upstream.check()
        healthy = [backend.healthy for backend in self._upstream.backends]
        told = {"ready": any(healthy), "upstreams": len(healthy), "healthy": sum(healthy)}
        return json_response(told, 200 if told["ready"] else 503)

    async def metrics_page(self, request: Request) -> Response:
        check_metrics(request, self._service.settings)
        page = self._metrics.page(await tier_counts(self._service.stack.places))
        page += access_log.metrics_page(self._service.access_log)
        return Response(page, headers={"content-type": CONTENT_TYPE})
