"""Axes of a judgement's pictures: the clock, the knobs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, MultipleLocator
from numpy.typing import NDArray

from agents.units import readable
from caches.knobs import Knob

Array = NDArray[Any]

DAY_SECONDS = 86_400.0
MOST_TICKS = 14
_TICK_SECONDS = (
    60.0,
    300.0,
    900.0,
    3600.0,
    3 * 3600.0,
    6 * 3600.0,
    12 * 3600.0,
    DAY_SECONDS,
    7 * DAY_SECONDS,
    28 * DAY_SECONDS,
)
MOST_KNOB_TICKS = 6
_ROUND_SECONDS = (0.1, 1.0, 10.0, 60.0, 600.0, 3600.0, 6 * 3600.0, DAY_SECONDS, 7 * DAY_SECONDS, 30 * DAY_SECONDS)


def clock_axis(axes: Axes, times: Array, interval_seconds: float, dated: bool) -> None:
    """Hours of the day, and the day at midnight: a date where the trace is dated, else a number from 1 on.

    times: when each interval begins, in seconds on a clock whose zero is a midnight.
    """
    span = times[-1] - times[0] + interval_seconds
    step = next((step for step in _TICK_SECONDS if span / step <= MOST_TICKS), _TICK_SECONDS[-1])

    def label(seconds: float, _: object) -> str:
        moment = datetime.fromtimestamp(0, UTC) + timedelta(seconds=seconds)
        if seconds % DAY_SECONDS:
            return f"{moment:%H:%M}"
        return f"{moment.day} {moment:%b}" if dated else f"day {int(seconds // DAY_SECONDS) + 1}"

    axes.xaxis.set_major_locator(MultipleLocator(step))
    axes.xaxis.set_major_formatter(FuncFormatter(label))
    axes.set_xlim(times[0], times[0] + span)


def knob_axis(axes: Axes, knob: Knob) -> None:
    """The knob's whole range, with round values in units that people read."""
    margin = 0.04
    if knob.scale == "log":
        axes.set_yscale("log")
        axes.minorticks_off()
        axes.yaxis.set_major_locator(FixedLocator(_round_values(knob)))
        factor = (knob.high / knob.low) ** margin
        axes.set_ylim(knob.low / factor, knob.high * factor)
    else:
        reach = margin * (knob.high - knob.low)
        axes.set_ylim(knob.low - reach, knob.high + reach)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: readable(value, knob.unit)))
    dress(axes, knob.name)


def _round_values(knob: Knob) -> list[float]:
    """At most MOST_KNOB_TICKS round values in a logarithmic range: usual times, powers of two of bytes."""
    rounds = _ROUND_SECONDS if knob.unit in ("s", "seconds") else tuple(2.0**power for power in range(60))
    inside = [value for value in rounds if knob.low <= value <= knob.high]
    return inside[:: max(-(-len(inside) // MOST_KNOB_TICKS), 1)]


def dress(axes: Axes, y: str | None) -> None:
    """Grid, font sizes and label of the vertical axis."""
    if y is not None:
        axes.set_ylabel(y, fontsize=9.5)
    axes.tick_params(labelsize=9)
    axes.grid(color="#e4e6ea", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
