"""What a control policy sees, made by hand."""

from __future__ import annotations

import numpy as np

from agents.baselines.simple import KNOWN_SAVING, SAVING
from agents.policy import Ghosts, Sight
from envs.interval import COLUMN, STATS
from envs.observation import SIZE


def row_of(**columns: float) -> np.ndarray:
    """Statistics of an interval, NaN but for those given."""
    row = np.full(STATS, np.nan)
    for name, value in columns.items():
        row[COLUMN[name]] = value
    return row


def sight_of(
    positions: tuple[float, float, float] = (0.5, 0.5, 0.5),
    interval: int = 0,
    now_seconds: float = 0.0,
    row: np.ndarray | None = None,
    ghosts: Ghosts | None = None,
    saving: float | None = None,
) -> Sight:
    observation = np.zeros(SIZE, np.float32)
    if saving is not None:
        observation[SAVING], observation[KNOWN_SAVING] = saving, 1.0
    return Sight(
        observation, interval, now_seconds, row_of() if row is None else row, np.array(positions, np.float64), ghosts
    )
