"""The endpoints of whoever tunes: /v1/cache/arms, to read how the arms stand and what they count, and to set a plan;
/v1/cache/arms/salt, for a salt under which both get their share of the traffic; /v1/cache/arms/eviction-policies, for
what a plan may name."""

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
from caches.policies.live.making import name_of
from caches.target import Arm, Fenced, Plan
from tuner.live.arms_document import PATH, Strict, Wish, arms_json, first_fault
from tuner.live.policies_document import POLICIES_PATH, policies_json
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
            Route(POLICIES_PATH, self.policies, methods=["GET"]),
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
        _check_policies(plan, arms.tier.policies)
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
        return _fresh(salt_json(found))

    async def policies(self, request: Request) -> Response:
        check_viewer(request, self._settings)
        return _fresh(policies_json(_policies(self._tuned())))

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


def _policies(arms: LiveArms) -> tuple[str, ...]:
    """As a live cache tells them; none where what it was made with has no name that a plan could bring it back by."""
    own = name_of(arms.tier.made_with)
    return () if own is None else tuple(dict.fromkeys((own, *arms.tier.policies)))


def _check_policies(plan: Plan, offered: tuple[str, ...]) -> None:
    for arm in Arm:
        name, place = plan.settings(arm).eviction_policy, f"plan.{arm}.eviction_policy"
        if name is not None and name not in offered:
            raise BadRequest(f"{place}: got {name[:40]!r}, expected of {', '.join(offered)}", place)


def _response(arms: LiveArms) -> Response:
    """Nothing is awaited in between, so all of it is of one moment."""
    return _fresh(arms_json(arms.space, arms.standing(), arms.counted()))


def _fresh(body: bytes) -> Response:
    return Response(body, 200, {"cache-control": "no-store"}, JSON)
