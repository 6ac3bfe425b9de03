"""The operator's floors and ceilings of a tier's settings, which nobody can cross."""

from __future__ import annotations

from caches.knobs import KnobSettings, KnobSpace


def within(settings: KnobSettings, space: KnobSpace) -> KnobSettings:
    """The nearest settings inside the ranges; the capacity in whole bytes."""
    values = zip(settings.as_array().tolist(), space.knobs, strict=True)
    size, ttl, warmup = (knob.within(value) for value, knob in values)
    return KnobSettings(float(int(size)), ttl, warmup)
