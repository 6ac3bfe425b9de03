"""Pictures of both arms over time, for a report and for the live page: cost, hits, latency, settings, saving."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agents.units import readable, usd
from api.report.charts import Line, Panel, Pen, TimeAxis, round_ticks, stretches, time_chart
from api.report.page import Picture
from caches.target import Arm
from tuner.account import usd_per_1000, value
from tuner.records import Decision, IntervalRecord, Judgement
from tuner.savings import saved_usd_per_1000

Array = NDArray[Any]
Value = Callable[[IntervalRecord], float | None]
Text = Callable[[float], str]

MOST_POINTS = 360
PENS = {Arm.CONTROL: Pen("second", 1.6, "6 4"), Arm.TREATMENT: Pen("accent", 1.8)}
MEAN, ENDS, NOTHING = Pen("accent", 1.8), Pen("accent", 1.2, "2 3"), Pen("quiet", 1.0, "1.5 3")
PREDICTED = Pen("third", 1.5, "9 3 2 3")
LEAST_RATIO = 1.05  # between the ends of a logarithmic axis


@dataclass(frozen=True)
class Shown:
    """One panel. log: on a logarithmic axis. text: of a value at the axis."""

    title: str
    value: Value
    text: Text
    log: bool = False


COST = Shown("Cost, USD per 1,000 requests", usd_per_1000, usd)
HITS = Shown("Hit ratio", lambda one: value(one, "hit_ratio"), lambda one: f"{one:.3g}")
TTFT = Shown("P99 of the time to the first token", lambda one: value(one, "p99_ttft_seconds"), lambda one: seconds(one))
LATENCY = Shown("P99 of the whole answer", lambda one: value(one, "p99_latency_seconds"), lambda one: seconds(one))
SIZE = Shown("Cache size", lambda one: one.settings.cache_size, lambda one: readable(one, "bytes"), log=True)
TTL = Shown("Lifetime (TTL)", lambda one: one.settings.ttl_seconds, lambda one: readable(one, "s"), log=True)
WARMUP = Shown("Warm-up share", lambda one: one.settings.warmup_ratio, lambda one: f"{100 * one:.3g} %")


def seconds(amount: float) -> str:
    return f"{1000 * amount:.3g} ms" if amount < 1.0 else f"{amount:.3g} s"


def arms_picture(records: Sequence[IntervalRecord], shown: Sequence[Shown], what: str) -> Picture | None:
    """A panel for each of `shown` of which anything is known, with a line for each arm that had keys; None where
    nothing is known. what: for those who cannot see it."""
    known = [record for record in records if record.share > 0.0]
    if not known:
        return None
    panels = [panel for one in shown if (panel := _panel_of(known, one)) is not None]
    if not panels:
        return None
    return Picture(time_chart(panels, _axis(known)), f"{what} of each arm over time. The table has the figures.")


def saving_picture(
    judgements: Sequence[Judgement], records: Sequence[IntervalRecord], decisions: Sequence[Decision] = ()
) -> Picture | None:
    """What the analysis said of the saving after each interval, beside what the decisions predicted of it; None before
    the analysis could say anything."""
    bands = {one.index: saved_usd_per_1000(one) for one in judgements}
    times = [record for record in records if record.index in bands]
    if not times or all(band is None for band in bands.values()):
        return None
    first, last = min(bands), max(bands)
    ends = [
        (band.mean, band.low, band.high) if band is not None else (None,) * 3
        for band in map(bands.get, range(first, last + 1))
    ]
    mean, low, high = (_thin(np.array([math.nan if v is None else v for v in one])) for one in zip(*ends, strict=True))
    predicted = {one.index: one.predicted_usd_per_1000 for one in decisions if one.arm is Arm.TREATMENT}
    before = [predicted.get(index) for index in range(first, last + 1)]
    foreseen = _thin(np.array([math.nan if one is None else one for one in before]))
    lines = (
        Line(np.zeros(1), NOTHING),
        Line(high, ENDS, "its interval"),
        Line(low, ENDS, "its interval"),
        *([Line(foreseen, PREDICTED, "predicted")] if np.isfinite(foreseen).any() else []),
        Line(mean, MEAN, "saving"),
    )
    middle = np.concatenate([mean[np.isfinite(mean)], foreseen[np.isfinite(foreseen)], [0.0]])
    reach = 3.0 * max(float(np.abs(middle).max()), 1e-12)  # the first intervals are far wider than what is to be seen
    found = np.concatenate([one[np.isfinite(one)] for one in (mean, low, high)] + [np.zeros(1)])
    panel = _panel("USD saved per 1,000 requests", lines, np.clip(found, -reach, reach), usd)
    return Picture(
        time_chart([panel], _axis(times)),
        "The estimated saving after each interval, with the ends of its confidence sequence, and the predicted one.",
        "What could be said of the saving after each interval. Its interval holds however often one looks.",
    )


def _panel_of(records: Sequence[IntervalRecord], shown: Shown) -> Panel | None:
    first, last = min(one.index for one in records), max(one.index for one in records)
    lines = []
    for arm in Arm:
        values = np.full(last - first + 1, np.nan)
        for record in records:
            found = shown.value(record) if record.arm is arm else None
            if found is not None:
                values[record.index - first] = math.log(found) if shown.log and found > 0 else found
        if np.isfinite(values).any():
            lines.append(Line(_thin(values), PENS[arm], arm.value))
    if not lines:
        return None
    found_values = np.concatenate([line.values[np.isfinite(line.values)] for line in lines])
    if shown.log:
        return _log_panel(shown.title, tuple(lines), found_values, shown.text)
    return _panel(shown.title, tuple(lines), found_values, shown.text)


def _panel(title: str, lines: tuple[Line, ...], values: Array, text: Text) -> Panel:
    """With round values at its ends. One value alone has zero below it, and zero alone one above it."""
    low, high = float(values.min()), float(values.max())
    if high - low < 1e-9 * max(abs(high), 1e-9):
        low, high = (min(2.0 * low, 0.0), max(2.0 * high, 0.0)) if high else (0.0, 1.0)
    ticks = round_ticks(low, high)
    step = float(ticks[1] - ticks[0]) if len(ticks) > 1 else high - low
    low, high = step * math.floor(low / step + 1e-9), step * math.ceil(high / step - 1e-9)
    ticks = round_ticks(low, high)
    return Panel(title, lines, low, high, tuple((tick, text(0.0 if abs(tick) < 1e-12 else tick)) for tick in ticks))


def _log_panel(title: str, lines: tuple[Line, ...], values: Array, text: Text) -> Panel:
    middle = float(values.min() + values.max()) / 2
    half = max(float(values.max() - values.min()), math.log(LEAST_RATIO)) / 2
    ends = (middle - half, middle, middle + half)
    ticks = tuple((end, text(math.exp(end))) for end in ends)
    if any(before[1] == after[1] for before, after in pairwise(ticks)):
        ticks = ((middle, text(math.exp(middle))),)
    return Panel(title, lines, ends[0] - 0.1 * half, ends[2] + 0.1 * half, ticks)


def _thin(values: Array) -> Array:
    """At most MOST_POINTS, each the mean of what is known in its stretch."""
    if len(values) <= MOST_POINTS:
        return values
    parts = [values[cut] for cut in stretches(values, MOST_POINTS)]
    return np.array([part[np.isfinite(part)].mean() if np.isfinite(part).any() else math.nan for part in parts])


def _axis(records: Sequence[IntervalRecord]) -> TimeAxis:
    start, end = min(one.began_seconds for one in records), max(one.ended_seconds for one in records)
    return TimeAxis(start, max(end - start, 1.0), dated=True)
