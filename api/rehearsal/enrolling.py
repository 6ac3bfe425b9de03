"""A registered policy as the challenger of a rehearsal, in a model of its own, so that the real aliases stay."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from agents.registry import Registry


def enrol(registry: Registry, version: int, rehearsal: Registry) -> int:
    """Its version there; what was tried there before is out of office. Raises NotFound for an unknown version."""
    bundle = registry.load(version)
    with TemporaryDirectory() as scratch:
        bundle.save(Path(scratch) / "policy")
        with rehearsal.start_run("rehearsal", {"model": registry.model_name, "version": version}) as run:
            number = rehearsal.register(Path(scratch) / "policy", run, {})
    rehearsal.forget_aliases()
    rehearsal.set_challenger(number)
    return number
