"""The seam of a lifetime: what is known of an entry and of its surroundings, and how long it may be served.

The base is what the tier is set to (`ttl_seconds`, so what a tuner chose). A schedule says by which share of it an
entry lives shorter or longer; the operator's bounds hold whatever it says. tests/contracts/lifetime_contract.py is what
every schedule has to pass. What is not known is None and changes nothing: of an entry of which nothing is known every
schedule says the base.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from caches.errors import InputError


class Verdict(StrEnum):
    """What somebody says of an answer that they got."""

    USEFUL = "useful"
    WRONG = "wrong"
    STALE = "stale"


@dataclass(frozen=True)
class EntryFacts:
    """written_seconds: Unix time. base_ttl_seconds: of its tier; may be endless. tokens: of the answer. mean_logprob:
    of its tokens, natural logarithm, 0 at most. entropy_bits: mean entropy of the distributions that its tokens were
    drawn from. temperature, top_p: as the request states them. tags: of the request that stored it. feedback: the
    latest verdicts, oldest first."""

    written_seconds: float
    base_ttl_seconds: float
    tokens: int | None = None
    mean_logprob: float | None = None
    entropy_bits: float | None = None
    temperature: float | None = None
    top_p: float | None = None
    tags: frozenset[str] = field(default_factory=frozenset)
    feedback: tuple[Verdict, ...] = ()


@dataclass(frozen=True)
class Context:
    """qps, error_rate: of the namespace, over the latest whole period; error_rate is a share of the calls of the
    backend. change_rate: how often an answer of the namespace changes, per second: the upper end of an interval.
    longest_age_seconds: the oldest answer that this was measured on."""

    now_seconds: float
    qps: float | None = None
    error_rate: float | None = None
    change_rate: float | None = None
    longest_age_seconds: float | None = None


class Schedule(Protocol):
    """A rule for lifetimes. A pure function: equal facts, equal lifetimes."""

    def lifetime(self, entry: EntryFacts, context: Context) -> float:
        """Seconds from the write, above 0; endless only where the base is."""


@dataclass(frozen=True)
class Bounds:
    """The operator's, of every lifetime: as shares of the base and in seconds. Where they contradict each other the
    shorter lifetime holds."""

    shortest_share: float = 0.1
    longest_share: float = 2.0
    longest_seconds: float = math.inf

    def __post_init__(self) -> None:
        if not 0.0 < self.shortest_share <= 1.0:
            raise InputError(f"shortest_share: got {self.shortest_share}, expected above 0, up to 1")
        if not 1.0 <= self.longest_share < math.inf:
            raise InputError(f"longest_share: got {self.longest_share}, expected 1 or more")
        if not self.longest_seconds > 0.0:
            raise InputError(f"longest_seconds: got {self.longest_seconds}, expected above 0")

    def within(self, seconds: float, base_ttl_seconds: float) -> float:
        """The nearest lifetime inside; one that is no number is the base."""
        wished = base_ttl_seconds if math.isnan(seconds) else seconds
        shared = max(wished, self.shortest_share * base_ttl_seconds)
        return min(shared, self.longest_share * base_ttl_seconds, self.longest_seconds)


@dataclass(frozen=True)
class Bounded:
    """A schedule within bounds; what the rest of the house uses."""

    schedule: Schedule
    bounds: Bounds = Bounds()

    def lifetime(self, entry: EntryFacts, context: Context, share: float = 1.0) -> float:
        """share: of what the schedule says, where something else shortens it too."""
        wished = share * self.schedule.lifetime(entry, context)
        return self.bounds.within(wished, entry.base_ttl_seconds)
