"""Our engine and prefix cache together beside NVIDIA Dynamo's simulated engine: what is reused, and when first tokens
come.

Dynamo has a timing of its own, which nobody claims to be that of some GPU. So the engine is fitted to the first half of
the requests as Dynamo timed them with the largest pool, each prompt without what Dynamo reused of it; then ours runs by
itself, cache and queue, for every pool.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import dynamo_peer
from benchmarks.dynamo_peer import Unavailable, Wanted
from benchmarks.harness import Table, say
from benchmarks.prefix_cache import BLOCK, MOONCAKE, blocks_of, first_requests
from caches.shadow.trie import chains_of
from envs.calibration import Calibration, calibrate
from envs.deployment import Deployment
from envs.engine import engine_of
from envs.interval import COLUMN, STATS
from envs.measurement import measurement_of
from envs.prefix import Placement
from envs.prefix_lanes import Link, PrefixScene, make_prefix_lanes, run_interval
from envs.reward import Prices, tariff_of
from envs.serving import Load, Serving, ServingProfile, load_profile
from traces.catalog import load_trace
from traces.request_logs import EngineLimits, MeasuredRun
from traces.trace import Trace

Array = NDArray[Any]

POOLS = (1_000, 4_000, 16_000, 50_000)  # blocks of an engine's pool; the longest prompt has 244
LIMITS = (256, 8_192)  # sequences at once and tokens of an iteration, Dynamo's defaults
QUANTILES = (0.5, 0.95, 0.99)
TTFT_COLUMNS = ("p50_ttft_seconds", "p95_ttft_seconds", "p99_ttft_seconds")


@dataclass(frozen=True)
class Row:
    """theirs, ours: token hit ratios. their_ttft, our_ttft: QUANTILES, s. preempted: requests that Dynamo admitted more
    than once."""

    pool: int
    theirs: float
    ours: float
    their_ttft: tuple[float, ...]
    our_ttft: tuple[float, ...]
    preempted: int


@dataclass(frozen=True)
class Beside:
    rows: Sequence[Row]
    fit: Calibration
    facts: tuple[str, ...]

    def table(self) -> Table:
        rows = [
            [
                f"{row.pool:,}",
                f"{100 * row.theirs:.2f}",
                f"{100 * row.ours:.2f}",
                *(value for pair in zip(row.their_ttft, row.our_ttft, strict=True) for value in pair),
                row.preempted,
            ]
            for row in self.rows
        ]
        times = [cell for name in ("P50", "P95", "P99") for cell in (f"TTFT {name}, theirs", "ours")]
        header = ("blocks of the pool", "token hit ratio, theirs, %", "ours, %", *times, "preempted, theirs")
        return Table("Beside Dynamo's replay: what is reused, and time to the first token (s)", header, rows)


def beside(quick: bool) -> Beside:
    """Raises Unavailable where Dynamo or the trace cannot be had."""
    if not MOONCAKE.exists():
        raise Unavailable(f"no {MOONCAKE.name} beside the repository")
    whole = load_trace(MOONCAKE)
    trace = first_requests(whole, 600 if quick else len(whole))
    pools = POOLS[1:3] if quick else POOLS
    say("Dynamo's replay as recorded")
    answers = dynamo_peer.replay(trace, [Wanted(pool, None) for pool in pools])
    say("the engine fitted to Dynamo's timing")
    fit = fitted(answers[-1].per_request, pools[-1])
    rows = []
    for pool, answer in zip(pools, answers, strict=True):
        hit_ratio, ttft = ours(trace, fit.profile.model_copy(update={"kv_tokens": pool * BLOCK}))
        reused = sum(row["admission_history"][0]["reused_input_tokens"] for row in answer.per_request)
        theirs = np.quantile([row["ttft_ms"] / 1e3 for row in answer.per_request], QUANTILES, method="inverted_cdf")
        preempted = sum(row["admission_count"] > 1 for row in answer.per_request)
        share = reused / float(trace.prompt_tokens.sum())
        rows.append(Row(pool, share, hit_ratio, tuple(theirs.tolist()), ttft, preempted))
    error = fit.median_error(held=True)
    facts = (
        f"{MOONCAKE.name}: {len(trace):,} requests. Dynamo: ai-dynamo {dynamo_peer.VERSION}, its engine `vllm`, one "
        f"worker. Our engine was fitted to the first half of its requests with {pools[-1]:,} blocks "
        f"({fit.profile.prefill_tokens_per_second:,.0f} prompt tokens/s); median error of P50 and P99 TTFT on the "
        f"second half, what is reused given: {100 * (error or 0.0):.1f} %.",
    )
    return Beside(rows, fit, facts)


def fitted(rows: list[dict[str, Any]], pool: int) -> Calibration:
    def seconds(name: str) -> Array:
        return np.array([row[name] / 1e3 for row in rows])

    reused = np.array([row["admission_history"][0]["reused_input_tokens"] for row in rows])
    run = MeasuredRun(
        Path("dynamo"),
        "replay",
        "",
        seconds("arrival_time_ms"),
        np.array([row["input_length"] for row in rows]) - reused.astype(float),
        np.array([float(row["output_length"]) for row in rows]),
        seconds("ttft_ms"),
        seconds("e2e_latency_ms"),
        None,
        EngineLimits(LIMITS[0], pool * BLOCK, LIMITS[1], "Dynamo's replay"),
    )
    return calibrate(measurement_of([run]), load_profile("qwen2.5-7b-a100"), Deployment())


def ours(trace: Trace, profile: ServingProfile) -> tuple[float, tuple[float, ...]]:
    """Token hit ratio and TTFT quantiles of the prefix environment's kernel, whole trace in one interval, blocks in the
    VRAM that sequences leave free."""
    chains = chains_of(*blocks_of(trace))
    load = Load(trace.arrival_seconds, trace.prompt_tokens.astype(np.int32), trace.output_tokens.astype(np.int32))
    scene = PrefixScene(
        chains,
        load,
        BLOCK,
        np.array([0, len(trace)]),
        float(trace.arrival_seconds[0]),
        float(np.ptp(trace.arrival_seconds)) + 1.0,
        np.zeros((1, 1), np.int32),
        np.zeros(1, np.int64),
        engine_of(profile, Serving()),
        tariff_of(Prices()),
        np.inf,
        int(Placement.SHARED),
        float(profile.kv_bytes_per_token),
        0,
        0.0,
        Link(0.0, 0.0),
        Link(0.0, 0.0),
        0.0,
        1.0,
        0.0,
    )
    row = np.zeros(STATS)
    capacity = float(profile.kv_tokens or 0) * profile.kv_bytes_per_token
    run_interval(scene, make_prefix_lanes(scene, 1), 0, 0, np.array([capacity, np.inf, 0.0]), row)
    return float(row[COLUMN["token_hit_ratio"]]), tuple(float(row[COLUMN[name]]) for name in TTFT_COLUMNS)
