"""From settings to what a live cache asks."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TypeVar

from caches.admission import SecondHitCounts
from caches.policies.catalog import EVICTIONS
from caches.policies.live.frequency import GdsfOrder, LfuLruOrder, LfuOrder
from caches.policies.live.judge import AskedBefore, Judge, MoreOften, WorthMore
from caches.policies.live.order import Order
from caches.policies.live.queues import S3FifoOrder, SieveOrder
from caches.policies.live.recency import LruKOrder
from caches.policies.live.segments import WTinyLfuOrder
from caches.policies.live.sketch import Sketch
from caches.policies.settings import (
    Admission,
    CostAware,
    Eviction,
    Gdsf,
    Lfu,
    LfuLru,
    LruK,
    S3Fifo,
    SecondHit,
    Sieve,
    TinyLfu,
    WTinyLfu,
)

K = TypeVar("K", bound=Hashable)


def name_of(eviction: Eviction) -> str | None:
    """None of one with parameters of its own."""
    return next((name for name, one in EVICTIONS.items() if one == eviction), None)


def shared_sketch_of(admission: Admission) -> Sketch | None:
    """That of a rule of admission which goes by frequencies; an eviction policy goes by the same, and what size of
    sample it wishes for does not count."""
    return Sketch(admission.sample) if isinstance(admission, TinyLfu | CostAware) else None


def order_of(eviction: Eviction, shared: Sketch | None) -> tuple[Order[K] | None, Sketch | None]:
    """A new order, and the sketch that it goes by: the shared one where there is one, or else a new one. No order for
    least recently used: the cache knows it."""
    match eviction:
        case LruK():
            return LruKOrder(eviction), None
        case Lfu():
            return LfuOrder(eviction), None
        case LfuLru():
            return LfuLruOrder(eviction), None
        case Gdsf():
            return GdsfOrder(), None
        case S3Fifo():
            return S3FifoOrder(eviction), None
        case Sieve():
            return SieveOrder(), None
        case WTinyLfu():
            sketch = Sketch(eviction.sample) if shared is None else shared
            return WTinyLfuOrder(eviction, sketch), sketch
    return None, None


def judge_of(admission: Admission, shared: Sketch | None) -> Judge[K] | None:
    """shared: from `shared_sketch_of`. None where all is taken in."""
    match admission:
        case SecondHit():
            return AskedBefore(SecondHitCounts(admission))
        case TinyLfu():
            assert shared is not None
            return MoreOften(shared)
        case CostAware():
            assert shared is not None
            return WorthMore(shared)
    return None
