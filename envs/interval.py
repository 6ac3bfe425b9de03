"""One control interval: where it begins and ends in the trace, and what is known about it when it is over."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caches.errors import InputError
from envs.reward import CAUSES, Constraints

Array = NDArray[Any]


@dataclass(frozen=True)
class Window:
    """Statistics of one interval. None: not known, because nothing was counted or a signal was missing.

    Ratios are in [0, 1] except utilisation (slot seconds asked for over those there are), which exceeds 1 under
    overload. stale_answers is an expectation. Costs are USD.
    """

    requests: float | None
    hits: float | None
    hit_ratio: float | None
    byte_hit_ratio: float | None
    token_hit_ratio: float | None
    stale_answers: float | None
    stale_ratio: float | None
    warmups: float | None
    expirations: float | None
    evictions: float | None
    used_bytes: float | None
    fill_ratio: float | None
    p50_ttft_seconds: float | None
    p95_ttft_seconds: float | None
    p99_ttft_seconds: float | None
    p50_latency_seconds: float | None
    p95_latency_seconds: float | None
    p99_latency_seconds: float | None
    mean_wait_seconds: float | None
    utilisation: float | None
    vram_ratio: float | None
    slow_requests: float | None
    compute_usd: float | None
    warmup_usd: float | None
    memory_usd: float | None
    staleness_usd: float | None
    slow_usd: float | None

    @staticmethod
    def of_row(row: Array) -> Window:
        """From a row of the kernels (shape (STATS,), NaN for what is not known)."""
        return Window(*(None if np.isnan(value) else float(value) for value in row))


NAMES = tuple(field.name for field in fields(Window))
STATS = len(NAMES)
COLUMN = {name: index for index, name in enumerate(NAMES)}
COSTS = slice(COLUMN["compute_usd"], COLUMN["compute_usd"] + len(CAUSES))


def column(rows: Array, name: str) -> Array:
    """One statistic of many rows, shape rows.shape[:-1]."""
    return np.asarray(rows[..., COLUMN[name]])


def total_usd(rows: Array) -> Array:
    """Cost over all causes, shape rows.shape[:-1]."""
    return np.asarray(rows[..., COSTS].sum(axis=-1))


def violations(rows: Array, constraints: Constraints) -> dict[str, NDArray[np.bool_]]:
    """By constraint, which intervals broke it; one without data broke none."""
    return {
        "p99_ttft": column(rows, "p99_ttft_seconds") > constraints.p99_ttft_seconds,
        "stale_ratio": column(rows, "stale_ratio") > constraints.stale_ratio,
    }


def unsafe(rows: Array, constraints: Constraints) -> NDArray[np.bool_]:
    """Which intervals broke any constraint, shape rows.shape[:-1]."""
    return np.asarray(np.any(list(violations(rows, constraints).values()), axis=0))


@dataclass(frozen=True)
class Timeline:
    """Equal intervals over a trace. edges: int64, shape (len + 1,): the first request of each, and the end.

    Time left over at the end that does not fill an interval belongs to none.
    """

    edges: Array
    start_seconds: float
    interval_seconds: float

    def __len__(self) -> int:
        return len(self.edges) - 1

    def begin(self, index: int) -> float:
        """When an interval begins, in trace seconds."""
        return self.start_seconds + index * self.interval_seconds

    def split(self, train: float, validation: float) -> tuple[range, range, range]:
        """Training, validation and test intervals, in order of time, disjoint, by share of intervals."""
        first, second = round(train * len(self)), round((train + validation) * len(self))
        parts = range(first), range(first, second), range(second, len(self))
        if not all(len(part) for part in parts):
            sizes = [len(part) for part in parts]
            raise InputError(
                f"split {train}/{validation}: got {sizes} of {len(self)} intervals for training, validation and test, "
                "expected at least one each (shorten interval_seconds)"
            )
        return parts


def timeline_of(arrival_seconds: Array, interval_seconds: float) -> Timeline:
    """InputError when the trace is shorter than two intervals."""
    if not interval_seconds > 0:
        raise InputError(f"interval_seconds: got {interval_seconds}, expected above 0")
    start = float(arrival_seconds[0])
    count = int((float(arrival_seconds[-1]) - start) / interval_seconds)
    if count < 2:
        raise InputError(
            f"interval_seconds: got {interval_seconds}, expected at most half the trace's span of "
            f"{float(arrival_seconds[-1]) - start:.3g} s"
        )
    times = start + interval_seconds * np.arange(count + 1)
    return Timeline(np.searchsorted(arrival_seconds, times).astype(np.int64), start, interval_seconds)
