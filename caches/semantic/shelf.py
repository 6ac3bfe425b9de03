"""The entries of a semantic tier: a live in-process cache that says when an entry leaves, so that its vector does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from caches.in_process import InProcessCache
from caches.keys.request_key import RequestKey
from caches.semantic.guard_reading import Reading
from caches.semantic.index import Group
from caches.tiers.tier import Answer


@dataclass(frozen=True)
class Held:
    """An entry. group and reading: of its question; None where it has none that may be matched by meaning. form: of the
    question, by which twins are found; None where that is not asked for."""

    key: RequestKey
    answer: Answer
    group: Group | None
    reading: Reading | None
    form: str | None = None

    @property
    def stored_by(self) -> RequestKey:
        return self.key


class Shelf(InProcessCache[bytes, Held]):
    """By the ids of requests. on_leaving: called with each entry that leaves, for whatever reason."""

    def __init__(
        self, capacity_bytes: int, ttl_seconds: float, most_swept: int, on_leaving: Callable[[Held], None]
    ) -> None:
        super().__init__(capacity_bytes, ttl_seconds, most_swept=most_swept)
        self._on_leaving = on_leaving

    def fresh(self, name: bytes, now_seconds: float) -> Held | None:
        """What would be served now. Touches and counts nothing."""
        return None if self.could_miss(name, now_seconds, now_seconds) else self._by_touch[name].value

    def _remove(self, key: bytes, counted_as: str | None) -> None:
        held = self._by_touch[key].value
        super()._remove(key, counted_as)
        self._on_leaving(held)
