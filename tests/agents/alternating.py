"""Traffic whose best setting alternates with the clock, by construction.

Half of each day (phase "dear") answers are long, so a hit saves much; in the other half ("cheap") an answer costs
next to nothing to compute and a hit risks being outdated. Every interval asks for keys of its own, so nothing is
carried from one to the next and what an interval costs depends on its own settings alone. Knobs may jump anywhere in
one step. So the best that any policy can do is, interval by interval, the cheapest of all settings, which are few.
"""

from __future__ import annotations

import itertools

import numpy as np

from caches.knobs import Knob, KnobSettings, KnobSpace
from envs.interval import total_usd
from envs.reward import Constraints, Prices
from envs.serving import Serving, ServingProfile
from envs.world import Problem, World
from traces.trace import Trace, TraceInfo

INTERVAL_SECONDS = 10_800.0
INTERVALS_A_DAY = 8
KEYS, REQUESTS, SIZE_BYTES = 40, 240, 1_000  # per interval
DEAR_TOKENS, CHEAP_TOKENS = 1_000, 20
KNOBS = KnobSpace(
    Knob("cache_size", "bytes", 1_000.0, 100_000.0, 10_000.0, 1.0, "log"),
    Knob("ttl_seconds", "seconds", 180.0, 21_600.0, 1_800.0, 1.0, "log"),
    Knob("warmup_ratio", "share", 0.0, 1.0, 0.0, 1.0, "linear"),
)


def trace_of(days: int, seed: int = 0) -> Trace:
    """Zipf keys at even distances, in the same order in each interval, but never the same keys twice.

    Days begin half an interval after midnight, so that no phase ends where the sine of the clock is zero.
    """
    rng = np.random.default_rng(seed)
    intervals = days * INTERVALS_A_DAY
    popularity = 1.0 / np.arange(1, KEYS + 1)
    local = rng.choice(KEYS, REQUESTS, p=popularity / popularity.sum())
    key = (local + KEYS * np.arange(intervals)[:, None]).ravel()
    time = np.arange(intervals * REQUESTS) * (INTERVAL_SECONDS / REQUESTS)
    dear = (time // INTERVAL_SECONDS) % INTERVALS_A_DAY < INTERVALS_A_DAY / 2
    dense, key = np.unique(key, return_inverse=True)
    return Trace(
        info=TraceInfo("alternating", f"seed {seed}", start_unix_seconds=INTERVAL_SECONDS / 2),
        arrival_seconds=np.append(time, intervals * INTERVAL_SECONDS),  # closes the last interval
        key=np.append(key, key[-1]).astype(np.int32),
        size_bytes=np.full(len(time) + 1, SIZE_BYTES, np.int32),
        num_keys=len(dense),
        prompt_tokens=np.full(len(time) + 1, 10, np.int32),
        output_tokens=np.append(np.where(dear, DEAR_TOKENS, CHEAP_TOKENS), 1).astype(np.int32),
    )


def problem_of(days: int = 36) -> Problem:
    """Rent, staleness and compute of the same order; nothing queues."""
    profile = ServingProfile(
        name="alternating",
        vram_gib=80.0,
        weights_gib=14.0,
        kv_bytes_per_token=1,
        prefill_tokens_per_second=1e6,
        seconds_per_output_token=0.001,
        max_sequences=1,
    )
    prices = Prices(
        gpu_usd_per_hour=3_600.0,  # 1 USD for a dear answer, 0.02 for a cheap one
        memory_usd_per_gib_hour=2**30 * 1e-4 / 3,  # 0.1 USD an interval for each key held
        stale_answer_usd=1.0,
        answer_lifetime_seconds=21_600.0,
        slow_request_usd=0.0,
    )
    constraints = Constraints(max_unsafe_per_1000=1_000)  # money alone decides
    return Problem(trace_of(days), INTERVAL_SECONDS, KNOBS, prices, constraints, profile, Serving(replicas=64))


def every_setting() -> list[KnobSettings]:
    """All that differ in what they do, and of those that do the same the cheapest.

    A capacity between two multiples of the size holds no more than the smaller; none needs room for more than all
    keys. Ages are multiples of the distance between requests, and a hit is younger than the lifetime: between two
    multiples nothing changes. Keys never come back, so a warm-up is wasted.
    """
    capacities = SIZE_BYTES * np.arange(1, KEYS + 1)
    distance = INTERVAL_SECONDS / REQUESTS
    lifetimes = np.arange(KNOBS.ttl_seconds.low, INTERVAL_SECONDS + distance, distance)
    return [KnobSettings(float(c), float(t), 0.0) for c, t in itertools.product(capacities, lifetimes)]


def optimum_usd(world: World) -> np.ndarray:
    """The least that each interval can cost, shape (intervals,). Days are alike, so the first stands for all."""
    first_day = total_usd(world.replay_static(every_setting(), INTERVALS_A_DAY)).min(axis=0)
    return np.tile(first_day, len(world) // INTERVALS_A_DAY)
