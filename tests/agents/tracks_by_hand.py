"""Tracks with numbers that can be checked in the head."""

from __future__ import annotations

import numpy as np

from agents.evaluation import Ground
from agents.results import Setting
from agents.tracks import Role, Track
from caches.knobs import KnobSettings
from envs.interval import COLUMN, STATS
from envs.reward import Constraints
from tests.agents.bundles import REFERENCE, SPACE

TRAFFIC = Setting(
    trace="by hand",
    trace_sha256="ab" * 32,
    source="a test",
    composed=True,
    assumptions=("Made up.",),
    interval_seconds=3600.0,
    training=(0, 60),
    validation=(60, 80),
    test=(80, 84),
    best_static={"cache_size": 2e8, "ttl_seconds": 600.0, "warmup_ratio": 0.25},
    default={"cache_size": 1e8, "ttl_seconds": 3600.0, "warmup_ratio": 0.0},
    prices={},
    constraints={},
    serving={},
    resamples=200,
    seed=0,
)
REQUESTS = np.array([100.0, 300.0, 500.0, 100.0])


def ground(intervals: int = 4) -> Ground:
    return Ground(SPACE, Constraints(p99_ttft_seconds=2.0, stale_ratio=0.05), np.ones(intervals))


def track(name: str, role: Role, compute: list[float], memory: float = 0.0, **columns: list[float]) -> Track:
    """Costs in USD per interval; other columns by name. Settings stay at the reference."""
    rows = np.full((len(compute), STATS), np.nan)
    rows[:, COLUMN["compute_usd"] :] = 0.0
    given = {"requests": REQUESTS[: len(compute)], "hits": [0.0] * len(compute), "compute_usd": compute}
    for column, values in (given | columns).items():
        rows[:, COLUMN[column]] = values
    rows[:, COLUMN["memory_usd"]] = memory
    settings = None if role == "ghost bound" else np.tile(REFERENCE.as_array(), (len(compute), 1))
    before: KnobSettings | None = None if role == "ghost bound" else REFERENCE
    seed = int(name.split()[-1]) if role == "learned" else None
    return Track(name, role, rows, settings, before, seed, None if seed is None else seed + 10)


def four_tracks() -> list[Track]:
    """1,000 requests in four intervals. Best static costs 8 USD, the bound 4, the learned 6 and 7."""
    return [
        track("default", "default", [2.5] * 4),
        track("best static", "best static", [2.0] * 4),
        track("PPO seed 0", "learned", [1.5] * 4),
        track("PPO seed 1", "learned", [1.75] * 4),
        track("clairvoyant bound", "bound", [1.0] * 4),
    ]
