"""What became of warmed entries: asked for, or gone without."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from caches.keys.request_key import RequestKey
from caches.tiers.tier import Tier, TierError

AT_A_TIME = 200  # entries that are looked at before requests have their turn


@dataclass
class UseCounts:
    """warmed: entries, each time anew. hit: of these, asked for while they were there, counted once. useless: gone
    without. What is neither is still waiting."""

    warmed: int = 0
    hit: int = 0
    useless: int = 0


class WarmUses:
    """Of one tier."""

    def __init__(self) -> None:
        self.counts = UseCounts()
        self._waiting: dict[bytes, RequestKey] = {}
        self._hit: dict[bytes, RequestKey] = {}

    def __len__(self) -> int:
        """Entries that wait for their first hit."""
        return len(self._waiting)

    def warmed(self, key: RequestKey) -> None:
        if key.id in self._waiting:
            self.counts.useless += 1  # the one before was gone, or it would not have been warmed again
        self.counts.warmed += 1
        self._hit.pop(key.id, None)
        self._waiting[key.id] = key

    def knows(self, key: RequestKey) -> bool:
        """Whether it was warmed, and is not known to be gone."""
        return key.id in self._waiting or key.id in self._hit

    def asked(self, key: RequestKey, hit: bool) -> None:
        """For each request, warmed or not; takes well under a microsecond. hit: of the tier; a miss says that a warmed
        entry was gone."""
        if not self._waiting or self._waiting.pop(key.id, None) is None:
            return
        if hit:
            self.counts.hit += 1
            self._hit[key.id] = key
        else:
            self.counts.useless += 1

    def share_hit(self, keys: Iterable[RequestKey]) -> float | None:
        """Of entries that were warmed; None without any."""
        hit = [key.id in self._hit for key in keys]
        return sum(hit) / len(hit) if hit else None

    async def settle(self, tier: Tier, now_seconds: float) -> None:
        """Counts what is gone by now, and forgets what was of use and is."""
        for number, key in enumerate([*self._waiting.values(), *self._hit.values()], 1):
            try:
                held = await tier.holds(key, now_seconds)
            except TierError:
                return  # nothing is known of the rest either
            if not held:
                self._hit.pop(key.id, None)
                self.counts.useless += self._waiting.pop(key.id, None) is not None
            if number % AT_A_TIME == 0:
                await asyncio.sleep(0)
