"""Charts as SVG text for a page: lines over time in panels, and stacked bars.

They have no fixed size: places across are shares of the width, so text keeps its size and stays readable from a phone
to a desk, while lines stretch. Colours are variables of templates/style.css, so they suit light and dark. Lines differ
in dash as well as in colour.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from html import escape
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

DAY_SECONDS = 86_400.0
MOST_TICKS = 6  # labels that fit beside each other on a phone
TICK_STEPS = (60, 300, 900, 3600, 10_800, 21_600, 43_200, 86_400, 2 * 86_400, 7 * 86_400, 28 * 86_400, 91 * 86_400)
WIDE = 1000.0  # units across inside a panel
MARGIN = 62  # pixels left of a panel, for the labels of its rules
LEGEND_ROW, TITLE_ROW, PANEL_HEIGHT, AXIS_ROW, GAP = 22, 28, 120, 24, 18
BAR_ROW, BAR_HEIGHT = 46, 16
OPENING = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="100%" height="{height}" font-size="12.5" fill="currentColor" '
    'style="padding-left:{margin}px">'
)


@dataclass(frozen=True)
class Pen:
    """How a line is drawn. colour: a variable of the style sheet without its dashes; dash: as in SVG, "" for none."""

    colour: str
    width: float = 1.5
    dash: str = ""
    opacity: float = 1.0

    @property
    def style(self) -> str:
        dash = f";stroke-dasharray:{self.dash}" if self.dash else ""
        return (
            f"stroke:var(--{self.colour});stroke-width:{self.width:g};stroke-opacity:{self.opacity:g};fill:none{dash}"
        )


@dataclass(frozen=True)
class Line:
    """values: (points,), one per stretch of equal length, drawn as steps; NaN leaves a gap. label: in the legend;
    an empty one or one that is there already is left out."""

    values: Array
    pen: Pen
    label: str = ""


@dataclass(frozen=True)
class Panel:
    """One plot. low, high: values at the bottom and the top. ticks: (value, label) of horizontal rules."""

    title: str
    lines: tuple[Line, ...]
    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]


@dataclass(frozen=True)
class TimeAxis:
    """start_seconds: on a clock whose zero is a midnight. dated: whether that clock is a calendar's (UTC)."""

    start_seconds: float
    span_seconds: float
    dated: bool

    def ticks(self) -> Iterator[tuple[float, str]]:
        """(share of the span, label): hours of the day, and the day at midnight."""
        step = next((step for step in TICK_STEPS if self.span_seconds / step <= MOST_TICKS), TICK_STEPS[-1])
        first = math.ceil(self.start_seconds / step) * step
        end = self.start_seconds + self.span_seconds
        for number in range(MOST_TICKS + 1):
            seconds = first + number * step
            if seconds <= end:
                yield (seconds - self.start_seconds) / self.span_seconds, self._label(seconds)

    def _label(self, seconds: float) -> str:
        moment = datetime.fromtimestamp(0, UTC) + timedelta(seconds=seconds)
        if seconds % DAY_SECONDS:
            return f"{moment:%H:%M}"
        return f"{moment.day} {moment:%b}" if self.dated else f"day {int(seconds // DAY_SECONDS) + 1}"


@dataclass(frozen=True)
class Bar:
    """parts: (length, variable of the style sheet) from the left. note: written at the right end."""

    name: str
    parts: tuple[tuple[float, str], ...]
    note: str

    @property
    def length(self) -> float:
        return sum(length for length, _ in self.parts)


def time_chart(panels: Sequence[Panel], axis: TimeAxis) -> str:
    """Panels below each other over one axis of time, with one legend at the top."""
    legend = _entries(panels)
    top = math.ceil(len(legend) / 2) * LEGEND_ROW + (8 if legend else 0)
    bottom = top + len(panels) * (TITLE_ROW + PANEL_HEIGHT + GAP) - GAP
    ticks = list(axis.ticks())
    parts = [OPENING.format(height=bottom + AXIS_ROW, margin=MARGIN), *_legend_of_lines(legend)]
    for index, panel in enumerate(panels):
        parts += _panel(panel, top + index * (TITLE_ROW + PANEL_HEIGHT + GAP), [share for share, _ in ticks])
    parts += [_text(label, f"{100 * share:.2f}%", bottom + 17, _anchor(share), "quiet") for share, label in ticks]
    return "\n".join([*parts, "</svg>"])


def bar_chart(bars: Sequence[Bar], legend: Sequence[tuple[str, str]], mark: float | None = None) -> str:
    """Stacked bars below each other, each under its name. legend: (label, variable). mark: a length that a thin line
    shows through all bars."""
    longest = max(max((bar.length for bar in bars), default=0.0), mark or 0.0) or 1.0
    top = math.ceil(len(legend) / 2) * LEGEND_ROW + 8
    parts = [OPENING.format(height=top + len(bars) * BAR_ROW, margin=0)]
    for index, (label, colour) in enumerate(legend):
        x, y = ("0%", "50%")[index % 2], index // 2 * LEGEND_ROW
        parts.append(
            f'<svg x="{x}" y="{y}" overflow="visible">{_rect("0", 3, "11", 11, colour)}{_text(label, "18", 13)}</svg>'
        )
    for index, bar in enumerate(bars):
        y, left = top + index * BAR_ROW, 0.0
        parts += [_text(bar.name, "0%", y + 13), _text(bar.note, "100%", y + 13, "end", "quiet")]
        for length, colour in bar.parts:
            width = 100.0 * max(length, 0.0) / longest
            parts.append(_rect(f"{left:.3f}%", y + 20, f"{width:.3f}%", BAR_HEIGHT, colour))
            left += width
    if mark is not None and bars:
        x = f"{100 * mark / longest:.3f}%"
        pen = Pen("ink", 1, "3 3")
        for index in range(len(bars)):
            y = top + index * BAR_ROW + 17
            parts.append(f'<line x1="{x}" x2="{x}" y1="{y}" y2="{y + BAR_HEIGHT + 6}" style="{pen.style}"/>')
    return "\n".join([*parts, "</svg>"])


def round_ticks(low: float, high: float, most: int = 4) -> tuple[float, ...]:
    """At most `most` + 1 round values from low to high: steps of 1, 2, 2.5 or 5 times a power of ten."""
    if not low < high:
        return (low,)
    power = 10.0 ** math.floor(math.log10((high - low) / most))
    step = next(s * power for s in (1.0, 2.0, 2.5, 5.0, 10.0) if (high - low) / (s * power) <= most)
    return tuple(number * step for number in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1))


def stretches(values: Array, points: int) -> list[slice]:
    """Cuts n values into at most `points` runs whose lengths differ by one at most."""
    edges = np.linspace(0, len(values), min(points, len(values)) + 1).round().astype(int)
    return [slice(first, end) for first, end in pairwise(edges.tolist())]


def _entries(panels: Sequence[Panel]) -> list[tuple[str, Pen]]:
    entries: dict[str, Pen] = {}
    for panel in panels:
        for line in panel.lines:
            if line.label:
                entries.setdefault(line.label, line.pen)
    return list(entries.items())


def _legend_of_lines(entries: Sequence[tuple[str, Pen]]) -> Iterator[str]:
    for index, (label, pen) in enumerate(entries):
        x, y = (f"{-MARGIN}", "45%")[index % 2], index // 2 * LEGEND_ROW
        sample = f'<line x1="0" x2="24" y1="9" y2="9" style="{pen.style}"/>'
        yield f'<svg x="{x}" y="{y}" overflow="visible">{sample}{_text(label, "31", 13)}</svg>'


def _panel(panel: Panel, y: int, marks: Sequence[float]) -> Iterator[str]:
    """Title, rules with their labels, marks of time, lines."""
    yield f'<text x="{-MARGIN}" y="{y + 13}" font-weight="600">{escape(panel.title)}</text>'
    top = y + TITLE_ROW
    for share in marks:
        x = f"{100 * share:.2f}%"
        yield f'<line x1="{x}" x2="{x}" y1="{top}" y2="{top + PANEL_HEIGHT}" style="{Pen("rule", 1).style}"/>'
    for value, _ in panel.ticks:
        height = _height(panel, value)
        line = top + PANEL_HEIGHT * (1 - height)
        yield f'<line x1="0%" x2="100%" y1="{line:.1f}" y2="{line:.1f}" style="{Pen("rule", 1).style}"/>'
    yield (
        f'<svg x="0" y="{top}" width="100%" height="{PANEL_HEIGHT}" viewBox="0 0 {WIDE:g} {PANEL_HEIGHT}" '
        'preserveAspectRatio="none">'
    )
    for drawn in panel.lines:
        style = drawn.pen.style
        yield f'<path d="{_steps(panel, drawn.values)}" vector-effect="non-scaling-stroke" style="{style}"/>'
    yield "</svg>"
    for value, label in panel.ticks:
        yield _text(label, "-8", top + PANEL_HEIGHT * (1 - _height(panel, value)) + 4, "end", "quiet")


def _steps(panel: Panel, values: Array) -> str:
    """A path that holds each value for its stretch; a gap where it is not known."""
    path, width, last = [], WIDE / len(values), None
    for index, value in enumerate(values):
        if not math.isfinite(value):
            last = None
            continue
        y = f"{PANEL_HEIGHT * (1 - _height(panel, float(value))):.1f}"
        if last is None:
            path.append(f"M{index * width:.1f} {y}")
        elif y != last:
            path.append(f"H{index * width:.1f}V{y}")
        last = y
        if index + 1 == len(values) or not math.isfinite(values[index + 1]):
            path.append(f"H{(index + 1) * width:.1f}")
    return "".join(path)


def _height(panel: Panel, value: float) -> float:
    """Share of the panel's height, within it."""
    return float(np.clip((value - panel.low) / ((panel.high - panel.low) or 1.0), 0.0, 1.0))


def _anchor(share: float) -> str:
    return "start" if share < 0.06 else "end" if share > 0.94 else "middle"


def _rect(x: str, y: float, width: str, height: float, colour: str) -> str:
    return f'<rect x="{x}" y="{y:g}" width="{width}" height="{height:g}" style="fill:var(--{colour})"/>'


def _text(text: str, x: str, y: float, anchor: str = "start", colour: str = "ink") -> str:
    return f'<text x="{x}" y="{y:.1f}" text-anchor="{anchor}" style="fill:var(--{colour})">{escape(text)}</text>'
