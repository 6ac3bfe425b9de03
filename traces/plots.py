"""One picture of a workload, for `setpoint trace info`.

Figures are built without pyplot, so nothing global is touched and no display is needed.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator

from caches.files import written_whole
from traces.workload import Curve, Distribution, Workload

_BLUE, _ORANGE, _GREEN, _GREY = "#2f6690", "#d1682b", "#3b8b5a", "#8a8f98"
_TIME_UNITS = ((2 * 86400.0, 86400.0, "days"), (2 * 3600.0, 3600.0, "hours"), (300.0, 60.0, "minutes"))
_FINE_TICKS = (1e-6, 1e-4, 0.01, 0.1, 1, 10, 60, 600, 3600, 6 * 3600, 86400, 7 * 86400, 60 * 86400)
_COARSE_TICKS = (1e-6, 1e-4, 0.01, 1, 60, 3600, 86400, 20 * 86400)


def draw_workload(workload: Workload) -> Figure:
    """Rate, popularity, reuse times, sizes, tokens, entropy and drift. Panels without data say so."""
    figure = Figure(figsize=(13, 9.5), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    tokens = workload.prompt_tokens is not None or workload.output_tokens is not None
    last_row = "EEDDTT" if tokens else "EEEDDD"
    axes = figure.subplot_mosaic([list("RRRRRR"), list("PPUUSS"), list(last_row)])
    _rate(axes["R"], workload)
    _popularity(axes["P"], workload)
    _reuse(axes["U"], workload)
    _sizes(axes["S"], workload)
    _entropy(axes["E"], workload)
    _drift(axes["D"], workload)
    if tokens:
        _tokens(axes["T"], workload)
    figure.suptitle(_headline(workload), x=0.01, ha="left", fontsize=12)
    return figure


def save_workload(workload: Workload, path: Path) -> None:
    """Write the picture as PNG, replacing `path` in one step. Raises SetpointError where it cannot be written."""
    with written_whole(path) as partial:
        draw_workload(workload).savefig(partial, format="png", dpi=110)


def _headline(workload: Workload) -> str:
    name = workload.name if len(workload.name) <= 60 else f"{workload.name[:59]}…"
    composed = " (composed of several sources)" if workload.composed else ""
    numbers = (
        f"{workload.requests:,} requests, {workload.unique_keys:,} keys, "
        f"re-reference ratio {workload.rereference_ratio:.3f}, one-hit share {workload.one_hit_share:.3f}"
    )
    entropy = "" if workload.entropy_bits is None else f", entropy {workload.entropy_bits:.2f} bits"
    sampled = "" if workload.sampled is None else f", estimated from {workload.sampled.share:.2%} of the keys"
    return f"{name}{composed}\n{numbers}{entropy}{sampled}"


def _dress(axes: Axes, title: str, x: str, y: str) -> None:
    axes.set_title(title, loc="left", fontsize=10.5, fontweight="bold")
    axes.set_xlabel(x, fontsize=9)
    axes.set_ylabel(y, fontsize=9)
    axes.tick_params(labelsize=8.5)
    axes.grid(color="#e4e6ea", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _nothing(axes: Axes, why: str) -> None:
    axes.text(0.5, 0.5, why, transform=axes.transAxes, ha="center", va="center", color=_GREY, fontsize=9.5)
    axes.set_xticks([])
    axes.set_yticks([])


def _time_unit(span_seconds: float) -> tuple[float, str]:
    for least, seconds, name in _TIME_UNITS:
        if span_seconds >= least:
            return seconds, name
    return 1.0, "seconds"


def _length(seconds: float) -> str:
    """A length of time in the largest unit that it fills at least once."""
    for unit, name in ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s")):
        if seconds >= unit:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds * 1000:.3g} ms"


def _rate(axes: Axes, workload: Workload) -> None:
    unit, name = _time_unit(workload.span_seconds)
    if workload.rate is None or workload.rate_bin_seconds is None:
        _dress(axes, "Arrival rate", "", "")
        _nothing(axes, "all requests have one arrival time")
        return
    _dress(
        axes,
        f"Arrival rate, bins of {_length(workload.rate_bin_seconds)}",
        f"{name} from the start of the trace",
        "requests per second",
    )
    edges = np.append(workload.rate.x, workload.rate.x[-1] + workload.rate_bin_seconds) / unit
    axes.stairs(workload.rate.y, edges, color=_BLUE, linewidth=1.3)
    axes.stairs(workload.rate.y, edges, color=_BLUE, alpha=0.15, fill=True)
    if workload.mean_rate_rps is not None:
        axes.axhline(workload.mean_rate_rps, color=_ORANGE, linewidth=1, linestyle="--", label="mean")
        axes.legend(loc="upper right", fontsize=8.5, framealpha=0.9)
    axes.set_xlim(edges[0], edges[-1])
    axes.set_ylim(0, max(float(workload.rate.y.max()), workload.mean_rate_rps or 0.0) * 1.15)


def _popularity(axes: Axes, workload: Workload) -> None:
    _dress(axes, "Popularity", "rank of key", "requests of key")
    axes.loglog(workload.popularity.x, workload.popularity.y, color=_BLUE, linewidth=1.6)
    axes.set_ylim(0.8, max(float(workload.popularity.y[0]) * 1.5, 12))


def _reuse(axes: Axes, workload: Workload) -> None:
    _dress(axes, "Time to the next request of the same key", "", "share of repeats")
    if workload.reuse_seconds is None:
        _nothing(axes, "no key is requested twice" if workload.span_seconds > 0 else "no times")
        return
    curve = workload.reuse_seconds.cdf
    _cdf(axes, curve, _BLUE, None)
    if axes.get_xscale() == "log":
        low, high = axes.get_xlim()
        ticks = _FINE_TICKS if high / low < 1e5 else _COARSE_TICKS
        axes.xaxis.set_major_locator(FixedLocator([t for t in ticks if low <= t <= high]))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda seconds, _: _length(seconds)))
        axes.minorticks_off()
    at_once = curve.y[curve.x <= 0]
    if len(at_once):
        axes.set_xlabel(f"{at_once[-1]:.0%} within one step of the trace's clock", fontsize=9)


def _sizes(axes: Axes, workload: Workload) -> None:
    _dress(axes, "Response size", "bytes", "share of requests")
    if workload.size_bytes is None:
        _nothing(axes, "no sizes recorded")
        return
    _cdf(axes, workload.size_bytes.cdf, _BLUE, None)
    _mark_median(axes, workload.size_bytes, _BLUE)


def _tokens(axes: Axes, workload: Workload) -> None:
    _dress(axes, "Tokens", "tokens", "share of requests")
    lines = (("prompt", workload.prompt_tokens, _BLUE), ("output", workload.output_tokens, _ORANGE))
    for label, column, colour in lines:
        if column is not None:
            _cdf(axes, column.cdf, colour, label)
            _mark_median(axes, column, colour)
    axes.legend(loc="lower right", fontsize=8.5, framealpha=0.9)


def _cdf(axes: Axes, curve: Curve, colour: str, label: str | None) -> None:
    """A cumulative distribution on a logarithmic axis without its zeros; linear if all are."""
    positive = curve.x > 0
    x, y = (curve.x[positive], curve.y[positive]) if positive.any() else (curve.x, curve.y)
    if positive.any():
        axes.set_xscale("log")
    axes.step(np.append(x, x[-1]), np.append(y, 1.0), where="post", color=colour, linewidth=1.6, label=label)
    axes.set_ylim(0, 1.03)


def _mark_median(axes: Axes, column: Distribution, colour: str) -> None:
    median = column.quantiles.p50
    if median <= 0:
        return
    axes.plot([median], [0.5], "o", color=colour, markersize=4.5)
    axes.annotate(
        f"{median:,.0f}",
        (median, 0.5),
        xytext=(6, -10),
        textcoords="offset points",
        fontsize=8.5,
        color=colour,
    )


def _window_title(what: str, workload: Workload) -> str:
    return what if workload.window_seconds is None else f"{what}, windows of {_length(workload.window_seconds)}"


def _series(workload: Workload, column: str, unit: float) -> tuple[list[float], list[float]]:
    """Window ends and values; windows without a value are gaps in the line."""
    width = workload.window_seconds or 0.0
    at = [(w.start_seconds + width) / unit for w in workload.windows]
    values = [getattr(w, column) for w in workload.windows]
    return at, [np.nan if value is None else value for value in values]


def _entropy(axes: Axes, workload: Workload) -> None:
    unit, name = _time_unit(workload.span_seconds)
    _dress(axes, _window_title("Entropy of keys", workload), name, "bits")
    at, values = _series(workload, "entropy_bits", unit)
    if np.isnan(values).all():
        _nothing(axes, "no complete window" if workload.sampled is None else "not known from a sample of keys")
        return
    axes.plot(at, values, color=_GREEN, linewidth=1.6, marker="o", markersize=3)
    axes.yaxis.set_major_locator(MaxNLocator(6))
    axes.margins(y=0.25)
    axes.set_xlim(left=workload.windows[0].start_seconds / unit)


def _drift(axes: Axes, workload: Workload) -> None:
    unit, name = _time_unit(workload.span_seconds)
    _dress(axes, "Drift against the window before", name, "Jensen-Shannon distance")
    at, values = _series(workload, "js_distance", unit)
    if np.isnan(values).all():
        _nothing(axes, "no two neighbouring windows with requests")
        return
    axes.plot(at, values, color=_ORANGE, linewidth=1.6, marker="o", markersize=3, label="measured")
    axes.plot(
        at,
        _series(workload, "js_floor", unit)[1],
        color=_GREY,
        linestyle="--",
        linewidth=1.3,
        label="sampling alone",
        zorder=3,
    )
    axes.set_xlim(left=workload.windows[0].start_seconds / unit)
    axes.set_ylim(0, 1.05)
    axes.legend(loc="best", fontsize=8.5, framealpha=0.9)
