"""Pictures of a judgement: cost over time, settings over time, cost by cause.

Figures are built without pyplot, so nothing global is touched and no display is needed. Colours are those of Okabe and
Ito, which people with any colour vision tell apart; lines also differ in dash, bars in position and label.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from agents.figure_axes import clock_axis, dress, knob_axis
from agents.judge import Judgement
from agents.results import Evaluation, PolicyResult
from agents.tracks import Role, Track
from agents.units import readable, usd
from caches.files import written_whole
from envs.interval import column

Array = NDArray[Any]

BLACK, GREY, ORANGE, SKY, GREEN, BLUE, RED, PINK = (
    "#222222",
    "#8a8f98",
    "#e69f00",
    "#56b4e9",
    "#009e73",
    "#0072b2",
    "#d55e00",
    "#cc79a7",
)
CAUSE_COLOURS = {"compute": BLUE, "warmup": SKY, "memory": GREEN, "staleness": ORANGE, "slow": RED}
SMOOTHING_POINTS = 60  # a line is smoothed to about this many independent points
CAUSE_NAMES = {
    "compute": "compute of misses",
    "warmup": "warm-ups",
    "memory": "memory",
    "staleness": "stale answers",
    "slow": "slow answers",
}


def save_pictures(judgement: Judgement, folder: Path) -> tuple[Path, ...]:
    """Writes cost_over_time.png, settings_over_time.png and cost_by_cause.png, each replaced in one step."""
    drawers: dict[str, Callable[[Judgement], Figure]] = {
        "cost_over_time": draw_cost,
        "settings_over_time": draw_settings,
        "cost_by_cause": lambda judged: draw_causes(judged.evaluation),
    }
    folder.mkdir(parents=True, exist_ok=True)
    return tuple(_save(draw(judgement), folder / f"{name}.png") for name, draw in drawers.items())


def draw_cost(judgement: Judgement) -> Figure:
    """Cost per 1,000 requests of best static, the cheapest rival, the learned policies (mean and range over seeds) and
    the bounds; below, what they save, added up."""
    figure = _figure(8.0, judgement.evaluation, "Cost over time on held-out traffic")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    times, requests = _times(judgement), column(judgement.tracks[0].rows, "requests")
    width = max(len(times) // SMOOTHING_POINTS, 1)

    def cost(spent: Array) -> Array:
        return _smoothed(1000.0 * spent, requests, width)

    learned, lines = _learned(judgement), _lines(judgement)
    for track, label, style in lines:
        above.plot(times, cost(track.usd), label=label, zorder=3, **style)
    best = next(track for track in judgement.tracks if track.role == "best static")
    if learned:
        band = np.array([cost(track.usd) for track in learned])
        above.fill_between(times, band.min(axis=0), band.max(axis=0), color=BLUE, alpha=0.2, linewidth=0)
        above.plot(times, band.mean(axis=0), color=BLUE, linewidth=2.0, label=_seeds_label(learned, "mean and range"))
    dress(above, f"USD per 1,000 requests{_window(judgement, width)}")
    above.legend(loc="upper center", bbox_to_anchor=(0.5, 1.13), ncols=6, fontsize=9, frameon=False)
    _total_saving(below, times, best, lines, learned)
    dress(below, "USD saved since the start")
    clock_axis(below, times, *_clock(judgement))
    return figure


def draw_settings(judgement: Judgement) -> Figure:
    """The three knobs over time: each learned policy, the cheapest rival, the clairvoyant bound, and the constant line
    of best static."""
    figure = _figure(9.0, judgement.evaluation, "Settings over time on held-out traffic")
    panels = figure.subplots(3, 1, sharex=True)
    times, learned = _times(judgement), _learned(judgement)
    best = judgement.study.reference.settings.as_array()
    for index, (axes, knob) in enumerate(zip(panels, judgement.study.world.problem.knobs.knobs, strict=True)):
        for track in learned:
            assert track.settings is not None  # only the ghost bound has none
            axes.step(times, track.settings[:, index], where="post", color=SKY, linewidth=0.8, alpha=0.7)
        if learned:
            settings = np.array([track.settings for track in learned])[:, :, index]
            middle = np.median(settings, axis=0)
            axes.step(
                times,
                middle,
                where="post",
                color=BLUE,
                linewidth=1.3,
                label=_seeds_label(learned, "median"),
            )
        if len(learned) > 1:
            axes.plot([], [], color=SKY, linewidth=1.2, label="each seed")
        for track, label, style in _lines(judgement):
            if track.settings is not None and track.role in ("baseline", "bound"):
                axes.step(times, track.settings[:, index], where="post", label=label, **style)
        axes.axhline(best[index], color=RED, linestyle="--", linewidth=1.6, label="best static")
        knob_axis(axes, knob)
    panels[0].legend(loc="upper center", bbox_to_anchor=(0.5, 1.24), ncols=5, fontsize=9, frameon=False)
    clock_axis(panels[-1], times, *_clock(judgement))
    return figure


def draw_causes(evaluation: Evaluation) -> Figure:
    """One stacked bar per policy, cheapest cause first, with the total and the saving against best static."""
    bars = _bars(evaluation)
    figure = _figure(1.6 + 0.55 * len(bars), evaluation, "Cost by cause on held-out traffic")
    axes = figure.subplots()
    left = np.zeros(len(bars))
    for cause, colour in CAUSE_COLOURS.items():
        parts = np.array([result[1][cause] for result in bars])
        axes.barh(range(len(bars)), parts, left=left, color=colour, label=CAUSE_NAMES[cause], height=0.62)
        left = left + parts
    for place, (_, _, note) in enumerate(bars):
        axes.annotate(note, (left[place], place), xytext=(6, 0), textcoords="offset points", va="center", fontsize=9)
    axes.set_yticks(range(len(bars)), [name for name, _, _ in bars])
    axes.invert_yaxis()
    axes.set_xlim(0, float(left.max()) * 1.42)
    dress(axes, None)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("USD per 1,000 requests", fontsize=9.5)
    axes.legend(loc="lower center", bbox_to_anchor=(0.42, 1.0), ncols=5, fontsize=9, frameon=False)
    return figure


Style = dict[str, Any]
_LINES: dict[Role, tuple[str, Style]] = {
    "best static": ("best static", {"color": RED, "linestyle": "--", "linewidth": 1.6}),
    "champion": ("champion", {"color": PINK, "linewidth": 1.6}),
    "bound": ("clairvoyant bound", {"color": BLACK, "linestyle": ":", "linewidth": 1.4}),
    "ghost bound": ("per-interval static bound", {"color": GREY, "linestyle": (0, (1, 3)), "linewidth": 1.2}),
}
_RIVAL: Style = {"color": GREEN, "linestyle": "-.", "linewidth": 1.3}


def _lines(judgement: Judgement) -> list[tuple[Track, str, Style]]:
    """Every single track that is drawn, with its label and how it is drawn."""
    rivals = [track for track in judgement.tracks if track.role == "baseline"]
    rival = min(rivals, key=lambda track: float(track.usd.sum()), default=None)
    lines = [] if rival is None else [(rival, rival.name, _RIVAL)]
    return lines + [(track, *_LINES[track.role]) for track in judgement.tracks if track.role in _LINES]


def _figure(height: float, evaluation: Evaluation, title: str) -> Figure:
    figure = Figure(figsize=(11, height), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    setting = evaluation.setting
    name = setting.trace if len(setting.trace) <= 60 else f"{setting.trace[:59]}…"
    composed = ", composed of several sources" if setting.composed else ""
    days = evaluation.intervals * setting.interval_seconds / 86400.0
    figure.suptitle(
        f"{title}\n{name}{composed}: {evaluation.requests:,} requests in {days:.3g} days",
        x=0.01,
        ha="left",
        fontsize=12,
    )
    return figure


def _bars(evaluation: Evaluation) -> list[tuple[str, dict[str, float], str]]:
    """Name, USD by cause and what is written beside it; the learned policies as their mean."""
    bars: list[tuple[str, dict[str, float], str]] = []
    learned = [policy for policy in evaluation.policies if policy.role == "learned"]
    for policy in evaluation.policies:
        if policy.role != "learned":
            bars.append((policy.name, policy.usd_by_cause_per_1000, _beside(policy)))
        elif policy is learned[0]:
            bars.append(_mean_bar(evaluation, learned))
    return bars


def _mean_bar(evaluation: Evaluation, learned: Sequence[PolicyResult]) -> tuple[str, dict[str, float], str]:
    causes = {c: float(np.mean([policy.usd_by_cause_per_1000[c] for policy in learned])) for c in CAUSE_COLOURS}
    together = evaluation.learned
    percent = None if together is None or together.saving.percent is None else together.saving.percent
    total = sum(causes.values())
    note = usd(total)
    if percent is not None:
        note += f"   {_against(percent.mean)} ({percent.low:.2f} to {percent.high:.2f})"
    name = "learned" if len(learned) == 1 else f"learned, mean of {len(learned)} seeds"
    return name, causes, note


def _beside(policy: PolicyResult) -> str:
    percent = None if policy.saving is None else policy.saving.percent
    total = usd(policy.usd_per_1000)
    return total if percent is None else f"{total}   {_against(percent.mean)}"


def _against(percent: float) -> str:
    """What a saving against best static is called."""
    if abs(percent) < 0.005:
        return "as best static"
    return f"saves {percent:.2f} %" if percent > 0 else f"costs {-percent:.2f} % more"


def _total_saving(
    axes: Axes, times: Array, best: Track, lines: Sequence[tuple[Track, str, Style]], learned: list[Track]
) -> None:
    for track, _, style in lines:
        axes.plot(times, np.cumsum(best.usd - track.usd), **style)
    if learned:
        saved = np.array([np.cumsum(best.usd - track.usd) for track in learned])
        axes.fill_between(times, saved.min(axis=0), saved.max(axis=0), color=BLUE, alpha=0.2, linewidth=0)
        axes.plot(times, saved.mean(axis=0), color=BLUE, linewidth=2.0)


def _learned(judgement: Judgement) -> list[Track]:
    return [track for track in judgement.tracks if track.role == "learned"]


def _seeds_label(learned: Sequence[Track], how: str) -> str:
    return "the learned policy" if len(learned) == 1 else f"{len(learned)} learned policies, {how}"


def _window(judgement: Judgement, width: int) -> str:
    seconds = width * judgement.evaluation.setting.interval_seconds
    return "" if width == 1 else f",\nmean over {readable(seconds, 'seconds')}"


def _smoothed(numerator: Array, requests: Array, width: int) -> Array:
    """Ratio of centred running sums; NaN where nothing was requested. The window is cut at the ends."""
    window = np.ones(width)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.convolve(numerator, window, "same") / np.convolve(requests, window, "same"))


def _clock(judgement: Judgement) -> tuple[float, bool]:
    """Length of an interval, and whether the trace is dated."""
    problem = judgement.study.world.problem
    return problem.interval_seconds, problem.trace.info.start_unix_seconds is not None


def _times(judgement: Judgement) -> Array:
    """When each test interval begins, in seconds on a clock whose zero is a midnight."""
    world, test = judgement.study.world, judgement.study.test
    start = world.problem.trace.info.start_unix_seconds or 0.0
    return np.array([start + world.timeline.begin(index) for index in test])


def _save(figure: Figure, path: Path) -> Path:
    with written_whole(path) as partial:
        figure.savefig(partial, format="png", dpi=110)
    return path
