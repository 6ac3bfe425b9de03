"""One interval of a live cache: counted, priced, and unknown where nothing can be known."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from caches.knobs import KnobSettings
from caches.target import Arm, ArmCounters, Counted, Histogram
from envs.interval import COLUMN, COSTS, NAMES
from envs.live import Gap, LivePrices, as_row, as_window, difference, live_row, stale_answers
from envs.reward import Constraints, Prices, Tariff
from envs.serving import Serving, load_profile

BOUNDS = (1.0, 10.0, 100.0)
NOTHING = Histogram(BOUNDS, (0, 0, 0, 0), 0.0)
ZERO = ArmCounters(**dict.fromkeys(ArmCounters.__dataclass_fields__, 0))  # type: ignore[arg-type]
IDLE = replace(ZERO, ttft_seconds=NOTHING, latency_seconds=NOTHING, hit_age_seconds=NOTHING)
PRICES = LivePrices(Tariff(2.0, 0.001, 0.5, 0.1, 1000.0, 0.25), 0.01, 0.02, 10.0)
SETTINGS = KnobSettings(100.0, 60.0, 0.0)


def counted(at: float, began: float = 0.0, **control: object) -> Counted:
    return Counted(began, at, {Arm.CONTROL: replace(IDLE, **control), Arm.TREATMENT: IDLE})  # type: ignore[arg-type]


def test_difference_of_two_readings_is_what_was_counted_between_them() -> None:
    before = counted(5.0, requests=10, hits=4, used_bytes=70, latency_seconds=Histogram(BOUNDS, (1, 2, 0, 0), 9.0))
    after = counted(9.0, requests=17, hits=6, used_bytes=50, latency_seconds=Histogram(BOUNDS, (1, 5, 0, 1), 209.0))
    found = difference(before, after)
    assert not isinstance(found, Gap)
    arm = found[Arm.CONTROL]
    assert (arm.requests, arm.hits, arm.used_bytes) == (7, 2, 50)  # a gauge is not a difference
    assert arm.latency_seconds == Histogram(BOUNDS, (0, 3, 0, 1), 200.0)


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (None, counted(9.0), "when the interval began"),
        (counted(5.0), None, "when the interval ended"),
        (counted(5.0, began=0.0), counted(9.0, began=7.0), "started anew"),
        (counted(5.0), counted(5.0), "did not go on"),
        (counted(5.0, requests=3), counted(9.0, requests=2), "control arm went back"),
        (
            counted(5.0, latency_seconds=Histogram(BOUNDS, (2, 0, 0, 0), 1.0)),
            counted(9.0, latency_seconds=Histogram(BOUNDS, (1, 9, 0, 0), 30.0)),
            "control arm went back",
        ),
    ],
)
def test_gap_where_nothing_can_be_said(before: Counted | None, after: Counted | None, told: str) -> None:
    found = difference(before, after)
    assert isinstance(found, Gap)
    assert told in found.reason


def test_idle_interval_costs_its_memory_and_has_no_ratios() -> None:
    row = live_row(IDLE, SETTINGS, 0.25, 4.0, PRICES)
    assert row[COLUMN["requests"]] == 0
    for name in ("hit_ratio", "stale_ratio", "p99_ttft_seconds", "utilisation", "vram_ratio", "mean_wait_seconds"):
        assert math.isnan(row[COLUMN[name]]), name
    # 100 bytes x a quarter x 4 s at 0.001 USD per byte second
    assert row[COSTS].tolist() == pytest.approx([0.0, 0.0, 0.1, 0.0, 0.0])


def test_row_prices_what_was_counted() -> None:
    arm = replace(
        IDLE,
        requests=10,
        hits=6,
        hit_bytes=30,
        miss_bytes=10,
        hit_tokens=90,
        tokens=120,
        miss_prompt_tokens=20,
        miss_output_tokens=10,
        warmups=1,
        warmup_prompt_tokens=5,
        warmup_output_tokens=0,
        used_bytes=25,
        ttft_seconds=Histogram(BOUNDS, (6, 2, 2, 0), 130.0),
        hit_age_seconds=Histogram(BOUNDS, (0, 6, 0, 0), 24.0),
    )
    row = live_row(arm, SETTINGS, 0.5, 2.0, PRICES, {"vram_ratio": 0.4, "hit_ratio": 0.1})
    window = as_window(row)
    assert (window["hit_ratio"], window["byte_hit_ratio"], window["token_hit_ratio"]) == (0.6, 0.75, 0.75)
    assert window["fill_ratio"] == 0.5
    assert window["vram_ratio"] == 0.4  # from elsewhere; the hit ratio was counted here
    stale = 6 * (1.0 - math.exp(-4.0 / 1000.0))  # six hits of 4 s each on average
    assert window["stale_answers"] == pytest.approx(stale)
    assert window["stale_ratio"] == pytest.approx(stale / 6)
    assert window["slow_requests"] == 2  # above ten seconds
    expected = [(20 * 0.01 + 10 * 0.02) * 2.0, 5 * 0.01 * 2.0 * 0.5, 100 * 0.5 * 2 * 0.001, stale * 0.1, 2 * 0.25]
    assert row[COSTS].tolist() == pytest.approx(expected)


def test_windows_and_rows_are_one_thing() -> None:
    row = live_row(IDLE, SETTINGS, 1.0, 1.0, PRICES)
    assert set(as_window(row)) == set(NAMES)
    np.testing.assert_array_equal(as_row(as_window(row)), row)


def test_stale_answers_of_no_hits_are_none() -> None:
    assert stale_answers(NOTHING, 10.0) == 0.0


def test_prices_are_those_of_the_serving_model() -> None:
    profile = load_profile("qwen2.5-7b-a100")
    prices = LivePrices.of(Prices(), Constraints(), profile, Serving())
    expected = 1000 / profile.prefill_tokens_per_second
    expected += 100 * profile.seconds_per_output_token / profile.max_sequences
    assert prices.gpu_seconds(1000, 100) == pytest.approx(expected)
