"""What a gateway is made of, before it is an application."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from api.gateway.settings import GatewaySettings
from api.gateway.upstream import Client
from caches.stack import Stack


@dataclass(frozen=True)
class GatewayService:
    """client: of the backend, as `upstream_client` makes it. clock: Unix time, the stack's. The application closes
    both stack and client when it shuts down."""

    settings: GatewaySettings
    stack: Stack
    client: Client
    clock: Callable[[], float] = time.time
