"""One control interval of a live cache: from two readings of its counters to the statistics that training knows.

The definition of an interval is the one of `envs/interval.py`; here its numbers are counted instead of replayed. What a
live cache cannot tell (queueing, utilisation, VRAM) is NaN, unless a measured signal says it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caches.histograms import above, quantile
from caches.knobs import KnobSettings
from caches.target import Arm, ArmCounters, Counted, Histogram
from envs.interval import COLUMN, COSTS, NAMES, STATS
from envs.reward import Constraints, Prices, Tariff, price, tariff_of
from envs.serving import Serving, ServingProfile, backend_of

Array = NDArray[Any]

GAUGES = ("entries", "used_bytes")
COUNTERS = tuple(field.name for field in fields(ArmCounters) if field.type == "int" and field.name not in GAUGES)
HISTOGRAMS = ("ttft_seconds", "latency_seconds", "hit_age_seconds")
QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


@dataclass(frozen=True)
class LivePrices:
    """What an interval's numbers cost. prefill_seconds, decode_seconds: GPU seconds per prompt and per output token."""

    tariff: Tariff
    prefill_seconds: float
    decode_seconds: float
    objective_seconds: float

    @staticmethod
    def of(prices: Prices, constraints: Constraints, profile: ServingProfile, serving: Serving) -> LivePrices:
        backend = backend_of(profile, serving)
        return LivePrices(
            tariff_of(prices),
            backend.prefill_seconds_per_token,
            backend.gpu_seconds_per_output_token,
            constraints.p99_ttft_seconds,
        )

    def gpu_seconds(self, prompt_tokens: float, output_tokens: float) -> float:
        return prompt_tokens * self.prefill_seconds + output_tokens * self.decode_seconds


@dataclass(frozen=True)
class Gap:
    """Nothing can be said of an interval. reason: a sentence."""

    reason: str


def difference(before: Counted | None, after: Counted | None) -> Mapping[Arm, ArmCounters] | Gap:
    """What was counted between two readings, and what is held at the second; a gap where that cannot be known."""
    if before is None or after is None:
        return Gap(
            f"The cache's counters could not be read when the interval {'began' if before is None else 'ended'}."
        )
    if before.began_seconds != after.began_seconds:
        return Gap("The cache was started anew in the interval.")
    if after.at_seconds <= before.at_seconds:
        return Gap("The cache's clock did not go on in the interval.")
    found = {}
    for arm in Arm:
        one = _minus(after.arms[arm], before.arms[arm])
        if one is None:
            return Gap(f"Counters of the {arm} arm went back in the interval.")
        found[arm] = one
    return found


def _minus(after: ArmCounters, before: ArmCounters) -> ArmCounters | None:
    """None where a counter went back."""
    counts = {name: getattr(after, name) - getattr(before, name) for name in COUNTERS}
    histograms = {name: _less(getattr(after, name), getattr(before, name)) for name in HISTOGRAMS}
    if min(counts.values()) < 0 or None in histograms.values():
        return None
    return ArmCounters(**counts, **histograms, **{name: getattr(after, name) for name in GAUGES})  # type: ignore[arg-type]


def _less(after: Histogram, before: Histogram) -> Histogram | None:
    if after.bounds != before.bounds:
        return None
    counts = tuple(a - b for a, b in zip(after.counts, before.counts, strict=True))
    return None if min(counts) < 0 else Histogram(after.bounds, counts, max(after.total - before.total, 0.0))


def live_row(
    counted: ArmCounters,
    settings: KnobSettings,
    share: float,
    seconds: float,
    prices: LivePrices,
    signals: Mapping[str, float] | None = None,
) -> Array:
    """Statistics of one arm, shape (STATS,), order of envs.interval.NAMES, NaN for what is not known.

    counted: in the interval, as `difference` returns it. settings: of the whole cache; the arm has `share` of its
    size. seconds: how long the interval was. signals: by names of envs.interval.NAMES, of what was measured elsewhere;
    they count where the counters say nothing.
    """
    row = np.full(STATS, np.nan)
    misses, capacity = counted.requests - counted.hits, settings.cache_size * share
    asked = counted.hit_bytes + counted.miss_bytes
    stale = stale_answers(counted.hit_age_seconds, prices.tariff.answer_lifetime_seconds)
    slow = above(counted.ttft_seconds, prices.objective_seconds)
    found: dict[str, float | None] = {
        "requests": counted.requests,
        "hits": counted.hits,
        "hit_ratio": ratio(counted.hits, counted.requests),
        "byte_hit_ratio": ratio(counted.hit_bytes, asked),
        "token_hit_ratio": ratio(counted.hit_tokens, counted.tokens),
        "stale_answers": stale,
        "stale_ratio": ratio(stale, counted.hits),
        "warmups": counted.warmups,
        "expirations": counted.expirations,
        "evictions": counted.evictions,
        "used_bytes": counted.used_bytes,
        "fill_ratio": ratio(counted.used_bytes, capacity),
        "slow_requests": slow,
    }
    for name, share_below in QUANTILES.items():
        found[f"{name}_ttft_seconds"] = quantile(counted.ttft_seconds, share_below)
        found[f"{name}_latency_seconds"] = quantile(counted.latency_seconds, share_below)
    for name, value in found.items():
        if value is not None:
            row[COLUMN[name]] = value
    for name, value in (signals or {}).items():
        if np.isnan(row[COLUMN[name]]):
            row[COLUMN[name]] = value
    compute = prices.gpu_seconds(counted.miss_prompt_tokens, counted.miss_output_tokens) if misses else 0.0
    warmup = prices.gpu_seconds(counted.warmup_prompt_tokens, counted.warmup_output_tokens)
    price(prices.tariff, (compute, warmup, capacity * seconds, stale, slow), row[COSTS])
    return row


def as_window(row: Array) -> dict[str, float | None]:
    """By name, None for what is not known."""
    return {name: None if math.isnan(value) else float(value) for name, value in zip(NAMES, row, strict=True)}


def as_row(window: Mapping[str, float | None]) -> Array:
    """Inverse of `as_window`; a name that is not there is not known."""
    return np.array([math.nan if (value := window.get(name)) is None else value for name in NAMES])


def ratio(part: float, whole: float) -> float:
    """NaN of nothing."""
    return part / whole if whole > 0 else math.nan


def stale_answers(ages: Histogram, answer_lifetime_seconds: float) -> float:
    """Expected number of outdated answers among hits of these ages (envs.reward.stale_share).

    The ages in a bucket count as its middle, all middles scaled so that their sum is the sum of the ages."""
    counts = np.array(ages.counts, float)
    lows = np.array((0.0, *ages.bounds))
    highs = np.array((*ages.bounds, ages.bounds[-1]))
    middles = np.where(lows > 0.0, np.sqrt(lows * highs), highs / 2.0)
    guessed = float(counts @ middles)
    if guessed <= 0.0:
        return 0.0
    return float(counts @ -np.expm1(-middles * (ages.total / guessed) / answer_lifetime_seconds))
