"""A calibration as a profile file, as a table of errors and as a picture of quantiles against quantiles.

Figures are built without pyplot, so nothing global is touched and no display is needed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from caches.files import written_whole
from envs.calibration import Calibration, PartResult
from envs.serving import ServingProfile, load_profile

Array = NDArray[Any]
BLUE, ORANGE, GREY = "#0072b2", "#e69f00", "#8a8f98"
SHOWN_QUANTILES = np.linspace(0.02, 0.99, 60)
GOAL = 0.15
FITTED_FIELDS = (
    "prefill_tokens_per_second",
    "request_overhead_seconds",
    "seconds_per_output_token_alone",
    "seconds_per_output_token",
    "prefill_chunk_tokens",
    "kv_tokens",
    "output_memory_share",
)
ALSO_DETERMINES = {"slowdown of a full batch": "seconds_per_output_token"}


class ErrorRow(NamedTuple):
    """One part: P50, P90 and P99 measured (s) and the errors of the prediction, of TTFT and of total latency."""

    run: str
    requests: int
    held: bool
    ttft_measured: tuple[float, ...]
    ttft_errors: tuple[float, ...]
    latency_measured: tuple[float, ...]
    latency_errors: tuple[float, ...]


def error_rows(calibration: Calibration) -> list[ErrorRow]:
    return [
        ErrorRow(
            result.part.name,
            len(result.part.rows),
            result.part.held,
            result.ttft.measured,
            result.ttft.errors,
            result.latency.measured,
            result.latency.errors,
        )
        for result in calibration.parts
    ]


def summary(calibration: Calibration) -> str:
    """One line: what was held back and the median error there."""
    held = calibration.median_error(held=True)
    if held is None:
        fitted = calibration.median_error(held=False)
        return f"{calibration.measurement.split}: median absolute error of P50 and P99 TTFT {fitted:.1%}"
    return f"{calibration.measurement.split}: median absolute error of P50 and P99 TTFT there {held:.1%}"


def sentence(calibration: Calibration) -> str:
    text = summary(calibration)
    return text[0].upper() + text[1:]


# The profile as a file


def save_profile(calibration: Calibration, name: str, source: str, path: Path, today: date) -> ServingProfile:
    """Writes the fitted profile as TOML, in one step, after reading it back. source: which runs, for the file's
    reader. The folder must exist."""
    profile = calibration.profile.model_copy(
        update={"name": name, "sources": calibration.profile.sources | _sources(calibration, source, today)}
    )
    with written_whole(path) as partial:
        partial.write_text(profile_toml(profile, _heading(calibration, source, today)), encoding="utf-8")
        return load_profile(str(partial))


def profile_toml(profile: ServingProfile, heading: str) -> str:
    """The profile in TOML, without fields that have their default and no source."""
    fields = {
        name: value
        for name, value in profile.model_dump(exclude={"sources"}).items()
        if name in profile.sources or value != ServingProfile.model_fields[name].default
    }
    plain = "".join(character if character.isprintable() or character == "\n" else " " for character in heading)
    lines = [f"# {line}" for line in plain.splitlines()]
    lines += [f"{key} = {_toml(value)}" for key, value in fields.items()]
    lines += ["", "[sources]", *(f"{key} = {_toml(text)}" for key, text in profile.sources.items())]
    return "\n".join(lines) + "\n"


def _toml(value: str | float) -> str:
    if isinstance(value, float):
        return repr(float(f"{value:.6g}"))
    # the escapes of JSON strings are a subset of TOML's, but for the character DEL
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _heading(calibration: Calibration, source: str, today: date) -> str:
    deployment = calibration.deployment
    many = f"{deployment.replicas} replicas, routing {deployment.routing}" if deployment.replicas > 1 else "One replica"
    words = [f"{many}, prefixes found again: {deployment.reuse}"]
    if np.isfinite(deployment.host_tokens) and deployment.reuse.endswith("host"):
        words.append(f"host memory of {deployment.host_tokens:,.0f} tokens a replica")
    if np.isfinite(deployment.transfer_tokens_per_second):
        words.append(f"{deployment.transfer_tokens_per_second:,.0f} tokens/s from there to the GPU")
    return (
        f"Fitted by `setpoint calibrate` on {today.isoformat()} from {source}.\n"
        f"{sentence(calibration)}.\n{'; '.join(words)}."
    )


def _sources(calibration: Calibration, source: str, today: date) -> dict[str, str]:
    """What each fitted field rests on."""
    determined = {ALSO_DETERMINES.get(fit.name, fit.name): fit.determined for fit in calibration.fitted}
    limits = calibration.measurement.limits
    words = {}
    for field in FITTED_FIELDS:
        if field in determined:
            told = f"{source}, {today.isoformat()}"
            words[field] = f"fitted to {told}" if determined[field] else f"not determined by {told}: as it was before"
        elif getattr(limits, field, None) is not None:
            words[field] = f"set on the measured engine ({limits.description or 'its settings'})"
    if limits.max_sequences is not None:
        words["max_sequences"] = f"set on the measured engine ({limits.description or 'its settings'})"
    return words


# The picture


def save_qq(calibration: Calibration, title: str, path: Path) -> None:
    """Writes the picture as PNG, replacing `path` in one step. Raises SetpointError where it cannot be written."""
    with written_whole(path) as partial:
        draw_qq(calibration, title).savefig(partial, format="png", dpi=110)


def draw_qq(calibration: Calibration, title: str) -> Figure:
    """Predicted quantiles over measured ones, a line per run, of TTFT and of total latency."""
    figure = Figure(figsize=(11, 5.6), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    _panel(left, calibration, "time to the first token (s)", lambda r: (r.part.ttft, r.ttft_predicted))
    _panel(right, calibration, "total latency (s)", lambda r: (r.part.latency, r.latency_predicted))
    figure.suptitle(f"{title}\n{sentence(calibration)}", x=0.01, ha="left", fontsize=11)
    return figure


def _panel(axes: Axes, calibration: Calibration, what: str, of: Callable[[PartResult], tuple[Array, Array]]) -> None:
    lowest, highest = np.inf, 0.0
    for result in calibration.parts:
        measured, predicted = (np.quantile(values, SHOWN_QUANTILES) for values in of(result))
        lowest = min(lowest, measured.min(), predicted.min())
        highest = max(highest, measured.max(), predicted.max())
        held = result.part.held
        axes.plot(measured, predicted, color=BLUE if held else ORANGE, linewidth=1.4 if held else 0.9, zorder=3 + held)
        for quantile, marker in ((0.5, "o"), (0.99, "s")):
            point = np.quantile(of(result)[0], quantile), np.quantile(of(result)[1], quantile)
            axes.plot(*point, marker, color=BLUE if held else ORANGE, markersize=5, zorder=5)
    span = np.array([lowest / 1.5, highest * 1.5])
    axes.fill_between(span, span * (1 - GOAL), span * (1 + GOAL), color=GREY, alpha=0.2, linewidth=0)
    axes.plot(span, span, color=GREY, linewidth=1)
    axes.set(xscale="log", yscale="log", xlim=span, ylim=span, xlabel=f"measured, {what}", ylabel="predicted")
    axes.grid(alpha=0.25)
    axes.set_aspect("equal")
    held = any(result.part.held for result in calibration.parts)
    labels = [("held back", BLUE)] * held + [("used to fit", ORANGE)]
    for label, colour in labels:
        axes.plot([], [], color=colour, label=label)
    axes.plot([], [], "o", color=GREY, label="P50")
    axes.plot([], [], "s", color=GREY, label="P99")
    axes.plot([], [], color=GREY, alpha=0.4, linewidth=8, label="within 15 %")
    axes.legend(loc="upper left", fontsize=9, frameon=False)
