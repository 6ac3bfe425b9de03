"""Arms that take turns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from caches.target import Arm
from tests.tuner.interval_records import record
from tuner.judging.switchback import Switchback, pair_differences, settled, switchback_effect
from tuner.records import IntervalRecord

DESIGN = Switchback(seed=1, block_intervals=3, washout_intervals=1, max_pairs=20)


def whole(usd: Any, intervals: int, design: Switchback = DESIGN, began: int = 0) -> list[IntervalRecord]:
    """Of the whole cache, put down to the control arm. usd: by interval and whether the challenger has the cache."""
    return [
        record(began + n, Arm.CONTROL, float(usd(n, design.arm(n) is Arm.TREATMENT)), share=1.0)
        for n in range(intervals)
    ]


def test_each_pair_of_blocks_has_both_arms_in_an_order_of_chance() -> None:
    blocks = [[DESIGN.arm(3 * block + inside) for inside in range(3)] for block in range(40)]
    assert all(len(set(block)) == 1 for block in blocks)
    firsts = [blocks[2 * pair][0] for pair in range(20)]
    assert all(blocks[2 * pair][0] != blocks[2 * pair + 1][0] for pair in range(20))
    assert 4 <= firsts.count(Arm.TREATMENT) <= 16
    assert DESIGN.arm(120) is None
    assert [DESIGN.counted(n) for n in range(6)] == [False, True, True, False, True, True]


def test_a_pair_by_hand() -> None:
    """The challenger costs 2 and the control 3 per 1,000 requests; the washed out 100 do not count."""
    found = pair_differences(
        whole(lambda n, ours: 100.0 if n % 3 == 0 else (2.0 if ours else 3.0), 11, began=5), DESIGN, 5
    )
    assert [(one.pair, one.requests) for one in found] == [(0, 4_000.0)]  # the second pair is not over
    assert found[0].usd == pytest.approx(-0.001)


def test_a_day_with_a_shape_favours_nobody() -> None:
    """Costs double and halve over the day; the treatment saves 10 %."""
    random = np.random.default_rng(3)

    def usd(n: int, ours: bool) -> float:
        return (1.5 + np.sin(n / 20.0)) * (0.9 if ours else 1.0) * (1.0 + 0.01 * random.normal())

    found = switchback_effect(whole(usd, 120), DESIGN, 0)
    assert settled(found)
    assert found.high < 0
    assert found.batches == 20
    assert found.mean == pytest.approx(-0.00015, rel=0.3)


def test_ghosts_take_the_shape_of_the_day_away() -> None:
    def usd(n: int, ours: bool) -> float:
        return (1.5 + np.sin(n / 20.0)) - (0.1 if ours else 0.0)

    records = whole(usd, 120)
    told = [IntervalRecord(**{**vars(one), "reference_usd": usd(one.index, False)}) for one in records]
    found = switchback_effect(told, DESIGN, 0)
    assert found.mean == pytest.approx(-0.0001)
    assert found.standard_error == pytest.approx(0.0, abs=1e-12)


def test_turns_without_an_effect_are_rarely_wrong() -> None:
    wrong = 0
    for seed in range(30):
        random = np.random.default_rng(seed)
        design = Switchback(seed=seed, block_intervals=2, washout_intervals=0, max_pairs=20)
        level = np.cumsum(random.normal(0.0, 0.05, 80)) + 5.0
        records = whole(lambda n, ours, level=level: level[n], 80, design)
        looks = [switchback_effect(records[:n], design, 0) for n in range(16, 81, 8)]
        wrong += any(settled(one) for one in looks)
    assert wrong <= 1


def test_a_block_has_to_outlast_its_washout() -> None:
    with pytest.raises(ValidationError, match="washout_intervals below block_intervals"):
        Switchback(block_intervals=2, washout_intervals=2)
