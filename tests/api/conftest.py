"""The MLflow store of the agents' tests, for commands that register and judge policies."""

from __future__ import annotations

from tests.agents.conftest import first_use

__all__ = ["first_use"]
