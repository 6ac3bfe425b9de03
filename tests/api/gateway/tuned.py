"""Gateways whose tier in memory is tuned, for the tests of its arms."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from api.gateway.app import create_gateway
from api.gateway.service import GatewayService
from api.gateway.settings import GatewaySettings
from api.gateway.upstream import upstream_client
from caches.keys.by_name import ByName
from caches.keys.fields import Endpoint
from caches.keys.fingerprint import request_key
from caches.keys.request_key import Partition
from caches.place import Place
from caches.routing import Routing
from caches.stack import Stack, StackRules
from caches.target import Arm, Split
from caches.tiers.split import SplitTier
from tests.api.gateway.conftest import SPACE, chat, send, serving
from tuner.router import assign, assigner

ARMS = "/v1/cache/arms"
HALVES = {"salt": "salt", "treatment": 0.5}
DEFAULT = {"cache_size": 1e7, "ttl_seconds": 3600.0, "warmup_ratio": 0.0}
NOTHING_DUE = StackRules(ttl_jitter=0.0, refresh_beta=0.0)
QUIET = "[tiers.disk]\nenabled = false\n[tiers.semantic]\nenabled = false\n"  # in a settings file


@dataclass
class Tuned:
    address: str
    tier: SplitTier

    def put(self, **changes: Any) -> httpx.Response:
        wish = {"plan": {"split": HALVES, "control": DEFAULT, "treatment": DEFAULT}, "fence": 1} | changes
        return send("PUT", self.address + ARMS, json=wish)

    def told(self) -> Any:
        return send("GET", self.address + ARMS).json()

    def sum_of(self, name: str) -> int:
        return sum(arm[name] for arm in self.told()["arms"].values())


@contextmanager
def tuned(
    upstream: str,
    rules: StackRules = NOTHING_DUE,
    below: Place | None = None,
    **settings: Any,
) -> Iterator[Tuned]:
    """below: a tier that the namespace "other" has alone, and others under the tuned one."""
    told, tier = GatewaySettings(upstream, **settings), SplitTier(SPACE, assigner)
    places = [Place(tier), *([] if below is None else [below])]
    stack: Stack | Routing = Stack(places, rules)
    if below is not None:
        stack = Routing(ByName({"other": Stack([below], rules)}, stack))
    service = GatewayService(told, stack, upstream_client(told), tuned=tier)
    with serving(create_gateway(service), "on") as address:
        yield Tuned(address, tier)


def arm_of(content: str, split: Split = Split("salt", 0.5)) -> Arm:
    return assign(request_key(Endpoint.CHAT, chat(content), Partition()).id, split)


def questions(arm: Arm, count: int) -> list[str]:
    return [text for text in (f"question {number}" for number in range(200)) if arm_of(text) is arm][:count]
