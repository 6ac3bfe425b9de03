from __future__ import annotations

import math

import numpy as np
import pytest

from envs.reward import CAUSES, REWARD_GAIN, Constraints, Prices, price, reward, stale_share, tariff_of
from envs.units import GIB


def test_an_interval_priced_by_hand() -> None:
    tariff = tariff_of(
        Prices(
            gpu_usd_per_hour=3.6,  # 0.001 a second
            memory_usd_per_gib_hour=0.0036,  # 1e-6 a GiB second
            warmup_price_factor=0.5,
            stale_answer_usd=0.01,
            slow_request_usd=0.02,
        )
    )
    cost = np.zeros(len(CAUSES))
    # 7 GPU seconds of misses, 4 of warm-ups, 2 GiB for 300 s, 3.5 stale answers, 6 slow requests
    price(tariff, (7.0, 4.0, 2 * GIB * 300.0, 3.5, 6.0), cost)
    assert dict(zip(CAUSES, cost.tolist(), strict=True)) == pytest.approx(
        {"compute": 0.007, "warmup": 0.002, "memory": 0.0006, "staleness": 0.035, "slow": 0.12}
    )


def test_an_answer_goes_stale_like_a_poisson_process() -> None:
    assert stale_share(0.0, 100.0) == 0.0
    assert stale_share(100.0, 100.0) == pytest.approx(1 - 1 / math.e)
    assert stale_share(100.0 * math.log(2), 100.0) == pytest.approx(0.5)


def test_reward_is_the_saving_in_tenths_of_a_mean_interval() -> None:
    told = reward(np.array([2.0, 2.0, np.nan]), np.array([1.5, 3.0, 1.0]), 2.0 / REWARD_GAIN)
    np.testing.assert_allclose(told, [2.5, -5.0, np.nan])


@pytest.mark.parametrize("section", [Prices, Constraints])
def test_every_price_has_unit_help_and_source(section: type[Prices] | type[Constraints]) -> None:
    for name, info in section.model_fields.items():
        assert info.description, name
        assert isinstance(info.json_schema_extra, dict), name
        assert info.json_schema_extra["unit"], name
        assert info.json_schema_extra["source"], name
