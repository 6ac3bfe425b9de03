"""Units: how many bytes a GiB has, and settings that say what they are counted in."""

from __future__ import annotations

from typing import Any

from pydantic import Field

GIB = float(2**30)


def described(default: Any, help: str, unit: str, **limits: Any) -> Any:
    """A field of a pydantic model with its help and unit, which docs/configuration.md shows."""
    return Field(default, description=help, json_schema_extra={"unit": unit}, **limits)
