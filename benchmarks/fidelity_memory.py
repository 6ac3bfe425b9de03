"""Traffic through the tier in memory, and whether the shadow cache says of each request what the tier did."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context

import numpy as np

from benchmarks.fidelity_redis import Array, keys_of, shadow_hits
from caches.keys.request_key import RequestKey
from caches.knobs import Knob, KnobSpace
from caches.tiers.memory import MemoryTier
from caches.tiers.tier import Answer
from traces.trace import Trace

OVERHEAD_BYTES = 512
AT_A_TIME = 100_000  # requests as Python objects
WORKERS = 2


@dataclass(frozen=True)
class Compared:
    """differing: requests that hit in one and missed in the other."""

    capacity_bytes: int
    ttl_seconds: float
    hit_ratio: float
    shadow_hit_ratio: float
    differing: int


def compare(trace: Trace, cells: Sequence[tuple[int, float]]) -> list[Compared]:
    """cells: capacity in bytes and lifetime in seconds; shared out to two processes."""
    with ProcessPoolExecutor(WORKERS, get_context("fork")) as pool:
        parts = list(pool.map(partial(_compare, trace), [cells[start::WORKERS] for start in range(WORKERS)]))
    return [parts[place % WORKERS][place // WORKERS] for place in range(len(cells))]


def _compare(trace: Trace, cells: Sequence[tuple[int, float]]) -> list[Compared]:
    keys, entry_bytes, compared = keys_of(trace.num_keys), trace.size_bytes + OVERHEAD_BYTES, []
    for capacity, ttl in cells:
        ours = asyncio.run(tier_hits(trace, keys, capacity, ttl))
        shadow = shadow_hits(trace, trace.arrival_seconds, entry_bytes, capacity, ttl)
        compared.append(Compared(capacity, ttl, float(ours.mean()), float(shadow.mean()), int((ours != shadow).sum())))
    return compared


async def tier_hits(trace: Trace, keys: Sequence[RequestKey], capacity_bytes: int, ttl_seconds: float) -> Array:
    """Of each request, at the trace's own times; a miss stores a body of the request's size."""
    tier = MemoryTier(_space(capacity_bytes, ttl_seconds), entry_overhead_bytes=OVERHEAD_BYTES)
    hit, bodies = np.zeros(len(trace), bool), [bytes(size) for size in range(int(trace.size_bytes.max()) + 1)]
    for first in range(0, len(trace), AT_A_TIME):
        part = slice(first, first + AT_A_TIME)
        columns = (column[part].tolist() for column in (trace.key, trace.size_bytes, trace.arrival_seconds))
        for place, (number, size, now) in enumerate(zip(*columns, strict=True), first):
            if await tier.lookup(keys[number], now) is not None:
                hit[place] = True
            else:
                await tier.store(keys[number], Answer(bodies[size], now), now)
    return hit


def _space(capacity_bytes: int, ttl_seconds: float) -> KnobSpace:
    size, ttl = float(capacity_bytes), ttl_seconds
    return KnobSpace(
        Knob("cache_size", "bytes", size, 2.0 * size, size, 1.0, "log"),
        Knob("ttl_seconds", "seconds", ttl, 2.0 * ttl, ttl, 1.0, "log"),
        Knob("warmup_ratio", "share", 0.0, 1.0, 0.0, 1.0, "linear"),
    )
