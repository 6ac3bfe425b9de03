"""The endpoints of whoever tunes: /v1/cache/arms, to read how the arms stand and what they count, and to set a plan;
/v1/cache/arms/salt, for a salt under which both get their share of the traffic."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from fastapi import Request
from fastapi.responses import Response
from pydantic import ValidationError
from starlette.routing import Route

from api.gateway.access import check_admin, check_viewer
from api.gateway.arms import LiveArms
from api.gateway.asked import read_body
from api.gateway.settings import GatewaySettings
from api.http.errors import ApiError, BadRequest, Missing
from caches.errors import InputError
from caches.hot_keys import HotKeys
from caches.target import Fenced
from tuner.live.arms_document import PATH, Strict, Wish, arms_json, first_fault
from tuner.live.salt_document import SALT_PATH, SaltWish, salt_json

JSON = "application/json"
Document = TypeVar("Document", bound=Strict)


class OldFence(ApiError):
    """Somebody with a higher fence has acted since."""

    status = 409
    kind = "invalid_request_error"
    code = "fenced"


class ArmsAdmin:
    """arms: None where nothing is tuned here. hot: what is asked for. Raises ApiError."""

    def __init__(self, settings: GatewaySettings, arms: LiveArms | None, hot: HotKeys) -> None:
        self._settings, self._arms, self._hot = settings, arms, hot

    def routes(self) -> list[Route]:
        return [
            Route(PATH, self.told, methods=["GET"]),
            Route(PATH, self.apply, methods=["PUT"]),
            Route(SALT_PATH, self.salt, methods=["POST"]),
        ]

    async def told(self, request: Request) -> Response:
        check_viewer(request, self._settings)
        return _response(self._tuned())

    async def apply(self, request: Request) -> Response:
        """Answers with what was taken, as `told` does. All is checked before anything is applied."""
        check_admin(request, self._settings)
        arms = self._tuned()
        wish = await self._wished(request, Wish)
        try:
            plan = wish.plan.value()
        except InputError as error:
            raise BadRequest(str(error)) from error
        try:
            arms.apply(plan, wish.fence)
        except Fenced as error:
            raise OldFence(str(error), "fence") from error
        return _response(arms)

    async def salt(self, request: Request) -> Response:
        """Changes nothing, but takes a moment of the processor, in a thread."""
        check_admin(request, self._settings)
        arms = self._tuned()
        wish = await self._wished(request, SaltWish)
        found = await asyncio.to_thread(arms.balanced_salt, self._hot, wish.seed, wish.shares)
        return Response(salt_json(found), 200, {"cache-control": "no-store"}, JSON)

    async def _wished(self, request: Request, kind: type[Document]) -> Document:
        raw = await read_body(request, self._settings.largest_body_bytes)
        try:
            return kind.model_validate_json(raw)
        except ValidationError as error:
            fault = first_fault(error)
            raise BadRequest(fault, fault.partition(":")[0]) from error

    def _tuned(self) -> LiveArms:
        if self._arms is None:
            raise Missing("Nothing is tuned here: [tuning] enabled is false in the settings of this gateway.")
        return self._arms


def _response(arms: LiveArms) -> Response:
    """Nothing is awaited in between, so all of it is of one moment."""
    body = arms_json(arms.space, arms.standing(), arms.counted())
    return Response(body, 200, {"cache-control": "no-store"}, JSON)
