"""The operator's floors and ceilings of a tier's settings, which nobody can cross."""

from __future__ import annotations

from collections.abc import Collection

from caches.errors import InputError
from caches.knobs import KnobSettings, KnobSpace


def within(settings: KnobSettings, space: KnobSpace, policies: Collection[str] = ()) -> KnobSettings:
    """The nearest settings inside the ranges; the capacity in whole bytes.

    policies: names of the eviction policies that can be chosen; of another one this raises InputError. Without any, the
    policy cannot be changed: then none is taken, whichever was asked for.
    """
    policy = settings.eviction_policy if policies else None
    if policy is not None and policy not in policies:
        raise InputError(f"eviction_policy: got {policy!r}, expected of {', '.join(policies)}")
    values = zip(settings.as_array().tolist(), space.knobs, strict=True)
    size, ttl, warmup = (knob.within(value) for value, knob in values)
    return KnobSettings(float(int(size)), ttl, warmup, policy)
