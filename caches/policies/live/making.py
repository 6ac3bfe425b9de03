"""From settings to what a live cache asks."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TypeVar

from caches.admission import SecondHitCounts
from caches.policies.live.frequency import GdsfOrder, LfuLruOrder, LfuOrder
from caches.policies.live.judge import AskedBefore, Judge, MoreOften, Sketching, WorthMore
from caches.policies.live.order import Order
from caches.policies.live.queues import S3FifoOrder, SieveOrder
from caches.policies.live.recency import LruKOrder, LruOrder
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


def sketch_of(eviction: Eviction, admission: Admission) -> Sketch | None:
    """One for both; where both say how large a sample it takes, the rule of admission does."""
    if isinstance(admission, TinyLfu | CostAware):
        return Sketch(admission.sample)
    return Sketch(eviction.sample) if isinstance(eviction, WTinyLfu) else None


def order_of(eviction: Eviction, sketch: Sketch | None) -> Order[K]:
    """sketch: from `sketch_of`."""
    match eviction:
        case LruK():
            return LruKOrder(eviction)
        case Lfu():
            return LfuOrder(eviction)
        case LfuLru():
            return LfuLruOrder(eviction)
        case Gdsf():
            return GdsfOrder()
        case S3Fifo():
            return S3FifoOrder(eviction)
        case Sieve():
            return SieveOrder()
        case WTinyLfu():
            assert sketch is not None
            return WTinyLfuOrder(eviction, sketch)
    return LruOrder()


def judge_of(admission: Admission, sketch: Sketch | None) -> Judge[K] | None:
    """None where nobody wants to know of requests."""
    match admission:
        case SecondHit():
            return AskedBefore(SecondHitCounts(admission), sketch)
        case TinyLfu():
            assert sketch is not None
            return MoreOften(sketch)
        case CostAware():
            assert sketch is not None
            return WorthMore(sketch)
    return None if sketch is None else Sketching(sketch)
