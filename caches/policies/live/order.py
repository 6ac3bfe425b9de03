"""The seam of a live eviction policy: it knows keys, sizes and uses, and says which entry goes first."""

from __future__ import annotations

from collections.abc import Hashable
from enum import Enum
from typing import Protocol, TypeVar

K = TypeVar("K", bound=Hashable)


class Standing(Enum):
    """How an entry is taken in. RETURNING: `came_back` said so. REWRITTEN: over itself, at once after it was taken
    out; it keeps the standing that its uses gave it."""

    NEW = 0
    RETURNING = 1
    REWRITTEN = 2


class Why(Enum):
    """Why an entry is taken out: for want of room, to be written again at once, or else (too old, deleted)."""

    EVICTED = 0
    REWRITTEN = 1
    GONE = 2


class Order(Protocol[K]):
    """One owner, no locks. The owner tells of every entry that it takes in or out, and makes room before it takes one
    in. capacity_bytes: what binds now; it may differ from call to call."""

    def used(self, key: K, capacity_bytes: int, now_seconds: float) -> None:
        """A hit on an entry that is held."""

    def came_back(self, key: K) -> bool:
        """Of a key that is about to be taken in: whether its name was remembered, which ends here. Called once, before
        room is made for it. Most policies remember none."""
        return False

    def taken_in(
        self, key: K, size_bytes: int, cost: float, standing: Standing, capacity_bytes: int, now_seconds: float
    ) -> None:
        """cost: of a miss, in GPU seconds."""

    def taken_out(self, key: K, why: Why, capacity_bytes: int) -> None:
        """An entry that was held is not any more."""

    def first_to_go(self, capacity_bytes: int, more_bytes: int) -> K:
        """The entry that makes room; there must be one. more_bytes: that are to be taken in. May rearrange what is
        held, and takes nothing out."""

    def keeps_out(self, key: K, size_bytes: int, cost: float, first: K) -> bool:
        """Whether the policy itself would rather not take in what is about to be than let that entry go for it. Most
        take in everything."""
        return False
