"""The rules of admission of a live cache."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from caches.admission import SecondHitCounts
from caches.policies.live.sketch import Sketch

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True)
class Offer(Generic[K]):
    """What would be taken in, or would go for it. cost: of a miss, in GPU seconds."""

    key: K
    size_bytes: int
    cost: float


class Judge(Protocol[K]):
    """One owner, no locks. Frequencies of a sketch are counted by the owner."""

    def asked(self, key: K, now_seconds: float) -> None:
        """One more request for a key, whether it hits or misses."""

    def admits(self, key: K, now_seconds: float) -> bool:
        """Whether a response may be taken in, as far as that does not depend on what would go."""

    def better(self, comes: Offer[K], goes: Offer[K]) -> bool:
        """Whether it may although that entry would be the first to go for it."""


class MoreOften(Generic[K]):
    """TinyLfu."""

    def __init__(self, sketch: Sketch) -> None:
        self.sketch = sketch

    def asked(self, key: K, now_seconds: float) -> None:
        pass

    def admits(self, key: K, now_seconds: float) -> bool:
        return True

    def better(self, comes: Offer[K], goes: Offer[K]) -> bool:
        return self.sketch.frequency(comes.key) > self.sketch.frequency(goes.key)


class WorthMore(MoreOften[K]):
    """CostAware."""

    def better(self, comes: Offer[K], goes: Offer[K]) -> bool:
        return self._per_byte(comes) > self._per_byte(goes)

    def _per_byte(self, offer: Offer[K]) -> float:
        return self.sketch.frequency(offer.key) * offer.cost / max(offer.size_bytes, 1)


class AskedBefore(Generic[K]):
    """SecondHit."""

    def __init__(self, counts: SecondHitCounts[K]) -> None:
        self._counts = counts

    def asked(self, key: K, now_seconds: float) -> None:
        self._counts.asked(key, now_seconds)

    def admits(self, key: K, now_seconds: float) -> bool:
        return self._counts.admits(key, now_seconds)

    def better(self, comes: Offer[K], goes: Offer[K]) -> bool:
        return True
