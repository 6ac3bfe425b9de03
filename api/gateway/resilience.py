"""What a gateway that degrades is made of, before it is an application."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from api.gateway.errors import Reply
from api.gateway.settings import GatewaySettings
from api.gateway.upstream import Client
from caches.guards.classes import PromptClasses
from caches.guards.health import HasCondition
from caches.guards.ladder import Ladder
from caches.guards.negatives import Negatives
from caches.guards.token_rate import TokenRate


@dataclass(frozen=True)
class Fallback:
    """Another model. label: what it is called in keys, which no request to the backend itself has, so that neither's
    answers are taken for the other's. client, settings: where it is; None: at the same backend. on: what it is of no
    use without."""

    model: str
    label: str
    client: Client | None
    settings: GatewaySettings | None
    on: tuple[HasCondition, ...] = ()


@dataclass(frozen=True)
class Resilience:
    """rate, negatives, fallback, template, patience_seconds: None where there is none. bytes_per_token, output_tokens:
    to estimate what a request takes. nodes: what can be depended on, by name."""

    ladder: Ladder
    classes: PromptClasses
    rate: TokenRate | None = None
    bytes_per_token: float = 4.0
    output_tokens: int = 512
    negatives: Negatives[Reply] | None = None
    fallback: Fallback | None = None
    template: str | None = None
    patience_seconds: float | None = None
    nodes: Mapping[str, HasCondition] = field(default_factory=dict)

    def forget(self) -> None:
        """After an invalidation: what was wrong may be right now."""
        if self.negatives is not None:
            self.negatives.clear()
