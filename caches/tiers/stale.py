"""Answers past their lifetime, for when the backend cannot give a new one: a tier that no lookup ever hits.

It stands at the end of a stack, is stored into as all tiers are, and is invalidated with them; so it holds what the
tiers held, and longer. It wraps a tier of any kind, which keeps what it gets for `ttl_seconds` of its own: that is the
retention. The lifetime is what a stack's other tiers say. An answer may be served while

    age < lifetime + grace, where lifetime = min(its own, the stack's)

Source: `stale-if-error`, RFC 5861, section 4. What is served so is counted as a hit of this tier.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from caches.keys.request_key import RequestKey
from caches.tiers.tier import Answer, Found, Tier
from caches.tiers.wrapping import WrappingTier


class StaleTier(WrappingTier):
    """kept: where the answers lie, for nobody else. grace_seconds: after the end of a lifetime."""

    def __init__(self, kept: Tier, grace_seconds: float) -> None:
        super().__init__(kept)
        self.grace_seconds = grace_seconds

    async def retained(self, key: RequestKey, now_seconds: float) -> Found | None:
        """What is there for an equal request, however old."""
        found = await self._kept.lookup(key, now_seconds)
        if found is None or found.similarity < 1.0:
            return None
        answer = found.answer
        if answer.ttl_seconds is None:
            return found
        return replace(found, answer=replace(answer, ttl_seconds=answer.ttl_seconds - self.grace_seconds))

    def may_serve(
        self, answer: Answer, lifetime_seconds: float, now_seconds: float, grace_seconds: float | None = None
    ) -> bool:
        """lifetime_seconds: of the stack. grace_seconds: of this request, where it wants a shorter one."""
        grace = self.grace_seconds if grace_seconds is None else min(grace_seconds, self.grace_seconds)
        return not answer.outlived(lifetime_seconds, now_seconds - grace)

    async def lookup(self, key: RequestKey, now_seconds: float) -> Found | None:
        """Never a hit, and not counted: the tiers above were asked."""
        return None

    async def batch_lookup(self, keys: Sequence[RequestKey], now_seconds: float) -> list[Found | None]:
        return [None for _ in keys]

    async def holds(self, key: RequestKey, now_seconds: float) -> bool:
        """Whether an equal request would hit: never."""
        return False

    async def store(self, key: RequestKey, answer: Answer, now_seconds: float) -> bool:
        return await self._kept.store(key, self._longer(answer), now_seconds)

    async def warm(self, key: RequestKey, answer: Answer, now_seconds: float) -> bool:
        return await self._kept.warm(key, self._longer(answer), now_seconds)

    def _longer(self, answer: Answer) -> Answer:
        """A lifetime of its own ends later here, or it would be gone when it is needed."""
        own = answer.ttl_seconds
        return answer if own is None else replace(answer, ttl_seconds=own + self.grace_seconds)
