"""A setting for every hour of the week, or of the day, read off training traffic once and never changed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from agents.policy import Sight
from caches.errors import InputError
from envs.observation import ObservationScale

FloatArray = NDArray[np.float64]

HOUR_SECONDS = 3_600.0
HOURS_A_DAY, HOURS_A_WEEK = 24, 168


class HourSchedule:
    """slots: (hours, 3), wished positions for each hour of the cycle; 168 hours from Thursday 0:00 (where the clock has
    its zero, the beginning of 1970), 24 from midnight, or a single one for always."""

    name = "hour-of-week schedule"

    def __init__(self, home: FloatArray, slots: FloatArray) -> None:
        if slots.ndim != 2 or slots.shape[1] != 3 or not len(slots):
            raise InputError(f"slots: got shape {slots.shape}, expected (hours, 3)")
        self.home, self.slots = home, slots

    def reset(self, seed: int) -> None:
        """Nothing to forget."""

    def act(self, sight: Sight) -> FloatArray:
        return np.asarray(self.slots[hour_of(np.array(sight.now_seconds), len(self.slots))] - self.home)


def hour_of(now_seconds: NDArray[np.float64], hours: int) -> NDArray[np.int64]:
    """The hour of a cycle of that many hours in which each time lies."""
    return np.asarray(now_seconds // HOUR_SECONDS, np.int64) % hours


def cycle_hours(scale: ObservationScale) -> int:
    """A week, a day, or no cycle at all (1): the longest that training traffic went through at least twice."""
    if scale.weekly:
        return HOURS_A_WEEK
    return HOURS_A_DAY if scale.daily else 1
