"""The live cache that the settings name."""

from __future__ import annotations

from collections.abc import Mapping

from tuner.config import TunerConfig
from tuner.config_loader import secret
from tuner.live.gateway_cache import GatewayCache


def live_cache(config: TunerConfig, environ: Mapping[str, str]) -> GatewayCache:
    """Nothing is connected yet. Raises InputError."""
    told = config.control
    return GatewayCache(
        told.gateway, secret(told.key_env, "control.key_env", environ), told.cache, told.timeout_seconds
    )
