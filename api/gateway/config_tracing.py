"""The section of the gateway's settings about spans of requests."""

from __future__ import annotations

from pydantic import BaseModel

from api.gateway.config_knobs import SECTION
from envs.units import described


class TracingConfig(BaseModel):
    """OpenTelemetry spans of a request's path: key, tiers, backend; hashes, never text. Off without an endpoint."""

    model_config = SECTION

    endpoint: str | None = described(
        None,
        "URL that takes OTLP over HTTP, such as http://127.0.0.1:4318/v1/traces; not set: no spans.",
        "URL",
        repr=False,
        pattern="^https?://",
    )
    sample_ratio: float = described(
        0.01, "Share of the requests whose spans are sent, where the client has not decided.", "share", ge=0, le=1
    )
    objective_ms: float = described(
        1_000.0, "What a request should take from end to end; each stage has a part of it.", "ms", gt=0
    )
    service_name: str = described("setpoint-gateway", "What the spans call this gateway.", "name", min_length=1)
