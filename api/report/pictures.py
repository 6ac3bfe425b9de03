"""The pictures of an evaluation's report: settings over time, cost over time, cost by cause."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from agents.evaluation import positions_of
from agents.results import PolicyResult
from agents.tracks import Track
from agents.units import readable, usd
from api.report.charts import (
    Bar,
    Line,
    Panel,
    Pen,
    TimeAxis,
    bar_chart,
    round_ticks,
    stretches,
    time_chart,
)
from api.report.material import DAY_SECONDS, Material
from api.report.page import Picture
from caches.knobs import Knob, KnobSpace
from envs.interval import column
from envs.reward import CAUSES

Array = NDArray[Any]

SETTING_POINTS = 720  # steps that a line of settings has at most
COST_POINTS = 48
LEAST_SPAN = 0.1  # of a knob's range, in the picture of it
CHOSEN = Pen("accent", 1.6)
SEED = Pen("accent", 1.0, opacity=0.38)
STATIC = Pen("second", 1.6, "6 4")
CHAMPION = Pen("third", 1.6, "9 3 2 3")
BOUND = Pen("quiet", 1.4, "1.5 3")
KNOB_TITLES = {"cache_size": "cache size", "ttl_seconds": "lifetime (TTL)", "warmup_ratio": "warm-up share"}
CAUSE_TITLES = {
    "compute": "compute of misses",
    "warmup": "warm-ups",
    "memory": "memory",
    "staleness": "stale answers",
    "slow": "slow answers",
}


def settings_picture(material: Material) -> Picture:
    """Each knob over the test: the judged version, the other seeds, the best static setting."""
    cuts = stretches(material.starts, SETTING_POINTS)
    others = [one.track for one in material.learned if one.track is not material.chosen.track]
    drawn = [(track, SEED, "other seeds") for track in others]
    drawn += [(material.best.track, STATIC, "best static setting")]
    drawn += [(material.chosen.track, CHOSEN, f"version {material.version}")]
    places = [(_positions(track, material.knobs, cuts), pen, label) for track, pen, label in drawn]
    panels = [
        _knob_panel(knob, tuple(Line(all_knobs[:, i], pen, label) for all_knobs, pen, label in places))
        for i, knob in enumerate(material.knobs.knobs)
    ]
    width = round(len(material.starts) / len(cuts))
    averaged = f" Each step is the mean of about {width} intervals." if width > 1 else ""
    return Picture(
        time_chart(panels, _axis(material)),
        f"Lines of cache size, lifetime and warm-up share over the test: version {material.version}, the other seeds "
        "and the best static setting. The table beside it has the figures.",
        f"Settings in force over the test; each axis shows the part of the range that was used.{averaged} "
        f"{_clock_note(material)}",
    )


def cost_picture(material: Material) -> Picture:
    """Cost per 1,000 requests over the test, and below it what is saved since its start."""
    cuts = stretches(material.starts, COST_POINTS)
    requests, best = column(material.best.track.rows, "requests"), material.best.track
    drawn = [(one.track, BOUND, one.result.name) for one in material.bounds]
    drawn += [(one.track, CHAMPION, "champion") for one in material.options() if one.track.role == "champion"]
    drawn += [(best, STATIC, "best static setting"), (material.chosen.track, CHOSEN, f"version {material.version}")]
    costs = tuple(Line(_per_1000(track.usd, requests, cuts), pen, label) for track, pen, label in drawn)
    known = np.concatenate([line.values[np.isfinite(line.values)] for line in costs])
    ticks = round_ticks(float(known.min()), float(known.max()))
    low, high = min(float(known.min()), *ticks), max(float(known.max()), *ticks)
    saved = [(np.cumsum(best.usd - track.usd), pen) for track, pen, _ in drawn]
    ends = np.array([cut.stop for cut in cuts])
    totals = tuple(Line(total[np.minimum(ends, len(total)) - 1], pen) for total, pen in saved)
    least, most = min(float(line.values.min()) for line in totals), max(float(line.values.max()) for line in totals)
    marks = round_ticks(least, most, 3)
    span = readable(material.days * DAY_SECONDS / len(cuts), "seconds")
    panels = (
        Panel(f"USD per 1,000 requests, means of {span}", costs, low, high, tuple((t, f"{t:.4g}") for t in ticks)),
        Panel("USD saved since the start", totals, min(least, *marks), most, tuple((t, f"{t:.4g}") for t in marks)),
    )
    return Picture(
        time_chart(panels, _axis(material)),
        f"Lines of the cost per 1,000 requests over the test and of the money saved against the best static setting, "
        f"for version {material.version}, the best static setting and what bounds them.",
        f"Cost on the same requests, and what each saves against the best static setting. {_clock_note(material)}",
    )


def causes_picture(material: Material) -> Picture:
    """One bar per policy, stacked by cause; the learned ones other than the judged version left out."""
    shown = [one for one in material.options() if one.track.role != "learned" or one.track is material.chosen.track]
    bars = [Bar(_name(one.result), _parts(one.result), usd(one.usd_per_1000)) for one in shown]
    legend = [(CAUSE_TITLES.get(cause, cause), f"cause{number}") for number, cause in enumerate(CAUSES)]
    return Picture(
        bar_chart(bars, legend, material.best.usd_per_1000),
        "Bars of the cost per 1,000 requests of each policy, divided by cause. The table below has the figures.",
        "USD per 1,000 requests by cause. The dashed mark is the best static setting's cost.",
    )


def _axis(material: Material) -> TimeAxis:
    interval = material.evaluation.setting.interval_seconds
    first = float(material.starts[0])
    return TimeAxis(first, float(material.starts[-1]) + interval - first, material.dated)


def _clock_note(material: Material) -> str:
    return "Times are UTC." if material.dated else "The trace has no date: its clock starts at midnight of day 1."


def _knob_panel(knob: Knob, lines: tuple[Line, ...]) -> Panel:
    """As much of the knob's range as its lines use, LEAST_SPAN at least."""
    used = np.concatenate([line.values for line in lines])
    low, high = float(used.min()), float(used.max())
    middle, half = (low + high) / 2, max(high - low, LEAST_SPAN) / 2
    middle = min(max(middle, half), 1.0 - half)
    low, high = middle - half, middle + half
    ticks = tuple((place, readable(knob.value(place), knob.unit)) for place in (low, middle, high))
    margin = 0.04 * (high - low)
    return Panel(_capital(KNOB_TITLES.get(knob.name, knob.name)), lines, low - margin, high + margin, ticks)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _positions(track: Track, knobs: KnobSpace, cuts: list[slice]) -> Array:
    """Mean positions in [0, 1] of each stretch, shape (stretches, 3)."""
    assert track.settings is not None  # only bounds have none
    positions = positions_of(track.settings, knobs)
    return np.array([positions[cut].mean(axis=0) for cut in cuts])


def _per_1000(spent: Array, requests: Array, cuts: list[slice]) -> Array:
    """USD per 1,000 requests of each stretch; NaN where nothing was requested."""
    asked = np.array([requests[cut].sum() for cut in cuts])
    paid = np.array([spent[cut].sum() for cut in cuts])
    return np.asarray(np.divide(1000.0 * paid, asked, out=np.full(len(cuts), np.nan), where=asked > 0))


def _parts(result: PolicyResult) -> tuple[tuple[float, str], ...]:
    return tuple((result.usd_by_cause_per_1000[cause], f"cause{number}") for number, cause in enumerate(CAUSES))


def _name(result: PolicyResult) -> str:
    return (
        result.name
        if result.role != "learned" or result.version is None
        else f"{result.name} (version {result.version})"
    )
