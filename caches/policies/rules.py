"""Policies as numbers, for compiled functions: one type whatever the policy is, so one compilation."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from caches.policies.settings import (
    Admission,
    AdmitAll,
    CostAware,
    Eviction,
    Gdsf,
    Lfu,
    LfuLru,
    Lru,
    LruK,
    S3Fifo,
    SecondHit,
    Sieve,
    TinyLfu,
    WTinyLfu,
)

FloatArray = NDArray[np.float64]

# Rules.eviction and Rules.admission
LRU, LRU_K, LFU, LFU_LRU, GDSF, S3_FIFO, SIEVE, W_TINYLFU = range(8)
ALL, SECOND_HIT, TINYLFU, COST_AWARE = range(4)
NUMBERS = {Lru: LRU, LruK: LRU_K, Lfu: LFU, LfuLru: LFU_LRU, Gdsf: GDSF, S3Fifo: S3_FIFO, Sieve: SIEVE}
NUMBERS |= {WTinyLfu: W_TINYLFU, AdmitAll: ALL, SecondHit: SECOND_HIT, TinyLfu: TINYLFU, CostAware: COST_AWARE}


class Rules(NamedTuple):
    """An eviction and an admission policy. Of the numbers only those of the two count; see caches.policies.settings.

    eviction, admission: of the constants above. k, kept: LruK. fading: Lfu, what a use loses a second, as the logarithm
    of its weight. frequency_weight, recency_weight, most_uses: LfuLru. small, ghost, uses: S3Fifo. window, protected:
    WTinyLfu. sample: WTinyLfu, TinyLfu, CostAware. requests, window_seconds, remembered: SecondHit.
    """

    eviction: int
    admission: int
    k: int = 2
    kept: float = 1.0
    fading: float = 0.0
    frequency_weight: float = 0.6
    recency_weight: float = 0.4
    most_uses: int = 16
    small: float = 0.1
    ghost: float = 0.9
    uses: int = 2
    window: float = 0.01
    protected: float = 0.8
    sample: float = 10.0
    requests: int = 2
    window_seconds: float = 3_600.0
    remembered: int = 65_536


@dataclass(frozen=True)
class Needs:
    """What a cache under some rules has to keep beside its entries, see caches.policies.state. circles: queues of
    entries and names. history: uses of each key. asked: requests of each key."""

    circles: int
    heap: bool
    numbered: bool
    weighed: bool
    history: int
    sketch: bool
    prices: bool
    asked: int


def fading_of(policy: Lfu) -> float:
    """What a use loses a second, as the natural logarithm of its weight."""
    return -math.log(policy.decay) / policy.decay_seconds


def rules_of(eviction: Eviction, admission: Admission = AdmitAll()) -> Rules:
    """Numbers as floats and ints exactly, so that Numba sees one type."""
    rules = Rules(NUMBERS[type(eviction)], NUMBERS[type(admission)])
    for policy in (eviction, admission):
        told = {"fading": fading_of(policy)} if isinstance(policy, Lfu) else dict(vars(policy))
        rules = rules._replace(**{name: type(getattr(rules, name))(value) for name, value in told.items()})
    return rules


def rules_from(numbers: Iterable[float]) -> Rules:
    """Rules that were written down as plain numbers, in their order."""
    named = zip(Rules(LRU, ALL)._asdict().items(), numbers, strict=True)
    return Rules(**{name: type(default)(number) for (name, default), number in named})


def needs_of(*rules: Rules) -> Needs:
    """Of a cache that may come under any of these."""
    each = [_needs_of(one) for one in rules]
    return Needs(**{field.name: max(getattr(one, field.name) for one in each) for field in fields(Needs)})


def _needs_of(rules: Rules) -> Needs:
    circles = {LRU: 1, LRU_K: 1, LFU_LRU: rules.most_uses, S3_FIFO: 3, SIEVE: 1, W_TINYLFU: 3}.get(rules.eviction, 0)
    heap = rules.eviction in (LRU_K, LFU, GDSF)
    return Needs(
        circles=circles,
        heap=heap,
        numbered=heap or rules.eviction == LFU_LRU,
        weighed=rules.eviction in (LFU, GDSF),
        history=rules.k if rules.eviction == LRU_K else 0,
        sketch=rules.eviction == W_TINYLFU or rules.admission in (TINYLFU, COST_AWARE),
        prices=rules.eviction == GDSF or rules.admission == COST_AWARE,
        asked=rules.requests if rules.admission == SECOND_HIT else 0,
    )


def rules_table(rules: Iterable[Rules]) -> FloatArray:
    """A row of plain numbers for each, (rules, numbers), from which `rules_at` makes them again."""
    return np.array([[float(number) for number in one] for one in rules])


@njit(cache=True)
def rules_at(table: FloatArray, row: int) -> Rules:
    """Those of a row of `rules_table`."""
    own = table[row]
    return Rules(
        int(own[0]),
        int(own[1]),
        int(own[2]),
        own[3],
        own[4],
        own[5],
        own[6],
        int(own[7]),
        own[8],
        own[9],
        int(own[10]),
        own[11],
        own[12],
        own[13],
        int(own[14]),
        own[15],
        int(own[16]),
    )
