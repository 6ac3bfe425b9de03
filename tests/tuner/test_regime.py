"""The watch for changes of regime beside a detector that is never interrupted, and what is done when it speaks."""

from __future__ import annotations

import json
import math
from dataclasses import astuple, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from river.drift import ADWIN

from agents.drift import fires_at_last
from caches.errors import InputError
from tuner.regime import (
    FEATURES,
    RegimeWatch,
    Response,
    Shift,
    TrafficFeatures,
    intervals_since_shift,
    response,
    settled,
)
from tuner.regime_section import RegimeConfig

DAY = 24  # intervals of an hour
HOURLY = RegimeConfig(block_seconds=3600.0, calm_blocks=24, kept_blocks=150)


def traffic(days: int, seed: int = 0, **changes: tuple[int, float]) -> list[TrafficFeatures]:
    """A day's wave in the rate and noise in everything. changes: of a feature, from which day on and how much is added
    (to the rate and tokens: by how much they are multiplied, in powers of two)."""
    rng, found = np.random.default_rng(seed), []
    for hour in range(days * DAY):
        plain = {name: float(rng.normal(0.0, 0.05)) for name in FEATURES}
        plain["requests_per_second"] += math.sin(2.0 * math.pi * hour / DAY)
        for name, (day, more) in changes.items():
            plain[name] += more if hour >= day * DAY else 0.0
        logarithmic = {name: 2.0 ** plain[name] for name in ("requests_per_second", "prompt_tokens", "output_tokens")}
        found.append(TrafficFeatures(**plain | logarithmic))
    return found


def watched(
    features: list[TrafficFeatures], config: RegimeConfig = HOURLY, interval_seconds: float = 3600.0
) -> tuple[list[tuple[int, Shift]], dict[str, Any] | None]:
    """Its memory goes through JSON at every interval."""
    memory, told = None, []
    for index, one in enumerate(features):
        memory, shift = RegimeWatch(config, interval_seconds).update(one, memory)
        memory = json.loads(json.dumps(memory))
        if shift is not None:
            told.append((index, shift))
    return told, memory


def uninterrupted(features: list[TrafficFeatures]) -> int | None:
    """The interval of the first alarm of detectors that live on: hours less those of a day before, in deviations of the
    first day of such changes."""
    rows = np.array([astuple(one) for one in features])
    rows[:, [0, 4, 5]] = np.log2(rows[:, [0, 4, 5]])
    rows = np.round(rows, 6)
    changes = rows[DAY:] - rows[:-DAY]
    deviation = changes[:DAY].std(axis=0)
    detectors = [ADWIN(delta=1e-4, clock=1) for _ in FEATURES]
    for index, change in enumerate(changes):
        for detector, value in zip(detectors, change / deviation, strict=True):
            detector.update(value)
        if index >= DAY - 1 and any(detector.drift_detected for detector in detectors):
            return index + DAY
    return None


@pytest.mark.parametrize("seed", range(4))
def test_it_says_what_a_detector_says_that_was_never_interrupted(seed: int) -> None:
    features = traffic(9, seed, entropy_bits=(5, 0.4))
    told, _ = watched(features)
    assert told[0][0] == uninterrupted(features)
    assert told[0][1].features == ("entropy_bits",)
    assert 5 * DAY <= told[0][0] < 6 * DAY
    assert told[0][1].reason == "Traffic is no longer what it was: entropy bits changed by more than chance explains."


@pytest.mark.parametrize(
    "change",
    [
        {"requests_per_second": (5, 1.0)},
        {"hit_ratio": (5, -0.4)},
        {"drift": (5, 0.4)},
        {"prompt_tokens": (5, 0.6)},
        {"output_tokens": (5, -0.6)},
    ],
)
def test_every_feature_is_watched(change: dict[str, tuple[int, float]]) -> None:
    told, _ = watched(traffic(7, **change))
    assert [shift.features for _, shift in told] == [tuple(change)]


@pytest.mark.parametrize("seed", range(2))
def test_days_alike_raise_no_alarm_and_memory_stays_small(seed: int) -> None:
    told, memory = watched(traffic(15, seed))
    assert told == []
    assert memory is not None
    assert len(memory["means"]) == 150
    assert len(json.dumps(memory)) < 12_000


def test_after_a_change_it_begins_anew_and_counts_the_intervals() -> None:
    """The new level is the new calm: neither it nor, a day later, its being like the day before is another change."""
    told, memory = watched(traffic(10, entropy_bits=(5, 0.4)))
    assert len(told) == 1
    assert intervals_since_shift(memory) == 10 * DAY - 1 - told[0][0]
    assert memory is not None
    assert memory["changed"] == ["entropy_bits"]
    assert intervals_since_shift(settled(memory)) is None
    assert settled(memory)["means"] == memory["means"]
    assert intervals_since_shift(None) is None


def test_it_knows_a_second_change_by_what_traffic_varied_before_the_first() -> None:
    """No second day of calm is needed: a day to compare with is enough."""
    features = traffic(10, entropy_bits=(5, 0.4))
    later = [
        replace(one, hit_ratio=(one.hit_ratio or 0.0) + (0.5 if hour >= 8 * DAY else 0.0))
        for hour, one in enumerate(features)
    ]
    told, _ = watched(later)
    assert [shift.features for _, shift in told] == [("entropy_bits",), ("hit_ratio",)]


def test_intervals_are_averaged_over_blocks() -> None:
    """Of an hour made of four, by hand: rates 1, 2, 4 and one that is not known have the mean logarithm 1."""
    config = RegimeConfig(season_seconds=0.0)
    rates = [1.0, 2.0, 4.0, None]
    memory: dict[str, Any] | None = None
    for rate in rates:
        memory, shift = RegimeWatch(config, 900.0).update(TrafficFeatures(rate, hit_ratio=0.5), memory)
        assert shift is None
    assert memory == {
        "block": [],
        "means": [[1.0, 0.5, None, None, None, None]],
        "deviation": None,
        "intervals_since": None,
        "changed": [],
    }


@given(
    st.lists(st.one_of(st.none(), st.just(math.nan), st.just(math.inf), st.just(0.0), st.floats(-1, 1)), max_size=60)
)
@settings(deadline=None, max_examples=40)
def test_poisoned_features_are_not_known_and_alarm_nobody(values: list[float | None]) -> None:
    config = RegimeConfig(season_seconds=0.0, block_seconds=1.0, calm_blocks=8, kept_blocks=16)
    poisoned = [TrafficFeatures(value, None, math.nan, math.inf, value, 0.0) for value in values]
    _, memory = watched([*poisoned, TrafficFeatures()], config, 1.0)
    assert memory is not None
    assert len(memory["means"]) <= 16
    rows = [*memory["block"], *memory["means"]]
    assert all(value is None or math.isfinite(value) for row in rows for value in row)


def test_traffic_that_stops_is_no_change_of_regime() -> None:
    silence = [TrafficFeatures(requests_per_second=0.0)] * (3 * DAY)
    assert watched([*traffic(5), *silence])[0] == []


@pytest.mark.parametrize(
    "memory", [{"means": [[1.0]]}, {"block": "abc"}, {"deviation": [1.0]}, {"unknown": 1}, {"intervals_since": "soon"}]
)
def test_a_memory_of_something_else_is_refused(memory: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="regime memory: got"):
        RegimeWatch(HOURLY, 3600.0).update(TrafficFeatures(), memory)


def test_what_is_done_when() -> None:
    config = RegimeConfig(hold_intervals=6, retrain_intervals=144)
    table = [(0, Response.HOLD), (5, Response.HOLD), (6, Response.WHATIF), (143, Response.WHATIF)]
    assert [response(since, True, config) for since, _ in table] == [what for _, what in table]
    assert {response(since, False, config) for since, _ in table} == {Response.HOLD}
    for whatif in (True, False):
        assert response(144, whatif, config) is Response.RETRAIN_REQUESTED
        assert response(10_000, whatif, config) is Response.RETRAIN_REQUESTED
        assert response(None, whatif, config) is None


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"hold_intervals": 10, "retrain_intervals": 10}, "hold_intervals below retrain_intervals"),
        ({"kept_blocks": 40}, "a season and the calm blocks after it"),
        ({"delta": 0.0}, "greater than 0"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(change: dict[str, Any], expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        RegimeConfig(**change)


def test_a_detector_fed_anew_fires_only_at_the_last_value() -> None:
    rng = np.random.default_rng(0)
    values = np.concatenate((rng.normal(0.0, 1.0, 50), rng.normal(6.0, 1.0, 30)))
    fired = [n for n in range(1, len(values) + 1) if fires_at_last(values[:n], 1e-4)]
    assert fired
    assert 50 < fired[0] <= 65
    assert not fires_at_last([], 1e-4)
    assert not fires_at_last([math.nan] * 5, 1e-4)
