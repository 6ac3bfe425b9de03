"""The registry that the settings name, and policies as they are named on the command line."""

from __future__ import annotations

from pathlib import Path

from agents.registry import PolicyVersion, Registry
from caches.errors import NotFound
from tuner.config import TunerConfig


def open_registry(config: TunerConfig, directory: Path) -> Registry:
    """directory: where a relative SQLite path starts, the working directory."""
    tracking = config.tracking
    return Registry(tracking.resolved_uri(directory), tracking.experiment, tracking.model)


def parse_policy(text: str) -> int | str:
    """ "3" is version 3, anything else an alias."""
    return int(text) if text.isdecimal() else text


def find_version(registry: Registry, policy: str) -> PolicyVersion:
    """By version or alias. Raises NotFound, saying which commands help."""
    try:
        return registry.version(parse_policy(policy))
    except NotFound as error:
        raise NotFound(f"{error}; `setpoint train` registers policies, `setpoint policies` lists them") from error
