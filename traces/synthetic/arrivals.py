"""Arrival times: Poisson processes with a rate that follows the clock and the calendar."""

from __future__ import annotations

import numpy as np

from traces.synthetic.parts import Rate
from traces.trace import FloatArray

_DAY = 86400.0


def rate_rps(rate: Rate, seconds: FloatArray) -> FloatArray:
    """The catalogue's rate at these times; time 0 is midnight before a Monday.

    mean * (1 + amplitude * cos(2 pi (hour - peak) / 24)) * w / ((5 + 2 weekend_factor) / 7), where w is
    weekend_factor on Saturday and Sunday and 1 on other days. The cosine is zero over a whole day, so the
    mean over a week is `mean_rps`.
    """
    angle = 2 * np.pi * (seconds / 3600 - rate.peak_hour) / 24
    weekend = (seconds // _DAY).astype(np.int64) % 7 >= 5
    weekly = np.where(weekend, rate.weekend_factor, 1.0) / _weekly_mean(rate)
    shape = (1 + rate.daily_amplitude * np.cos(angle)) * weekly
    return np.asarray(rate.mean_rps * shape, dtype=np.float64)


def poisson_times(rate: Rate, factor: float, start: float, stop: float, rng: np.random.Generator) -> FloatArray:
    """Arrivals in [start, stop) of a Poisson process with `factor` times the catalogue's rate, ascending.

    By thinning: arrivals at the highest rate, each kept with probability rate / highest rate (Lewis and
    Shedler, 1979), which is exact for any shape.
    """
    highest = rate.mean_rps * (1 + rate.daily_amplitude) * max(1.0, rate.weekend_factor) / _weekly_mean(rate)
    times = steady_times(factor * highest, start, stop, rng)
    keep = rng.random(len(times)) * highest < rate_rps(rate, times)
    return times[keep]


def steady_times(rps: float, start: float, stop: float, rng: np.random.Generator) -> FloatArray:
    """Arrivals in [start, stop) of a Poisson process with a constant rate, ascending."""
    span = max(stop - start, 0.0)
    return start + span * np.sort(rng.random(rng.poisson(rps * span)))


def _weekly_mean(rate: Rate) -> float:
    return (5 + 2 * rate.weekend_factor) / 7
