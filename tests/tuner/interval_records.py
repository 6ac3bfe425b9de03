"""Intervals of two arms by hand, for the tests of experiments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from caches.knobs import KnobSettings
from caches.target import Arm, Histogram
from envs.reward import CAUSES
from tuner.records import IntervalRecord

SETTINGS = KnobSettings(1_000.0, 60.0, 0.0)
BOUNDS = (0.01, 0.1, 1.0)


def record(
    index: int, arm: Arm, usd: float, requests: float = 1_000.0, share: float = 0.5, **changes: Any
) -> IntervalRecord:
    """One whose whole cost is compute. counts: of latencies by BOUNDS, the same for both kinds of latency."""
    counts = changes.pop("counts", (600, 200, 190, 10))
    seen = None if counts is None else Histogram(BOUNDS, tuple(counts), 0.0)
    window: dict[str, float | None] = {f"{cause}_usd": 0.0 for cause in CAUSES}
    window |= {"requests": requests, "hits": 800.0, "errors": 0.0, "stale_answers": 8.0, "compute_usd": usd}
    window |= changes.pop("window", {})
    one = IntervalRecord(
        "cache", index, arm, float(index), index + 1.0, SETTINGS, share, window, ttft_seconds=seen, latency_seconds=seen
    )
    return one if not changes else _changed(one, changes)


def _changed(one: IntervalRecord, changes: dict[str, Any]) -> IntervalRecord:
    return IntervalRecord(**{**vars(one), **changes})


def arms(
    intervals: int,
    usd: Callable[[int, Arm], float],
    **changes: Any,
) -> tuple[list[IntervalRecord], list[IntervalRecord]]:
    """Both arms from interval 0 on."""
    both = [[record(index, arm, usd(index, arm), **changes) for index in range(intervals)] for arm in Arm]
    return both[0], both[1]


def noisy(seed: int, intervals: int, saving: float = 0.0, from_index: int = 0, luck: float = 0.0) -> Any:
    """Costs around 1 USD with 1 % noise of each arm's own; the treatment arm is cheaper from an index on, and more
    expensive by luck throughout."""
    noise = np.random.default_rng(seed).normal(0.0, 0.01, (intervals, 2))

    def usd(index: int, arm: Arm) -> float:
        ours = arm is Arm.TREATMENT
        factor = (1.0 - saving * (index >= from_index)) * (1.0 + luck) if ours else 1.0
        return float(factor * (1.0 + noise[index, int(ours)]))

    return usd


def outcomes(looks: Sequence[Any]) -> list[str]:
    return [str(look.outcome) for look in looks]
