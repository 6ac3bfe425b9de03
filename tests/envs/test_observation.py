from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from envs.interval import COLUMN, STATS
from envs.observation import (
    LIMIT,
    NUM_GHOSTS,
    SIGNALS,
    SIZE,
    WHATIF_MEMORY,
    ObservationScale,
    clock,
    encode,
    measured,
    names,
    whatif_table,
)
from envs.reward import REWARD_GAIN
from envs.traffic import FEATURES

SCALE = ObservationScale(
    interval_seconds=10.0,
    requests_per_second=2.0,
    entropy_bits=3.0,
    prompt_tokens=400.0,
    output_tokens=100.0,
    interval_usd=0.5,
    p99_ttft_seconds=2.0,
    stale_ratio=0.05,
    daily=True,
    weekly=True,
)
SIGNAL_NAMES = [name for name, _ in SIGNALS]
wild = st.one_of(st.floats(), st.floats(-3.0, 3.0), st.just(math.nan))


def lane(**values: float) -> np.ndarray:
    row = np.full(STATS, np.nan)
    for name, value in values.items():
        row[COLUMN[name]] = value
    return row[None]


def arrived(**values: float) -> np.ndarray:
    return np.array([[values.get(name, np.nan) for name in FEATURES]])


def signal(told: np.ndarray, name: str) -> float:
    return float(told[0, SIGNAL_NAMES.index(name)])


def test_names_say_what_each_entry_is() -> None:
    assert len(names()) == len(set(names())) == SIZE
    assert names()[: len(SIGNALS)] == tuple(SIGNAL_NAMES)


@given(
    arrays(np.float64, (2, len(SIGNALS)), elements=wild),
    arrays(np.float64, (2, 3), elements=st.floats(-1.0, 1.0)),
    arrays(np.float64, 2, elements=st.floats(0, 4e9)),
    arrays(np.float64, (2, 2 * NUM_GHOSTS), elements=st.floats(-1e6, 1e6)),
)
def test_every_entry_is_finite_and_within_the_limit(
    signals: np.ndarray, offsets: np.ndarray, time: np.ndarray, whatif: np.ndarray
) -> None:
    told = encode(signals, offsets, clock(time, SCALE), whatif)
    assert told.shape == (2, SIZE)
    assert told.dtype == np.float32
    assert np.isfinite(told).all()
    assert (np.abs(told) <= LIMIT).all()
    known = told[:, len(SIGNALS) : 2 * len(SIGNALS)]
    assert (known == np.isfinite(signals)).all()
    assert (told[:, : len(SIGNALS)][known == 0] == 0).all()


def test_signals_by_hand() -> None:
    row = lane(
        requests=40.0,  # 4/s: twice the mean
        hit_ratio=0.75,
        p99_ttft_seconds=0.2,  # a tenth of the objective
        p99_latency_seconds=20.0,  # ten times the objective
        mean_wait_seconds=1.8,  # nine tenths of the objective
        stale_ratio=0.1,  # twice the budget
        utilisation=1.5,
        compute_usd=0.1,
        warmup_usd=0.1,
        memory_usd=0.1,
        staleness_usd=0.05,
        slow_usd=0.05,
    )
    traffic = arrived(entropy_bits=4.0, drift=0.5, prompt_tokens=800.0, output_tokens=50.0)
    told = measured(row, traffic, np.array([0.45]), SCALE)
    expected = {
        "qps": 0.5,
        "hit_ratio": 0.5,
        "p99_ttft": -1.0,
        "p99_latency": 0.0,
        "mean_wait": 1.0,
        "stale_ratio": 1.0,
        "utilisation": 2.0,
        "entropy": 0.5,
        "drift": 0.0,
        "prompt_tokens": 1.0,
        "output_tokens": -1.0,
        "saving": REWARD_GAIN * 0.05 / 0.5,
    }
    assert {name: signal(told, name) for name in expected} == pytest.approx(expected)
    assert math.isnan(signal(told, "byte_hit_ratio"))


def test_an_interval_without_requests_is_marked_missing() -> None:
    """No request: the rate has no logarithm and no ratio is known. Its cost, the rent, is."""
    row = lane(requests=0.0, compute_usd=0.0, warmup_usd=0.0, memory_usd=0.3, staleness_usd=0.0, slow_usd=0.0)
    signals = measured(row, arrived(requests=0.0), np.array([0.4]), SCALE)
    told = encode(signals, np.zeros((1, 3)), clock(np.zeros(1), SCALE), np.zeros((1, 2 * NUM_GHOSTS)))[0]
    entries = dict(zip(names(), told.tolist(), strict=True))
    for name in SIGNAL_NAMES:
        if name != "saving":
            assert (entries[name], entries[f"known_{name}"]) == (0.0, 0.0), name
    assert (entries["saving"], entries["known_saving"]) == (pytest.approx(2.0), 1.0)


def test_settings_and_clock_by_hand() -> None:
    # six hours into the second day of a week that begins at zero
    time = 86_400.0 + 21_600.0
    offsets = np.array([[0.1, -0.2, 0.5]])
    phases = clock(np.array([time]), SCALE)
    told = encode(np.zeros((1, len(SIGNALS))), offsets, phases, np.zeros((1, 2 * NUM_GHOSTS)))[0]
    entries = dict(zip(names(), told.tolist(), strict=True))
    assert [entries[f"position_{knob}"] for knob in ("cache_size", "ttl_seconds", "warmup_ratio")] == pytest.approx(
        [0.2, -0.4, 1.0]
    )
    assert (entries["sin_day"], entries["cos_day"]) == pytest.approx((1.0, 0.0), abs=1e-6)
    assert entries["sin_week"] == pytest.approx(math.sin(2 * math.pi * 1.25 / 7))
    assert entries["cos_week"] == pytest.approx(math.cos(2 * math.pi * 1.25 / 7))


def test_a_cycle_that_training_did_not_hold_twice_is_hidden() -> None:
    phases = clock(np.array([100_000.0]), dataclasses.replace(SCALE, weekly=False))[0]
    assert (phases[:2] != 0).all()
    assert (phases[2:] == 0).all()


def test_whatif_by_hand() -> None:
    # one ghost, three intervals; savings in rewards: 10 * (1 - 0.5) / 0.5 = 10, 10 * (1 - 1.5) / 0.5 = -10, 0
    table = whatif_table(np.array([[0.5, 1.5, 1.0]]), np.array([1.0, 1.0, 1.0]), SCALE)
    for column, memory in enumerate(WHATIF_MEMORY):
        first = (1 - memory) * 10
        second = memory * first - (1 - memory) * 10
        np.testing.assert_allclose(table[:, column], [0, first, second, memory * second])


def test_whatif_of_many_ghosts_is_each_by_itself() -> None:
    rng = np.random.default_rng(0)
    ghosts, reference = rng.uniform(0, 1, (NUM_GHOSTS, 6)), rng.uniform(0, 1, 6)
    table = whatif_table(ghosts, reference, SCALE)
    assert table.shape == (7, 2 * NUM_GHOSTS)
    for ghost in range(NUM_GHOSTS):
        alone = whatif_table(ghosts[ghost : ghost + 1], reference, SCALE)
        np.testing.assert_allclose(table[:, [ghost, NUM_GHOSTS + ghost]], alone)
