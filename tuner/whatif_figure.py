"""One picture of a what-if: the two surfaces as heat maps, and their sections at the best lifetime as curves, beside
those of the other policies.

Figures are built without pyplot, so nothing global is touched and no display is needed. Colours of lines are those of
Okabe and Ito, which people with any colour vision tell apart; lines also differ in dash.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator
from numpy.typing import NDArray

from agents.figure_axes import dress
from agents.units import usd
from caches.files import written_whole
from tuner.whatif_result import ENTRIES, Axis, Priced, Surface, UnderPolicy, WhatIf, amount
from tuner.whatif_text import name_of_current, policy_name

Array = NDArray[Any]

BLUE, RED, GREEN, ORANGE, GREY = "#0072b2", "#d55e00", "#009e73", "#e69f00", "#8a8f98"
OTHER_COLOURS = (GREEN, ORANGE, "#cc79a7", "#56b4e9", RED)
OTHER_DASHES = ("-", "--", "-.", (0, (1, 1)))
LABELLED_CELLS = 200  # of a heat map; the numbers of more would not be readable
MOST_TICKS = 8
CURRENT_STYLE = {"color": RED, "linestyle": (0, (3, 1.5))}
BEST_STYLE = {"color": "black", "linestyle": "-"}


def draw_whatif(result: WhatIf) -> Figure:
    """Above, hit ratio and cost over size and TTL; below, the same over size at the best setting's TTL."""
    figure = Figure(figsize=(12, 10.4), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    (hits, cost), (hit_curve, cost_curve) = figure.subplots(2, 2, height_ratios=(1.25, 1))
    _hit_map(hits, result)
    _cost_map(cost, result)
    _hit_curve(hit_curve, result)
    _cost_curve(cost_curve, result)
    figure.suptitle(_headline(result), x=0.01, ha="left", fontsize=12)
    return figure


def png_of_hits(result: WhatIf) -> bytes:
    """Hit ratio alone, map above curve: PNG that stays readable on a narrow screen."""
    return _column(lambda above: _hit_map(above, result), lambda below: _hit_curve(below, result))


def png_of_cost(result: WhatIf) -> bytes:
    """Cost alone, likewise."""
    return _column(lambda above: _cost_map(above, result), lambda below: _cost_curve(below, result))


def _column(upper: Callable[[Axes], None], lower: Callable[[Axes], None]) -> bytes:
    figure = Figure(figsize=(6.4, 8.8), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    above, below = figure.subplots(2, 1, height_ratios=(1.25, 1))
    upper(above)
    lower(below)
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=140)
    return buffer.getvalue()


def save_whatif(result: WhatIf, path: Path) -> Path:
    """Writes the picture as PNG, replaced in one step; makes the folder if there is none. Raises SetpointError naming
    the path where it cannot be written."""
    with written_whole(path) as partial:
        draw_whatif(result).savefig(partial, format="png", dpi=110)
    return path


def _headline(result: WhatIf) -> str:
    subject = result.subject
    name = subject.trace if len(subject.trace) <= 60 else f"{subject.trace[:59]}…"
    composed = ", composed of several sources" if subject.composed else ""
    now, best = result.current, result.best
    money = f"{name_of_current(result)} {usd(now.usd_per_1000)} USD per 1,000 requests"
    if not result.stays:
        money += f", {'best' if best.safe else 'least unsafe'} {usd(best.usd_per_1000)}"
    return f"{name}{composed}: {subject.requests:,} requests\n{money}, all causes counted"


def _hit_map(axes: Axes, result: WhatIf) -> None:
    _heat(axes, result, result.hit_ratio, f"Hit ratio{_of_whom(result)}", "viridis")


def _cost_map(axes: Axes, result: WhatIf) -> None:
    _heat(axes, result, result.usd_per_1000, f"USD per 1,000 requests *{_of_whom(result)}", "cividis_r")
    axes.annotate("* slow requests left out", (0, -0.14), xycoords="axes fraction", fontsize=8.5, color=GREY)


def _of_whom(result: WhatIf) -> str:
    return f", {policy_name(result.shown)}" if result.names_policies else ""


def _heat(axes: Axes, result: WhatIf, surface: Surface, title: str, colours: str) -> None:
    """Rows are sizes, the largest at the top; columns are lifetimes."""
    sizes, ttls = result.axes
    values = surface.values
    low, high = float(values.min()), float(values.max())
    digits = 3 if surface.unit == "ratio" else _decimals(low)
    scale = Normalize(low, high if high > low else low + 1.0)
    image = axes.imshow(values, origin="lower", aspect="auto", cmap=colours, norm=scale)
    if values.size <= LABELLED_CELLS:
        for (row, column), value in np.ndenumerate(values):
            red, green, blue, _ = image.cmap(scale(value))
            ink = "white" if 0.3 * red + 0.6 * green + 0.1 * blue < 0.5 else "black"
            text = f"{value:.{digits}f}"
            axes.text(column, row, text, ha="center", va="center", fontsize=7.5, color=ink)
    for one, style, label in _marked(result):
        place = ttls.nearest(one.settings.ttl_seconds) - 0.5, sizes.nearest(one.settings.cache_size) - 0.5
        halo = Rectangle(place, 1, 1, fill=False, edgecolor="white", linewidth=4.5, zorder=3)
        axes.add_patch(halo)
        axes.add_patch(Rectangle(place, 1, 1, fill=False, linewidth=2.2, label=label, zorder=4, **style))
    axes.set_title(title, loc="left", fontsize=10.5, fontweight="bold")
    _ticks(axes.xaxis, ttls)
    _ticks(axes.yaxis, sizes)
    axes.set_xlabel("TTL", fontsize=9.5)
    axes.set_ylabel(_size_label(sizes), fontsize=9.5)
    axes.tick_params(labelsize=8.5)
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2, fontsize=9, frameon=False, handlelength=1.2)


def _decimals(smallest: float) -> int:
    """That show three digits of the smallest value."""
    return 3 if smallest <= 0 else min(max(2 - math.floor(math.log10(smallest)), 0), 9)


def _marked(result: WhatIf) -> list[tuple[Priced, dict[str, Any], str]]:
    current = (result.current, CURRENT_STYLE, name_of_current(result))
    if result.stays:
        return [current]
    return [current, (result.best, BEST_STYLE, "best" if result.best.safe else "least unsafe")]


def _ticks(axis: Any, values: Axis) -> None:
    """Labels of a heat map's rows or columns, of some where there are many."""
    step = max(-(-len(values.values) // (2 * MOST_TICKS)), 1)
    places = np.arange(0, len(values.values), step)
    axis.set_ticks(places, [_tick(float(values.values[place]), values.unit) for place in places])


def _tick(value: float, unit: str) -> str:
    """Short: a number of entries goes without its unit, which is in the label of the axis."""
    return (
        f"{value:,.0f}"
        if unit == ENTRIES and value >= 10
        else f"{value:.3g}"
        if unit == ENTRIES
        else amount(value, unit)
    )


def _size_label(sizes: Axis) -> str:
    return "cache size, entries" if sizes.unit == ENTRIES else "cache size"


def _hit_curve(axes: Axes, result: WhatIf) -> None:
    """At the best setting's lifetime, and at the longest; the bound; the knee."""
    sizes, ttls = result.axes
    column, longest = ttls.nearest(result.best.settings.ttl_seconds), len(ttls.values) - 1
    curve, policy = result.hit_ratio.values[:, column], policy_name(result.shown)
    label = f"{policy}, TTL {amount(float(ttls.values[column]), 's')}"
    axes.plot(sizes.values, curve, color=BLUE, linewidth=2.0, marker="o", markersize=3.5, label=label)
    _error(axes, sizes.values, result.hit_ratio, column)
    _others(axes, result, lambda one: one.hit_ratio)
    if column != longest and len(result.policies) == 1:
        label = f"{policy}, TTL {amount(float(ttls.values[longest]), 's')}"
        axes.plot(
            sizes.values, result.hit_ratio.values[:, longest], color=BLUE, linewidth=1.2, linestyle="--", label=label
        )
    if result.bound is not None:
        label = f"no cache can exceed, TTL {amount(float(ttls.values[column]), 's')}"
        axes.plot(sizes.values, result.bound.values[:, column], color=GREY, linewidth=1.6, linestyle=":", label=label)
    if result.knee is not None:
        axes.plot(result.knee.value, result.knee.hit_ratio, "D", color=ORANGE, markersize=9, label="knee", zorder=5)
    _verticals(axes, result)
    _over_sizes(axes, sizes)
    axes.set_title("Hit ratio over size", loc="left", fontsize=10.5, fontweight="bold")
    dress(axes, None)
    axes.legend(loc="lower right", fontsize=8.5, framealpha=0.9)


def _cost_curve(axes: Axes, result: WhatIf) -> None:
    """At the best setting's lifetime and at the current one's; full prices as points."""
    sizes, ttls = result.axes
    best, now = (ttls.nearest(one.settings.ttl_seconds) for one in (result.best, result.current))
    label = f"{policy_name(result.shown)}, " if result.names_policies else ""
    label += f"TTL {amount(float(ttls.values[best]), 's')}"
    axes.plot(
        sizes.values,
        result.usd_per_1000.values[:, best],
        color=BLUE,
        linewidth=2.0,
        marker="o",
        markersize=3.5,
        label=label,
    )
    _error(axes, sizes.values, result.usd_per_1000, best)
    _others(axes, result, lambda one: one.usd_per_1000)
    if now != best and len(result.policies) == 1:
        label = f"TTL {amount(float(ttls.values[now]), 's')}, the nearest to {name_of_current(result)}"
        axes.plot(
            sizes.values, result.usd_per_1000.values[:, now], color=RED, linewidth=1.2, linestyle="--", label=label
        )
    for one, style, name in _marked(result):
        label = f"{name}, all causes: {usd(one.usd_per_1000)}"
        axes.plot(
            one.settings.cache_size, one.usd_per_1000, "s", color=style["color"], markersize=7, label=label, zorder=5
        )
    _verticals(axes, result)
    _over_sizes(axes, sizes)
    axes.set_title("USD per 1,000 requests over size", loc="left", fontsize=10.5, fontweight="bold")
    dress(axes, None)
    axes.legend(loc="best", fontsize=8.5, framealpha=0.9)


def _others(axes: Axes, result: WhatIf, surface: Callable[[UnderPolicy], Surface]) -> None:
    """The other policies, each at the lifetime of its best setting."""
    sizes, ttls = result.axes
    others = [one for one in result.policies if one.policy != result.shown]
    for number, one in enumerate(others):
        column = ttls.nearest(one.best.settings.ttl_seconds)
        label = f"{policy_name(one.policy)}, TTL {amount(float(ttls.values[column]), 's')}"
        style: dict[str, Any] = {"color": OTHER_COLOURS[number % len(OTHER_COLOURS)]}
        style["linestyle"] = OTHER_DASHES[number % len(OTHER_DASHES)]
        axes.plot(sizes.values, surface(one).values[:, column], linewidth=1.1, alpha=0.9, label=label, **style)


def _error(axes: Axes, x: Array, surface: Surface, column: int) -> None:
    """The 95 % band of an estimate."""
    if surface.error is not None:
        middle, reach = surface.values[:, column], surface.error[:, column]
        axes.fill_between(x, middle - reach, middle + reach, color=BLUE, alpha=0.2, linewidth=0)


def _verticals(axes: Axes, result: WhatIf) -> None:
    for one, style, _ in _marked(result):
        axes.axvline(one.settings.cache_size, linewidth=1.2, alpha=0.7, **style)


def _over_sizes(axes: Axes, sizes: Axis) -> None:
    """A logarithmic axis with powers of two of bytes."""
    axes.set_xscale("log")
    low, high = float(sizes.values[0]), float(sizes.values[-1])
    powers = [2.0**power for power in range(63) if low <= 2.0**power <= high]
    places = powers[:: max(-(-len(powers) // MOST_TICKS), 1)]
    axes.xaxis.set_major_locator(FixedLocator(places or [low, high]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _tick(value, sizes.unit)))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel(_size_label(sizes), fontsize=9.5)
