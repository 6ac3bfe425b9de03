"""A short trace on which a longer lifetime saves most of the cost, and settings for it."""

from __future__ import annotations

import tomllib

import numpy as np

from envs.world import Problem
from traces.trace import Trace, TraceInfo
from tuner.config import TunerConfig
from tuner.problem import problem_of

INTERVAL_SECONDS = 60.0  # as in SETTINGS
INTERVALS, PER_INTERVAL, KEYS = 80, 60, 200  # so many keys that one in twenty is some of them under any salt
SETTINGS = """
[trace]
path = "by-hand.trace"
interval_seconds = 60
split = { train = 0.15, validation = 0.1, test = 0.75 }

[knobs]
cache_size = { low = 100_000, high = 10_000_000, default = 1_000_000, max_step = 1.0 }
ttl_seconds = { low = 5, high = 100_000, default = 5, max_step = 1.0 }

[serving]
profile = "qwen-7b-a100"

[prices]
stale_answer_usd = 0

[rollout]
shadow_intervals = 2
step_intervals = [2, 2, 3, 1]
settle_intervals = 1

[experiment]
lead_in_intervals = 2
min_intervals = 4
min_requests = 50
luck_ratio = 0.05

[guardrails]
least_requests = 1
stale_ratio = 1.0
"""


def trace_by_hand() -> Trace:
    """Keys at random, each with its own tokens."""
    rng = np.random.default_rng(1)
    key = np.concatenate([np.arange(KEYS), rng.integers(0, KEYS, INTERVALS * PER_INTERVAL - KEYS)]).astype(np.int32)
    prompt, output = rng.integers(100, 1_000, KEYS).astype(np.int32), rng.integers(2, 60, KEYS).astype(np.int32)
    return Trace(
        TraceInfo("by-hand", "by hand"),
        np.linspace(0.0, (INTERVALS + 0.5) * INTERVAL_SECONDS, len(key)),
        key,
        np.full(len(key), 400, np.int32),
        KEYS,
        prompt_tokens=prompt[key],
        output_tokens=output[key],
    )


def problem_by_hand() -> Problem:
    return problem_of(TunerConfig.model_validate(tomllib.loads(SETTINGS)), trace_by_hand())
