"""When and how far settings moved."""

from __future__ import annotations

import numpy as np
import pytest

from agents.tracks import Track
from api.report.movement import Part, busiest, movement_of, step_text
from caches.knobs import Knob, KnobSettings, KnobSpace
from envs.interval import STATS

HOUR = 3600.0
KNOBS = KnobSpace(
    cache_size=Knob("cache_size", "bytes", 1.0, 10_000.0, 100.0, 0.5, "log"),
    ttl_seconds=Knob("ttl_seconds", "seconds", 1.0, 10_000.0, 100.0, 0.5, "log"),
    warmup_ratio=Knob("warmup_ratio", "share", 0.0, 1.0, 0.5, 0.25, "linear"),
)
HOME = KnobSettings(100.0, 100.0, 0.5)


def track(settings: list[tuple[float, float, float]]) -> Track:
    return Track("PPO seed 0", "learned", np.full((len(settings), STATS), np.nan), np.array(settings), HOME, 0, 1)


def test_movement_counts_what_moved_and_when() -> None:
    """Two days in intervals of 12 hours. Position of 100 is 0.5 and of 1,000 is 0.75 on a scale of 1 to 10,000."""
    moved = track([(100.0, 100.0, 0.5), (1000.0, 100.0, 0.5), (1000.0, 100.0, 0.505), (100.0, 10.0, 0.505)])
    found = movement_of(moved, KNOBS, np.arange(4) * 12 * HOUR, 12 * HOUR)
    assert found is not None
    size, lifetime, warmup = found.knobs
    assert (size.lowest, size.median, size.highest, size.moves) == (100.0, 550.0, 1000.0, 2)
    assert size.largest_step == pytest.approx(0.25)
    assert (lifetime.moves, lifetime.lowest) == (1, 10.0)
    assert (warmup.moves, warmup.largest_step) == (0, pytest.approx(0.005))  # less than 1 % of the range is no move
    assert found.by_day
    night, noon = found.parts
    assert (night.name, night.intervals, night.changes) == ("00:00 to 04:00", 2, 0)
    assert (noon.name, noon.intervals, noon.changes) == ("12:00 to 16:00", 2, 2)
    assert night.settings == pytest.approx((10**2.5, 100.0, 0.5025))  # mean of positions 0.5 and 0.75 is 0.625
    assert busiest(found.parts) == noon


def test_a_test_shorter_than_a_day_is_cut_into_parts_of_its_own() -> None:
    found = movement_of(track([(100.0, 100.0, 0.5)] * 3), KNOBS, 23 * HOUR + np.arange(3) * HOUR, HOUR)
    assert found is not None
    assert not found.by_day
    assert [part.name for part in found.parts] == [
        "23:00:00 to 00:00:00",
        "00:00:00 to 01:00:00",
        "01:00:00 to 02:00:00",
    ]
    assert busiest(found.parts) is None


def test_a_bound_has_no_movement() -> None:
    bound = Track("bound", "bound", np.zeros((2, STATS)), None, None)
    assert movement_of(bound, KNOBS, np.zeros(2), HOUR) is None


def test_busiest_counts_per_interval() -> None:
    parts = (Part("long", 10, 2, (1.0, 1.0, 1.0)), Part("short", 2, 1, (1.0, 1.0, 1.0)))
    assert busiest(parts) == parts[1]


@pytest.mark.parametrize(
    ("knob", "share", "text"),
    [
        (KNOBS.cache_size, 0.25, "×/÷ 10"),  # a quarter of four powers of ten
        (KNOBS.warmup_ratio, 0.25, "± 0.25"),
        (KNOBS.warmup_ratio, 0.0, "none"),
    ],
)
def test_steps_in_words(knob: Knob, share: float, text: str) -> None:
    assert step_text(knob, share) == text
