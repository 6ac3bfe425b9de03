"""What a control policy sees: the last interval's signals, the traffic, the settings, the clock and the what-if ghosts.

Every entry is a finite float32 in [-LIMIT, LIMIT]. A signal that is not known is 0 with its `known` entry 0; a known
one has `known` 1. The layout is versioned: a policy trained on one version refuses to run on another.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs import traffic as traffic_columns
from envs.interval import column, total_usd
from envs.reward import REWARD_GAIN

Array = NDArray[Any]

OBSERVATION_VERSION = "1"
LIMIT = 5.0
DAY_SECONDS = 86_400.0
POSITION_GAIN = 2.0  # a knob moved by half its range is an entry of 1
WHATIF_MEMORY = (0.7, 0.95)  # weight of the past in the two averages of what-if savings, per interval

SIGNALS = (
    ("qps", "log2 of requests/s over the training mean, / 2"),
    ("hit_ratio", "2 x - 1"),
    ("byte_hit_ratio", "2 x - 1"),
    ("token_hit_ratio", "2 x - 1"),
    ("vram_ratio", "2 x - 1"),
    ("p99_latency", "log10 of seconds over ten times the first-token objective"),
    ("p99_ttft", "log10 of seconds over the first-token objective"),
    ("utilisation", "2 x - 1"),
    ("mean_wait", "log10 of (1 + seconds over a tenth of the objective)"),
    ("stale_ratio", "share of the staleness budget used, - 1"),
    ("fill_ratio", "2 x - 1"),
    ("entropy", "bits above the training mean, / 2"),
    ("drift", "2 x - 1, x the Jensen-Shannon divergence in bits between this interval's keys and the last's"),
    ("one_hit_ratio", "2 x - 1"),
    ("new_key_ratio", "2 x - 1"),
    ("prompt_tokens", "log2 over the training mean"),
    ("output_tokens", "log2 over the training mean"),
    ("saving", "reward of the last interval"),
)
SETTINGS = ("cache_size", "ttl_seconds", "warmup_ratio")
CLOCK = ("sin_day", "cos_day", "sin_week", "cos_week")
NUM_GHOSTS = 12
SIZE = 2 * len(SIGNALS) + len(SETTINGS) + len(CLOCK) + 2 * NUM_GHOSTS


@dataclass(frozen=True)
class ObservationScale:
    """What training traffic was like; travels with the policy so that the same signal means the same live.

    interval_usd: mean cost of a reference interval. daily, weekly: whether training traffic held at least two such
    cycles; a clock that did not come round twice in training teaches dates, not habits, and is hidden.
    """

    interval_seconds: float
    requests_per_second: float
    entropy_bits: float
    prompt_tokens: float
    output_tokens: float
    interval_usd: float
    p99_ttft_seconds: float
    stale_ratio: float
    daily: bool
    weekly: bool


def names() -> tuple[str, ...]:
    """One name per entry of an observation."""
    ghosts = [f"whatif_{g}" for g in range(NUM_GHOSTS)]
    return (
        *(name for name, _ in SIGNALS),
        *(f"known_{name}" for name, _ in SIGNALS),
        *(f"position_{name}" for name in SETTINGS),
        *CLOCK,
        *(f"{name}_lately" for name in ghosts),
        *(f"{name}_for_long" for name in ghosts),
    )


def measured(rows: Array, traffic: Array, reference_usd: Array, scale: ObservationScale) -> Array:
    """Scaled signals, shape (lanes, len(SIGNALS)), NaN where not known.

    rows: (lanes, STATS), the last interval of each lane. traffic: (lanes, 7). reference_usd: (lanes,), what the
    reference cost in that interval.
    """
    objective = scale.p99_ttft_seconds
    with np.errstate(divide="ignore", invalid="ignore"):
        signals = (
            np.log2(column(rows, "requests") / scale.interval_seconds / scale.requests_per_second) / 2.0,
            2.0 * column(rows, "hit_ratio") - 1.0,
            2.0 * column(rows, "byte_hit_ratio") - 1.0,
            2.0 * column(rows, "token_hit_ratio") - 1.0,
            2.0 * column(rows, "vram_ratio") - 1.0,
            np.log10(column(rows, "p99_latency_seconds") / (10.0 * objective)),
            np.log10(column(rows, "p99_ttft_seconds") / objective),
            2.0 * column(rows, "utilisation") - 1.0,
            np.log10(1.0 + column(rows, "mean_wait_seconds") / (0.1 * objective)),
            column(rows, "stale_ratio") / scale.stale_ratio - 1.0,
            2.0 * column(rows, "fill_ratio") - 1.0,
            (traffic[:, traffic_columns.ENTROPY] - scale.entropy_bits) / 2.0,
            2.0 * traffic[:, traffic_columns.DRIFT] - 1.0,
            2.0 * traffic[:, traffic_columns.ONE_HIT] - 1.0,
            2.0 * traffic[:, traffic_columns.NEW_KEY] - 1.0,
            np.log2(traffic[:, traffic_columns.PROMPT] / scale.prompt_tokens),
            np.log2(traffic[:, traffic_columns.OUTPUT] / scale.output_tokens),
            REWARD_GAIN * (reference_usd - total_usd(rows)) / scale.interval_usd,
        )
    return np.stack(signals, axis=-1)


def whatif_table(ghost_usd: Array, reference_usd: Array, scale: ObservationScale) -> Array:
    """What each ghost would have saved, known when interval i begins: (intervals + 1, 2 x ghosts).

    Two exponential averages over all intervals before, a quick and a slow one (WHATIF_MEMORY): a single interval says
    little about the next. Zero before the first. Units of the reward.
    """
    saved = REWARD_GAIN * (reference_usd[None, :] - ghost_usd) / scale.interval_usd
    ghosts, intervals = saved.shape
    table = np.zeros((intervals + 1, 2 * ghosts))
    memory = np.repeat(WHATIF_MEMORY, ghosts)
    for i in range(intervals):
        table[i + 1] = memory * table[i] + (1.0 - memory) * np.tile(saved[:, i], 2)
    return table


def clock(time_seconds: Array, scale: ObservationScale) -> Array:
    """Phase of day and week, shape (lanes, len(CLOCK)), zero where hidden. time_seconds: on a clock whose zero is a
    midnight."""
    day = 2.0 * np.pi * time_seconds / DAY_SECONDS
    phases = np.stack((np.sin(day), np.cos(day), np.sin(day / 7.0), np.cos(day / 7.0)), axis=-1)
    return np.asarray(phases * (scale.daily, scale.daily, scale.weekly, scale.weekly))


def encode(signals: Array, offsets: Array, phases: Array, whatif: Array) -> NDArray[np.float32]:
    """Observations, float32 of shape (lanes, SIZE).

    signals: (lanes, len(SIGNALS)) from `measured`. offsets: (lanes, 3), positions of the current settings minus those
    of the reference. phases: (lanes, len(CLOCK)) from `clock`. whatif: (lanes, 2 x NUM_GHOSTS).
    """
    known = np.isfinite(signals)
    parts = (np.where(known, signals, 0.0), known, POSITION_GAIN * offsets, phases, whatif)
    return np.asarray(np.clip(np.concatenate(parts, axis=-1), -LIMIT, LIMIT), np.float32)
