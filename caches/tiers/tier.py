"""The seam of a tier of the live cache. tests/contracts/tier_contract.py is what every tier has to pass.

Time comes from the caller and is Unix time, since tiers of several processes share entries. A method that reaches over
the network raises TierError where that fails or takes too long, and has then changed nothing that a later call can see
half of. All other errors are bugs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from caches.errors import SetpointError
from caches.keys.request_key import RequestKey
from caches.knobs import KnobSettings
from caches.stats import CacheStats
from caches.tiers.selection import Selection


class TierError(SetpointError):
    """A tier cannot be reached, answers too late, or answers nonsense."""


@dataclass(frozen=True)
class Answer:
    """What is stored: the body to be served again, and what is known of it.

    written_seconds: when the backend gave it. ttl_seconds: a lifetime of its own, which can only shorten the tier's.
    prompt_tokens, output_tokens: of the usage block. compute_seconds: how long the backend took; what a hit saves.
    """

    body: bytes
    written_seconds: float
    ttl_seconds: float | None = None
    prompt_tokens: int = 0
    output_tokens: int = 0
    compute_seconds: float = 0.0

    @property
    def size_bytes(self) -> int:
        return len(self.body)

    def outlived(self, ttl_seconds: float, now_seconds: float) -> bool:
        """Whether it is too old under a tier's lifetime; age runs from the write, and a read never renews it."""
        own = ttl_seconds if self.ttl_seconds is None else min(self.ttl_seconds, ttl_seconds)
        return now_seconds - self.written_seconds >= own


@dataclass(frozen=True)
class Found:
    """A hit. similarity: of the question asked to the one that was answered, in [0, 1]; 1 for an equal request. tags:
    of the request that stored it, so that a copy in another tier has them too. ttl_seconds: the lifetime that holds for
    this entry, where the tier has several; None: the tier's."""

    answer: Answer
    similarity: float = 1.0
    tags: frozenset[str] = field(default_factory=frozenset)
    ttl_seconds: float | None = None

    def stored_by(self, key: RequestKey) -> RequestKey:
        """The equal request that stored it: this one, with its tags."""
        return key if key.tags == self.tags else replace(key, tags=self.tags)


class Tier(Protocol):
    """One place where answers are kept.

    Lifetime: an entry whose age has reached `ttl_seconds` (or its own lifetime, where that is shorter) is never served
    and is removed. Age runs from the write. A change of the lifetime counts at once for all entries, as in the shadow
    cache: a shorter one ends entries that are there, a longer one lets those live on that have not been removed yet.

    Capacity: `used_bytes` never exceeds what `settings` reports, whatever lifetimes entries have; the least recently
    touched go first, unless an eviction policy says otherwise. A smaller capacity, and another eviction policy where
    a tier can have one, is reached step by step: `apply` only states the aim, `tend` goes on towards it a bounded share
    at a time, and `settings` reports what binds now.
    """

    name: str

    async def lookup(self, key: RequestKey, now_seconds: float) -> Found | None:
        """The answer to this request, or None. Touches the entry; counts a hit or a miss."""

    async def batch_lookup(self, keys: Sequence[RequestKey], now_seconds: float) -> list[Found | None]:
        """As so many lookups, in order."""

    async def holds(self, key: RequestKey, now_seconds: float) -> bool:
        """Whether an equal request would hit now. Touches and counts nothing."""

    async def store(self, key: RequestKey, answer: Answer, now_seconds: float) -> bool:
        """Keeps an answer, over the one that is there. False where it is larger than the whole capacity (then nothing
        is kept for this request) or too old already (then nothing changes)."""

    async def warm(self, key: RequestKey, answer: Answer, now_seconds: float) -> bool:
        """As `store`, ahead of any request; counted as a warm-up when taken."""

    async def delete(self, key: RequestKey) -> bool:
        """Removes an entry; returns whether there was one. Counted."""

    async def clear(self, selection: Selection) -> int:
        """Removes all entries that are selected, by model and tags of the requests that stored them, and returns how
        many; each counts as deleted. In bounded steps: others are served between them, and what they store meanwhile
        may stay or go. Interrupted, it has removed a part, and can be called again."""

    async def count(self, selection: Selection) -> int:
        """How many entries `clear` would remove now. Touches and counts nothing. In bounded steps as well, so of a tier
        that changes meanwhile it is an estimate."""

    async def apply(self, settings: KnobSettings, now_seconds: float) -> KnobSettings:
        """Aims at these settings and returns what was taken: within the tier's floors and ceilings. The warm-up ratio
        is kept for whoever warms. An eviction policy by name is taken by a tier that can change its own (any other than
        those it offers raises InputError, and nothing changes); of all others what is taken has None for it."""

    async def settings(self) -> KnobSettings:
        """What binds now, read from where it binds. Of an eviction policy None where none was asked for, or where it
        cannot be changed."""

    async def tend(self, now_seconds: float) -> bool:
        """A step of housekeeping, to be called every second or so: removes what is too old, and goes on towards a
        smaller capacity or another eviction policy. Returns whether there is more to do."""

    async def stats(self) -> CacheStats:
        """Counters since this tier object began; `entries` and `used_bytes` of the store itself, so also what others
        keep there."""

    async def close(self) -> None:
        """Lets go of connections and files. What is stored stays where the tier keeps it."""
