"""The section of the gateway's settings about warming. How much is warmed says `warmup_ratio` of the top tier."""

from __future__ import annotations

from pydantic import BaseModel

from api.gateway.config_knobs import SECTION, seconds
from api.gateway.warming_settings import WarmingSettings
from caches.hot_keys import HotRule
from caches.warming import WarmRule
from envs.units import described

TOLD = WarmingSettings()  # its defaults


class WarmingConfig(BaseModel):
    """Filling the top tier ahead of requests, off their path, when its `warmup_ratio` is above 0."""

    model_config = SECTION

    every_seconds: float = seconds(TOLD.every_seconds, "From one warm-up to the next.")
    per_second: float = described(
        TOLD.rule.per_second, "Candidates that are gone through.", "1/s", gt=0, strict=True, allow_inf_nan=False
    )
    gate_seconds: float = seconds(TOLD.rule.gate_seconds, "From a stage (5, 20, 100 %) to the next.")
    least_used: float = described(
        TOLD.rule.least_used,
        "Of what a stage warmed, what has to be asked for before the next begins.",
        "share",
        ge=0,
        le=1,
        strict=True,
    )
    from_backend: bool = described(
        TOLD.from_backend,
        "Ask the backend for what no tier has, which costs its time; needs gateway.upstream_key_env.",
        "",
    )
    backend_calls: int = described(TOLD.rule.backend_calls, "Such calls at once.", "number", gt=0, strict=True)
    most_body_bytes: int = described(
        TOLD.most_body_bytes, "Bodies of requests that are kept in memory for them.", "bytes", gt=0, strict=True
    )
    busy_p99_seconds: float = seconds(TOLD.busy_p99_seconds, "Above this P99 of the gateway, warming waits.")
    busy_calls: int = described(
        TOLD.busy_calls, "Above so many backend calls on their way, too.", "number", ge=0, strict=True
    )
    half_life_seconds: float = seconds(TOLD.hot.half_life_seconds, "After which a request counts half.")
    most_keys: int = described(
        TOLD.hot.most, "Requests that are remembered, the most popular.", "number", gt=1, strict=True
    )
    imported_per_second: float = described(
        TOLD.imported_per_second, "Entries of a hot set.", "1/s", gt=0, strict=True, allow_inf_nan=False
    )


def warming_of(section: WarmingConfig) -> WarmingSettings:
    return WarmingSettings(
        every_seconds=section.every_seconds,
        rule=WarmRule(
            per_second=section.per_second,
            gate_seconds=section.gate_seconds,
            least_used=section.least_used,
            backend_calls=section.backend_calls,
        ),
        hot=HotRule(section.half_life_seconds, section.most_keys),
        from_backend=section.from_backend,
        most_body_bytes=section.most_body_bytes,
        busy_p99_seconds=section.busy_p99_seconds,
        busy_calls=section.busy_calls,
        imported_per_second=section.imported_per_second,
    )
