"""What a cache counts. Counters only grow; ratios are derived, and are None where nothing was counted."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Expiry(IntEnum):
    """What an entry's age is measured from. A hit renews the age only under SINCE_TOUCH."""

    SINCE_WRITE = 0
    SINCE_TOUCH = 1


@dataclass(frozen=True)
class CacheStats:
    """Counters since the cache began, plus what it holds now (`entries`, `used_bytes`).

    hits + misses = lookups. An expiration is an entry removed because of its age, an eviction one removed for
    space, a refusal a response larger than the whole cache. A warm-up is an entry fetched ahead of any request;
    `writes` and `deletes` count the operations asked for, whether or not an entry was there.
    """

    hits: int = 0
    misses: int = 0
    hit_bytes: int = 0
    miss_bytes: int = 0
    expirations: int = 0
    evictions: int = 0
    refusals: int = 0
    warmups: int = 0
    writes: int = 0
    deletes: int = 0
    entries: int = 0
    used_bytes: int = 0

    @property
    def requests(self) -> int:
        return self.hits + self.misses

    @property
    def hit_ratio(self) -> float | None:
        """In [0, 1]; None without requests."""
        return self.hits / self.requests if self.requests else None

    @property
    def byte_hit_ratio(self) -> float | None:
        """In [0, 1]; None without requested bytes."""
        requested = self.hit_bytes + self.miss_bytes
        return self.hit_bytes / requested if requested else None


@dataclass(frozen=True)
class PrefixStats:
    """Counters of a prefix cache since it began, all in blocks, and what it holds now (`upper_blocks`, `lower_blocks`).

    upper_hits + lower_hits + misses = blocks asked for. An expiration or an eviction leaves the upper tier for the
    lower one, a drop leaves the lower one, a refusal found everything in the upper tier in use. A warm-up is a block
    copied up ahead of any request.
    """

    upper_hits: int = 0
    lower_hits: int = 0
    misses: int = 0
    expirations: int = 0
    evictions: int = 0
    refusals: int = 0
    warmups: int = 0
    drops: int = 0
    upper_blocks: int = 0
    lower_blocks: int = 0

    @property
    def hits(self) -> int:
        return self.upper_hits + self.lower_hits

    @property
    def hit_ratio(self) -> float | None:
        """Share of the blocks asked for; None without any."""
        return self.hits / (self.hits + self.misses) if self.hits + self.misses else None
