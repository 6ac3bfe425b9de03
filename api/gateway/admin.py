"""The endpoints of whoever looks after the cache: what it holds, emptying a part of it, its settings."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import orjson
from fastapi import Request
from fastapi.responses import Response

from api.gateway import guard_metrics, semantic_report
from api.gateway.access import admins_tenant, check_admin, check_viewer
from api.gateway.asked import read_body
from api.gateway.cache_settings import CacheSettings
from api.gateway.fresh import FreshnessAtWork
from api.gateway.guarding import Guard
from api.gateway.invalidating import FIELDS, Invalidation, invalidation_of
from api.gateway.metrics import tier_counts
from api.gateway.service import GatewayService
from api.gateway.verifying import Verifying
from api.gateway.warming import GatewayWarming
from api.http.delivery import json_response
from api.http.errors import BadRequest
from caches.tiers.selection import Selection

PARTIAL = 503  # a tier could not be reached: what was done is told, with null for that tier


class Admin:
    """Raises NotAllowed and BadRequest."""

    def __init__(
        self,
        service: GatewayService,
        warming: GatewayWarming,
        verifying: Verifying | None = None,
        fresh: FreshnessAtWork | None = None,
        guard: Guard | None = None,
    ) -> None:
        self._guard = guard
        self._fresh = fresh or FreshnessAtWork(service)
        self._service, self._settings, self._warming = service, service.settings, warming
        self._verifying, self._cache = verifying, CacheSettings(service)

    async def stats(self, request: Request) -> Response:
        check_viewer(request, self._settings)
        counts = await tier_counts(self._service.stack.places)
        tiers = {tier.name: _told(tier.stats) | asdict(tier.place) for tier in counts}
        semantic = {} if self._verifying is None else {"semantic": semantic_report.told(self._verifying)}
        guarded = {} if self._guard is None else {"resilience": guard_metrics.told(self._guard)}
        upstreams = [backend.told() for backend in self._service.client.balanced.backends]
        semantic |= {"freshness": self._fresh.told()}
        told = {"tiers": tiers, "upstreams": upstreams, "warming": self._warming.told(), **semantic, **guarded}
        return json_response(told)

    async def invalidate(self, request: Request) -> Response:
        check_admin(request, self._settings)
        body = await self._json(request, set(FIELDS))
        asked = invalidation_of(body, admins_tenant(request, self._settings))
        if not asked.dry_run:
            if self._service.resilience is not None:
                self._service.resilience.forget()
            return await self._cleared(request, asked)
        tiers = await self._service.stack.count(asked.what)
        return json_response(asked.told() | {"tiers": tiers}, PARTIAL if None in tiers.values() else 200)

    async def _cleared(self, request: Request, asked: Invalidation) -> Response:
        """Written down before it is done, and after with the counts."""
        told, what, auditing = asked.told(), asked.what, self._fresh.auditing
        auditing.note("invalidate", request, told)
        if asked.flush and isinstance(what, Selection):
            began, done = await self._fresh.flushing.flush(what)
            told |= {"epoch_seconds": began, "kept": done}
        else:
            tiers = await self._service.stack.clear(what)
            told, done = told | {"tiers": tiers}, None not in tiers.values()
        auditing.note("invalidated", request, told)
        return json_response(told, 200 if done else PARTIAL)

    async def settings(self, request: Request) -> Response:
        check_viewer(request, self._settings)
        return _settings_response(await self._cache.told())

    async def apply(self, request: Request) -> Response:
        """Returns what was taken. All is checked before anything is applied."""
        check_admin(request, self._settings)
        body = await self._json(request, self._cache.names)
        return _settings_response(await self._cache.applied(body, admins_tenant(request, self._settings)))

    async def _json(self, request: Request, known: set[str]) -> dict[str, Any]:
        try:
            body = orjson.loads(await read_body(request, self._settings.largest_body_bytes))
        except orjson.JSONDecodeError as error:
            raise BadRequest(f"The body is not valid JSON: {error}") from error
        if not isinstance(body, dict):
            raise BadRequest("The body is not a JSON object.")
        for name in body:
            if name not in known:
                raise BadRequest(f"{name[:40]}: not known, expected {' or '.join(sorted(known))}", name[:40])
        return body


def _settings_response(told: dict[str, Any]) -> Response:
    return json_response(told, PARTIAL if None in told["tiers"].values() else 200)


def _told(stats: Any) -> dict[str, Any]:
    return {"reached": False} if stats is None else {"reached": True, **asdict(stats), "hit_ratio": stats.hit_ratio}
