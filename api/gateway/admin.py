"""The endpoints of whoever looks after the cache: what it holds, emptying a part of it, its settings."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

import orjson
from fastapi import Request
from fastapi.responses import Response

from api.gateway.access import admins_tenant, check_admin, checked_partition
from api.gateway.asked import read_body
from api.gateway.metrics import tier_counts
from api.gateway.service import GatewayService
from api.http.delivery import json_response
from api.http.errors import BadRequest
from caches.knobs import KNOB_NAMES, KnobSettings
from caches.place import Place

PARTIAL = 503  # a tier could not be reached: what was done is told, with null for that tier


class Admin:
    """Raises NotAllowed and BadRequest."""

    def __init__(self, service: GatewayService) -> None:
        self._service, self._settings = service, service.settings
        self._places = {place.tier.name: place for place in service.stack.places}

    async def stats(self, request: Request) -> Response:
        check_admin(request, self._settings)
        counts = await tier_counts(self._service.stack.places)
        return json_response({"tiers": {tier.name: _told(tier.stats) | asdict(tier.place) for tier in counts}})

    async def invalidate(self, request: Request) -> Response:
        check_admin(request, self._settings)
        body = await self._json(request, {"namespace", "dry_run", "tenant"})
        tenant = body.get("tenant", admins_tenant(request, self._settings))
        partition = checked_partition(tenant, body.get("namespace"))
        dry_run = body.get("dry_run", False)
        if not isinstance(dry_run, bool):
            raise BadRequest("dry_run: expected true or false", "dry_run")
        removed = None if dry_run else await self._service.stack.clear(partition)
        return json_response(asdict(partition) | {"dry_run": dry_run, "removed": removed})

    async def settings(self, request: Request) -> Response:
        check_admin(request, self._settings)
        return _settings_response({name: await place.ask(place.tier.settings) for name, place in self._places.items()})

    async def apply(self, request: Request) -> Response:
        """Returns what was taken. All is checked before anything is applied."""
        check_admin(request, self._settings)
        body = await self._json(request, set(self._places))
        wished = {name: _settings(name, value) for name, value in body.items()}
        return _settings_response(
            {name: await self._applied(self._places[name], wish) for name, wish in wished.items()}
        )

    async def _applied(self, place: Place, wish: KnobSettings) -> KnobSettings | None:
        taken = await place.ask(place.tier.apply, wish, self._service.clock())
        await place.tend_ttl()  # the stack knows of the new lifetime at once, not at the next housekeeping
        return taken

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


def _settings(name: str, value: object) -> KnobSettings:
    """All of them: while a tier shrinks, what binds is not what it aims at, so there is no half to leave as it is."""
    if not isinstance(value, dict) or set(value) != set(KNOB_NAMES):
        raise BadRequest(f"{name}: expected an object with {', '.join(KNOB_NAMES)}", name)
    for knob, number in value.items():
        if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number):
            raise BadRequest(f"{name}.{knob}: expected a number", f"{name}.{knob}")
    return KnobSettings(**{knob: float(number) for knob, number in value.items()})


def _settings_response(found: dict[str, KnobSettings | None]) -> Response:
    status = PARTIAL if None in found.values() else 200
    return json_response({"tiers": {name: None if one is None else asdict(one) for name, one in found.items()}}, status)


def _told(stats: Any) -> dict[str, Any]:
    return {"reached": False} if stats is None else {"reached": True, **asdict(stats), "hit_ratio": stats.hit_ratio}
