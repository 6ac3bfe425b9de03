"""Small problems for the tests of this folder and of agents: seconds of traffic, a handful of keys."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from caches.knobs import Knob, KnobSettings, KnobSpace
from envs.control import Episodes, observation_scale
from envs.observation import ObservationScale
from envs.reward import Constraints, Prices
from envs.serving import Serving, ServingProfile
from envs.world import Problem, Reference, World
from traces.trace import Trace, TraceInfo

INTERVAL_SECONDS = 10.0
PROFILE = ServingProfile(
    name="small",
    vram_gib=1.0,
    weights_gib=0.5,
    kv_bytes_per_token=100_000,
    prefill_tokens_per_second=1_000.0,
    seconds_per_output_token=0.02,
    max_sequences=4,
    hit_seconds=0.001,
)
PRICES = Prices(
    gpu_usd_per_hour=3.6, memory_usd_per_gib_hour=4_000.0, stale_answer_usd=0.0002, answer_lifetime_seconds=60.0
)
KNOBS = KnobSpace(
    Knob("cache_size", "bytes", 100.0, 10_000.0, 1_000.0, 0.1, "log"),
    Knob("ttl_seconds", "seconds", 1.0, 100.0, 20.0, 0.2, "log"),
    Knob("warmup_ratio", "share", 0.0, 1.0, 0.0, 0.25, "linear"),
)
SETTINGS = KnobSettings(2_000.0, 15.0, 0.5)


def random_trace(
    seed: int, intervals: int = 12, requests_per_interval: float = 12.0, num_keys: int = 20, plain: bool = True
) -> Trace:
    """Poisson arrivals over that many intervals and a bit, sizes of a key fixed; some intervals may be empty.

    plain: without lifetimes of requests' own and without writes and deletes.
    """
    rng = np.random.default_rng(seed)
    span = (intervals + 0.5) * INTERVAL_SECONDS
    count = max(2, int(rng.poisson(intervals * requests_per_interval)))
    time = np.sort(np.round(rng.uniform(0.0, span, count), 1))  # coarse, so that ages meet lifetimes exactly
    time[0], time[-1] = 0.0, span
    key = np.minimum(rng.geometric(0.15, count) - 1, num_keys - 1).astype(np.int32)
    size = rng.integers(10, 400, num_keys).astype(np.int32)
    more: dict[str, Any] = {}
    if not plain:
        more["ttl_seconds"] = rng.choice([np.nan, np.nan, 4.0, 8.0], count).astype(np.float32)
        more["operation"] = rng.choice([0, 0, 0, 0, 0, 1, 2], count).astype(np.uint8)
    return Trace(
        info=TraceInfo("random", f"seed {seed}", start_unix_seconds=1_000_000.0),
        arrival_seconds=time,
        key=key,
        size_bytes=size[key],
        num_keys=num_keys,
        prompt_tokens=rng.integers(10, 900, count).astype(np.int32),
        output_tokens=rng.integers(1, 80, count).astype(np.int32),
        **more,
    )


def problem(trace: Trace | None = None, **changes: Any) -> Problem:
    """8 candidates for warm-up, two slots, prices at which every cause counts."""
    small = Problem(
        trace=random_trace(0) if trace is None else trace,
        interval_seconds=INTERVAL_SECONDS,
        knobs=KNOBS,
        prices=PRICES,
        constraints=Constraints(p99_ttft_seconds=1.0005, stale_ratio=0.2),  # no delay here ends in half a millisecond
        profile=PROFILE,
        serving=Serving(max_sequences=2),
        warmup_candidates=8,
    )
    return replace(small, **changes)


def study(
    seed: int = 0, intervals: int = 30, threads: int = 1, horizon: int = 8
) -> tuple[Reference, ObservationScale, Episodes]:
    """Training traffic is the first two thirds."""
    world = World(problem(random_trace(seed, intervals)), threads)
    training = range(2 * intervals // 3)
    episodes = Episodes.over(training, horizon, 4)
    reference = Reference(world, SETTINGS, (*episodes.starts, training.stop))
    return reference, observation_scale(world, reference, training), episodes
