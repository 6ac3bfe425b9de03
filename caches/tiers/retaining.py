"""A tier that keeps answers for longer than its lifetime says, for schedules that may let some of them live longer.

To whoever sets and reads it, `ttl_seconds` is what it was: the base of every lifetime. The tier inside holds what it
gets for `retention` times as long, and finds it for as long, since it knows nothing of schedules. So only a stack with
a Freshness may stand above it, which says for each hit how long it may be served. What is too old for that and still
there counts as a hit of the tier, takes room until it is overwritten, evicted or ended, and is served to nobody.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from caches.errors import InputError
from caches.knobs import KnobSettings, KnobSpace
from caches.tiers.tier import Tier
from caches.tiers.wrapping import WrappingTier


def retained(make: Callable[[KnobSpace], Tier], space: KnobSpace, retention: float) -> Tier:
    """A tier with this space as others see it. Without a retention it is what `make` makes."""
    return make(space) if retention == 1.0 else RetainingTier(make(_longer_space(space, retention)), retention)


def inside(tier: Tier) -> Tier:
    """The tier itself, where it stands in one that retains."""
    return tier.kept if isinstance(tier, RetainingTier) else tier


class RetainingTier(WrappingTier):
    """kept: made for lifetimes that are `retention` times as long."""

    def __init__(self, kept: Tier, retention: float) -> None:
        if not retention >= 1.0:
            raise InputError(f"retention: got {retention}, expected 1 or more")
        super().__init__(kept)
        self.retention = retention

    @property
    def kept(self) -> Tier:
        """For whoever has to begin or end it in its own way."""
        return self._kept

    async def apply(self, settings: KnobSettings, now_seconds: float) -> KnobSettings:
        return self._shorter(await self._kept.apply(_longer(settings, self.retention), now_seconds))

    async def settings(self) -> KnobSettings:
        return self._shorter(await self._kept.settings())

    def _shorter(self, settings: KnobSettings) -> KnobSettings:
        return replace(settings, ttl_seconds=settings.ttl_seconds / self.retention)


def _longer(settings: KnobSettings, retention: float) -> KnobSettings:
    return replace(settings, ttl_seconds=settings.ttl_seconds * retention)


def _longer_space(space: KnobSpace, retention: float) -> KnobSpace:
    ttl = space.ttl_seconds
    longer = replace(ttl, low=ttl.low * retention, high=ttl.high * retention, default=ttl.default * retention)
    return replace(space, ttl_seconds=longer)
