"""Eviction and admission policies as settings: what each parameter means, its default and where it comes from.

A use is a hit, or the response being taken in. Shares are in [0, 1]. docs/eviction.md has the formulas.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from caches.errors import InputError


@dataclass(frozen=True)
class Lru:
    """Least recently used."""


@dataclass(frozen=True)
class LruK:
    """The one whose k-th latest use is longest ago; before these, those with fewer uses, least recently used first.

    E. J. O'Neil, P. E. O'Neil, G. Weikum, The LRU-K page replacement algorithm for database disk buffering, SIGMOD
    1993. kept: uses are remembered of so many keys that left, as a share of the entries held.
    """

    k: int = 2
    kept: float = 1.0

    def __post_init__(self) -> None:
        _whole("k", self.k, 1, 8)
        _between("kept", self.kept, 0.0, 100.0)


@dataclass(frozen=True)
class Lfu:
    """The least frequently used, where a use counts for `decay` of itself after every decay_seconds.

    D. Lee et al., LRFU: a spectrum of policies that subsumes the least recently used and least frequently used
    policies, IEEE Transactions on Computers 50 (2001). decay = 1: plain counts.
    """

    decay: float = 0.95
    decay_seconds: float = 60.0

    def __post_init__(self) -> None:
        _above("decay", self.decay)
        _between("decay", self.decay, 0.0, 1.0)
        _above("decay_seconds", self.decay_seconds)


@dataclass(frozen=True)
class LfuLru:
    """The lowest frequency_weight x frequency + recency_weight x recency. Frequency: uses, at most `most_uses`, over
    most_uses. Recency: 0 for the least recently used entry, 1 for now, linear in uses of the cache between."""

    frequency_weight: float = 0.6
    recency_weight: float = 0.4
    most_uses: int = 16

    def __post_init__(self) -> None:
        _between("frequency_weight", self.frequency_weight, 0.0, 1e6)
        _between("recency_weight", self.recency_weight, 0.0, 1e6)
        _above("frequency_weight + recency_weight", self.frequency_weight + self.recency_weight)
        _whole("most_uses", self.most_uses, 1, 64)


@dataclass(frozen=True)
class Gdsf:
    """The lowest age + uses x cost / size; the age of the cache is the highest such figure of all that went. Cost: of a
    miss, in GPU seconds; 1 where nobody gives it.

    L. Cherkasova, Improving WWW proxies performance with greedy-dual-size-frequency caching policy, HP Laboratories
    HPL-98-69R1 (1998).
    """


@dataclass(frozen=True)
class S3Fifo:
    """Three queues: a small one for what is new, a main one for what was used there or came back, a ghost of names.

    J. Yang et al., FIFO queues are all you need for cache eviction, SOSP 2023. small, ghost: shares of the capacity.
    uses: hits in the small queue that bring an entry into the main one.
    """

    small: float = 0.1
    ghost: float = 0.9
    uses: int = 2

    def __post_init__(self) -> None:
        _between("small", self.small, 0.0, 1.0)
        _between("ghost", self.ghost, 0.0, 100.0)
        _whole("uses", self.uses, 1, 3)


@dataclass(frozen=True)
class Sieve:
    """One queue and a hand that passes over what was hit since it came by last.

    Y. Zhang et al., SIEVE is simpler than LRU: an efficient turn-key eviction algorithm for web caches, NSDI 2024.
    """


@dataclass(frozen=True)
class WTinyLfu:
    """A window for what is new; what leaves it must be asked for more often than what would leave the main part, which
    is a segmented LRU.

    G. Einziger, R. Friedman, B. Manes, TinyLFU: a highly efficient cache admission policy, ACM Transactions on Storage
    13 (2017). window: share of the capacity. protected: share of the main part. sample: as of TinyLfu.
    """

    window: float = 0.01
    protected: float = 0.8
    sample: float = 10.0

    def __post_init__(self) -> None:
        _between("window", self.window, 0.0, 1.0)
        _between("protected", self.protected, 0.0, 1.0)
        _between("sample", self.sample, 1.0, 1_000.0)


@dataclass(frozen=True)
class AdmitAll:
    """Whatever fits into the cache."""


@dataclass(frozen=True)
class SecondHit:
    """What was asked for `requests` times within window_seconds. remembered: keys at most; the least recently asked for
    are forgotten. As caches.admission says, with its source."""

    requests: int = 2
    window_seconds: float = 3_600.0
    remembered: int = 65_536

    def __post_init__(self) -> None:
        for name in ("requests", "remembered"):
            if getattr(self, name) < 1:
                raise InputError(f"{name}: got {getattr(self, name)}, expected 1 or more")
        _above("window_seconds", self.window_seconds)


@dataclass(frozen=True)
class TinyLfu:
    """In a full cache, what is asked for more often than the entry that would go first for it.

    As of WTinyLfu, with the frequencies in a sketch. sample: requests that count, per entry held; after so many all
    frequencies are halved.
    """

    sample: float = 10.0

    def __post_init__(self) -> None:
        _between("sample", self.sample, 1.0, 1_000.0)


@dataclass(frozen=True)
class CostAware:
    """In a full cache, what saves more per byte than the entry that would go first for it: frequency x cost / size,
    frequencies as of TinyLfu, cost as of Gdsf."""

    sample: float = 10.0

    def __post_init__(self) -> None:
        _between("sample", self.sample, 1.0, 1_000.0)


Eviction = Lru | LruK | Lfu | LfuLru | Gdsf | S3Fifo | Sieve | WTinyLfu
Admission = AdmitAll | SecondHit | TinyLfu | CostAware


def _above(name: str, value: float) -> None:
    if not value > 0:
        raise InputError(f"{name}: got {value}, expected above 0")


def _between(name: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:
        raise InputError(f"{name}: got {value}, expected {least:g} to {most:g}")


def _whole(name: str, value: Any, least: int, most: int) -> None:
    if not isinstance(value, int) or not least <= value <= most:
        raise InputError(f"{name}: got {value}, expected a whole number from {least} to {most}")
