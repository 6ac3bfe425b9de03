"""How a policy moved the settings over the test intervals: which knob, how far, how often, and when in the day."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agents.evaluation import CHANGE_SHARE, positions_of
from agents.tracks import Track
from agents.units import readable
from caches.knobs import Knob, KnobSpace

Array = NDArray[Any]
DAY_SECONDS = 86_400.0
PARTS = 6  # of a day, or of test traffic that is shorter than a day


@dataclass(frozen=True)
class KnobMovement:
    """One knob over the test. lowest, median, highest: settings in force, in the knob's unit. moves: intervals in which
    it moved by more than 1 % of its range. largest_step: as a share of the range."""

    knob: Knob
    lowest: float
    median: float
    highest: float
    moves: int
    largest_step: float


@dataclass(frozen=True)
class Part:
    """A part of the day (or of the test). changes: intervals in which any knob moved, of `intervals`. settings: mean in
    force by knob (of positions, so geometric where the knob's scale is logarithmic)."""

    name: str
    intervals: int
    changes: int
    settings: tuple[float, float, float]


@dataclass(frozen=True)
class Movement:
    """by_day: whether `parts` are parts of the day, over all test days together."""

    knobs: tuple[KnobMovement, ...]
    parts: tuple[Part, ...]
    by_day: bool


def movement_of(track: Track, knobs: KnobSpace, starts: Array, interval_seconds: float) -> Movement | None:
    """starts: (intervals,), on a clock whose zero is a midnight. None for a track without settings (a bound)."""
    if track.settings is None or track.before is None:
        return None
    positions = positions_of(track.settings, knobs)
    steps = np.abs(np.diff(np.vstack((knobs.positions(track.before), positions)), axis=0))
    moved = steps > CHANGE_SHARE + 1e-12
    by_knob = tuple(
        KnobMovement(
            knob,
            float(track.settings[:, i].min()),
            float(np.median(track.settings[:, i])),
            float(track.settings[:, i].max()),
            int(moved[:, i].sum()),
            float(steps[:, i].max()),
        )
        for i, knob in enumerate(knobs.knobs)
    )
    changed = np.asarray(moved.any(axis=1))
    by_day = len(starts) * interval_seconds >= DAY_SECONDS
    groups = _parts_of_day(starts) if by_day else _parts_of_test(starts, interval_seconds)
    parts = tuple(_part(name, which, positions, changed, knobs) for name, which in groups)
    return Movement(by_knob, parts, by_day)


def step_text(knob: Knob, share: float) -> str:
    """A step of a share of the range in words: a factor on a logarithmic scale, else an amount."""
    if share <= 0:
        return "none"
    if knob.scale == "log":
        return f"×/÷ {(knob.high / knob.low) ** share:.3g}"
    return f"± {readable(share * (knob.high - knob.low), knob.unit)}"


def _part(name: str, which: Array, positions: Array, changed: Array, knobs: KnobSpace) -> Part:
    settings = knobs.settings(positions[which].mean(axis=0)).as_array()
    return Part(name, len(which), int(changed[which].sum()), (settings[0], settings[1], settings[2]))


def _parts_of_day(starts: Array) -> Iterator[tuple[str, Array]]:
    hours = 24 // PARTS
    part = (starts % DAY_SECONDS // (hours * 3600)).astype(np.int64)
    for number in range(PARTS):
        which = np.flatnonzero(part == number)
        if len(which):
            yield f"{hours * number:02d}:00 to {hours * (number + 1):02d}:00", which


def _parts_of_test(starts: Array, interval_seconds: float) -> Iterator[tuple[str, Array]]:
    for which in np.array_split(np.arange(len(starts)), min(PARTS, len(starts))):
        yield f"{_clock(starts[which[0]])} to {_clock(starts[which[-1]] + interval_seconds)}", which


def _clock(seconds: float) -> str:
    return f"{datetime.fromtimestamp(0, UTC) + timedelta(seconds=float(seconds)):%H:%M:%S}"


def busiest(parts: Sequence[Part]) -> Part | None:
    """The part with the most changes per interval; None where nothing changed."""
    most = max(parts, key=lambda part: part.changes / part.intervals)
    return most if most.changes else None
