"""The knobs of a cache with their ranges and largest steps, in the memory of its control loop: so whoever reads the
ledger can say what binds the settings, without the cache."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import TypeAdapter, ValidationError

from caches.knobs import KnobSpace

LIMITS = "limits"  # the name in `ControlState.memory`
_SPACE = TypeAdapter(KnobSpace)


def limits_memory(space: KnobSpace) -> dict[str, object]:
    """What the control loop adds to its memory."""
    told: dict[str, object] = _SPACE.dump_python(space, mode="json")
    return {LIMITS: told}


def limits_of(memory: Mapping[str, object]) -> KnobSpace | None:
    """None where the memory does not say, or says what this version does not understand."""
    told = memory.get(LIMITS)
    try:
        return None if told is None else _SPACE.validate_python(told)
    except ValidationError:
        return None
