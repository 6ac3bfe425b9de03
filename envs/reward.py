"""Money: what an interval cost, by cause, and the reward, which is what was saved against the reference."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from envs.units import GIB

Array = NDArray[Any]


def _price(default: float, help: str, unit: str, source: str, **limits: Any) -> Any:
    return Field(default, description=help, json_schema_extra={"unit": unit, "source": source}, **limits)


class Prices(BaseModel):
    """What things cost. Change them to yours: the best settings depend on them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    gpu_usd_per_hour: float = _price(
        2.0,
        "one GPU",
        "USD/h",
        "A100 80 GB on demand, listed at 1.49 to 2.49 by specialised clouds in early 2026",
        gt=0,
    )
    memory_usd_per_gib_hour: float = _price(
        0.004,
        "memory that the cache is given",
        "USD/(GiB h)",
        "assumption: host memory of a rented server; managed caches cost several times that",
        ge=0,
    )
    warmup_price_factor: float = _price(
        0.5, "price of a warm-up as a share of a miss", "ratio", "batch interfaces sell at half price", ge=0
    )
    stale_answer_usd: float = _price(
        0.0005, "one outdated answer", "USD", "assumption: about seven misses of 1,020 + 129 tokens", ge=0
    )
    answer_lifetime_seconds: float = _price(
        604_800.0, "mean time until an answer changes", "s", "assumption: a week", gt=0
    )
    slow_request_usd: float = _price(
        0.0005,
        "one request past the objective for its first token",
        "USD",
        "assumption: about seven misses of 1,020 + 129 tokens",
        ge=0,
    )


class Constraints(BaseModel):
    """What must hold in an interval, whatever it saves."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    p99_ttft_seconds: float = _price(2.0, "largest P99 of the time to the first token", "s", "your SLO", gt=0)
    stale_ratio: float = _price(
        0.05, "largest expected share of outdated answers among hits", "ratio", "your budget", gt=0, le=1
    )
    max_unsafe_per_1000: float = _price(
        1.0, "intervals in 1,000 that may break one of these", "intervals", "your tolerance", ge=0
    )


class Tariff(NamedTuple):
    """Prices as the kernels want them: all USD, per the unit in the name."""

    gpu_second: float
    byte_second: float
    warmup_factor: float
    stale_answer: float
    answer_lifetime_seconds: float
    slow_request: float


def tariff_of(prices: Prices) -> Tariff:
    return Tariff(
        prices.gpu_usd_per_hour / 3600.0,
        prices.memory_usd_per_gib_hour / GIB / 3600.0,
        prices.warmup_price_factor,
        prices.stale_answer_usd,
        prices.answer_lifetime_seconds,
        prices.slow_request_usd,
    )


CAUSES = ("compute", "warmup", "memory", "staleness", "slow")
COMPUTE, WARMUP, MEMORY, STALENESS, SLOW = range(5)


@njit(cache=True)
def price(tariff: Tariff, use: tuple[float, float, float, float, float], cost: Array) -> None:
    """Cost of an interval in USD by cause, written to `cost` (shape (5,), order of CAUSES).

    use: GPU seconds of misses, GPU seconds of warm-ups, byte seconds rented, expected stale answers, slow requests.
    """
    compute, warmup, byte_seconds, stale, slow = use
    cost[COMPUTE] = compute * tariff.gpu_second
    cost[WARMUP] = warmup * tariff.gpu_second * tariff.warmup_factor
    cost[MEMORY] = byte_seconds * tariff.byte_second
    cost[STALENESS] = stale * tariff.stale_answer
    cost[SLOW] = slow * tariff.slow_request


@njit(cache=True)
def stale_share(age_seconds: float, answer_lifetime_seconds: float) -> float:
    """Chance that an answer of this age is outdated: 1 - exp(-age/lifetime), answers changing as a Poisson process."""
    return 1.0 - math.exp(-age_seconds / answer_lifetime_seconds)


def reward(reference_cost: Array, cost: Array, scale: float) -> Array:
    """Saving of an interval against the reference on the same requests, in multiples of `scale` (USD: the mean cost of
    a reference interval on training traffic, over REWARD_GAIN). Shapes alike; NaN where either is not known."""
    return np.asarray((reference_cost - cost) / scale)


REWARD_GAIN = 10.0  # a saving of 10 % of a mean interval is a reward of 1: the size that PPO's value loss is made for
