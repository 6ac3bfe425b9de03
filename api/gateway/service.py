"""What a gateway is made of, before it is an application."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from api.access.audit import Audit
from api.gateway.access_log import LevelsOf
from api.gateway.freshening import FreshnessParts
from api.gateway.resilience import Resilience
from api.gateway.settings import GatewaySettings
from api.gateway.stages import Stages
from api.gateway.upstream import Client
from caches.clocks import Clocks
from caches.freshness.epoch_keeping import EpochKeeping
from caches.routing import Routing
from caches.semantic.checking import HitChecker
from caches.stack import Stack
from caches.streams.streams import Streams
from caches.tiers.split import SplitTier
from traces.access.log import AccessLog


@dataclass(frozen=True)
class GatewayService:
    """stack: of all namespaces, or the routing to those that they have. client: of the backend, as `upstream_client`
    makes it. clocks: the stack's. checker: of hits by meaning, where there are any. access_log: not started yet.
    levels_of: what it keeps of keys beside the one in use; None for nothing. tuned: the tier of the stack that is
    tuned, if any. streams: those that are kept while they come, which the stack has too; None for none. stages: for
    spans, which the stack tells them too; None for none. resilience: of a gateway that degrades; None for none. The
    application closes stack, client, log and the tracer of the stages when it shuts down."""

    settings: GatewaySettings
    stack: Stack | Routing
    client: Client
    clocks: Clocks = field(default_factory=Clocks)
    checker: HitChecker | None = None
    access_log: AccessLog | None = None
    levels_of: LevelsOf | None = None
    tuned: SplitTier | None = None
    streams: Streams | None = None
    stages: Stages | None = None
    resilience: Resilience | None = None
    freshness: FreshnessParts | None = None
    epochs: EpochKeeping | None = None
    audit: Audit | None = None

    @property
    def clock(self) -> Callable[[], float]:
        """Unix time."""
        return self.clocks.unix
