"""The live cache that the settings name."""

from __future__ import annotations

from collections.abc import Mapping

from caches.errors import InputError
from tuner.config import TunerConfig
from tuner.live.gateway_cache import GatewayCache


def live_cache(config: TunerConfig, environ: Mapping[str, str]) -> GatewayCache:
    """Nothing is connected yet. Raises InputError."""
    told = config.control
    return GatewayCache(
        told.gateway, secret(told.key_env, "control.key_env", environ), told.cache, told.timeout_seconds
    )


def secret(variable: str | None, key: str, environ: Mapping[str, str]) -> str | None:
    """What an environment variable holds; None where none is named. Raises InputError where it is not set."""
    if variable is None:
        return None
    found = environ.get(variable, "").strip()
    if not found:
        raise InputError(f"{key}: got {variable!r}, expected the name of a variable that is set")
    return found
