"""The serving model held against measured runs, and beside NVIDIA Dynamo's replay of a recorded hour of chat."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks import dynamo_replay_timing as timing
from benchmarks.dynamo_peer import Unavailable
from benchmarks.harness import SHARED_TRACES, Benchmark, Cell, Goal, Report, Table, at_most, main, say
from envs.calibration import Calibration, calibrate
from envs.calibration_report import error_rows
from envs.deployment import Deployment, Reuse, Routing
from envs.measurement import measurement_of
from envs.serving import ServingProfile, load_profile
from traces.request_logs import MeasuredRun, read_runs

RUNS = SHARED_TRACES / "calibration"
AIBRIX = RUNS / "aibrix_v0.3.0_runs.csv.gz"
BASES = Path(__file__).with_name("bases")
ERROR, POINTS = 15.0, 1.0  # goals: %, and percentage points of the token hit ratio


@dataclass(frozen=True)
class Plan:
    """How a setup was deployed, after its manifests as far as they say: router, and where a prefix is found again."""

    routing: Routing
    reuse: Reuse


SETUPS = {
    "naive": Plan("connections", "gpu"),
    "aibrix_naive": Plan("least", "gpu"),
    "aibrix_naive_prefix_routing": Plan("prefix", "gpu"),
    "aibrix_kvcache_dram": Plan("prefix", "gpu+host"),
    "aibrix_kvcache_external": Plan("prefix", "gpu+pool"),
    "ps_stack": Plan("session", "host"),
}
VLLM = {
    "vllm_rtx4090_llama3.1-8b": "llama-3.1-8b-rtx4090",
    "vllm_rtxpro6000_qwen3-32b": "qwen3-32b-2x-rtxpro6000",
}


def base(name: str) -> ServingProfile:
    return load_profile(str(BASES / f"{name}.toml"))


def measure(quick: bool) -> Report:
    if not AIBRIX.exists():
        return Report([], [], [Goal("errors on runs held back", f"no {AIBRIX.name} beside the repository", None)])
    setups = ["ps_stack"] if quick else list(SETUPS)
    runs = read_runs(AIBRIX, {})
    fits = {name: fitted(name, [run for run in runs if run.setup == name]) for name in setups}
    alone = {name: single(name, size) for name, size in VLLM.items()}
    tables = [
        setups_table(fits),
        *(runs_table(f"{name}: measured (s), and error of the prediction (%)", done) for name, done in fits.items()),
        vllm_table(alone),
    ]
    goals = [*setup_goals(fits), *(vllm_goal(name, done) for name, done in alone.items())]
    try:
        beside = timing.beside(quick)
    except Unavailable as why:
        return Report(FACTS, tables, [*goals, Goal("beside Dynamo's replay", str(why), None)])
    apart = max(abs(100 * (row.ours - row.theirs)) for row in beside.rows)
    goals.append(at_most("token hit ratio beside Dynamo's, the largest difference", POINTS, apart, "points"))
    return Report([*FACTS, *beside.facts], [*tables, beside.table()], goals)


FACTS = [
    f"{AIBRIX.name}: 15,120 requests of multi-round questions (21,073 prompt tokens each), 11 rates, eight replicas of "
    "Llama 3.1 8B; rates 0.1, 0.9, 1.7, 2.5, 3.3 and 4.1 fitted, 0.5, 1.3, 2.1, 2.9 and 3.7 held back.",
    "vllm_*: one run each of 300 requests sent within half a minute; the first half fitted, the second held back, so "
    "these errors are of the same run.",
    "Bases: benchmarks/bases, arithmetic from data sheets.",
]


def fitted(name: str, runs: Sequence[MeasuredRun]) -> Calibration:
    say(f"{name}: {len(runs)} runs")
    plan = SETUPS[name]
    return calibrate(measurement_of(runs), base("llama-3.1-8b-h20"), Deployment(8, plan.routing, plan.reuse))


def single(name: str, size: str) -> Calibration:
    say(name)
    return calibrate(measurement_of(read_runs(RUNS / f"{name}.requests.jsonl.gz", {})), base(size), Deployment())


def errors_of(done: Calibration, quantile: int) -> list[float]:
    """Absolute error of a reported TTFT quantile on every run held back, %."""
    return [100 * abs(row.ttft_errors[quantile]) for row in error_rows(done) if row.held]


def held_error(done: Calibration) -> float:
    error = done.median_error(held=True)
    if error is None:
        raise ValueError("nothing was held back")
    return 100 * error


def setups_table(fits: dict[str, Calibration]) -> Table:
    rows: list[list[Cell]] = []
    for name, done in fits.items():
        model, plan = done.profile, SETUPS[name]
        rows.append(
            [
                name,
                f"{plan.routing}, {plan.reuse}",
                held_error(done),
                *(float(np.median(errors_of(done, quantile))) for quantile in range(3)),
                f"{model.prefill_tokens_per_second:,.0f}",
                model.request_overhead_seconds,
                f"{model.kv_tokens:,}",
                f"{model.prefill_chunk_tokens:,}",
                1e3 * (model.seconds_per_output_token_alone or model.seconds_per_output_token),
            ]
        )
    pooled = [[error for done in fits.values() for error in errors_of(done, quantile)] for quantile in range(3)]
    both = float(np.median(pooled[0] + pooled[2]))
    rows.append(["all", "", both, *(float(np.median(errors)) for errors in pooled), *[None] * 5])
    header = (
        "setup",
        "router, prefixes",
        "P50 and P99",
        "P50",
        "P90",
        "P99",
        "prefill tokens/s",
        "overhead s",
        "KV tokens",
        "chunk tokens",
        "ms a token, alone",
    )
    note = (
        "Fitted apart from each other; where prompts are computed, the same GPUs get nearly the same prefill rate and "
        "KV memory. Where nearly all prompts are found in a cache the prefill rate is hardly determined."
    )
    return Table("TTFT on runs held back, median absolute error (%), and what was fitted", header, rows, note)


def runs_table(title: str, done: Calibration) -> Table:
    rows: list[list[Cell]] = []
    for row in error_rows(done):
        cells: list[Cell] = [row.run, row.requests, "held back" if row.held else "fitted"]
        for measured, error in zip(row.ttft_measured, row.ttft_errors, strict=True):
            cells += [measured, f"{100 * error:+.0f}"]
        cells += [f"{100 * error:+.0f}" for error in row.latency_errors]
        rows.append(cells)
    quantiles = [cell for name in ("P50", "P90", "P99") for cell in (f"TTFT {name}", "%")]
    return Table(title, ("rate/s", "requests", "", *quantiles, "latency P50 %", "P90 %", "P99 %"), rows)


def vllm_table(alone: dict[str, Calibration]) -> Table:
    rows = [[name, *part[1:]] for name, done in alone.items() for part in runs_table("", done).rows]
    quantiles = [cell for label in ("P50", "P90", "P99") for cell in (f"TTFT {label}", "%")]
    header = ("run", "requests", "", *quantiles, "latency P50 %", "P90 %", "P99 %")
    return Table("vLLM: measured (s), and error of the prediction (%)", header, rows)


def setup_goals(fits: dict[str, Calibration]) -> list[Goal]:
    """Over all setups together, and for each."""
    pooled = [error for done in fits.values() for quantile in (0, 2) for error in errors_of(done, quantile)]
    what = "P50 and P99 TTFT on runs held back, median absolute error"
    return [
        at_most(f"{what}, all setups", ERROR, float(np.median(pooled)), "%"),
        *(at_most(f"{what}, {name}", ERROR, held_error(done), "%") for name, done in fits.items()),
    ]


def vllm_goal(name: str, done: Calibration) -> Goal:
    return at_most(f"P50 and P99 TTFT of the second half of {name}", ERROR, held_error(done), "%")


BENCHMARK = Benchmark("calibration", "Calibration of the serving model", ("numpy", "numba", "scipy"), measure)

if __name__ == "__main__":
    main(BENCHMARK)
