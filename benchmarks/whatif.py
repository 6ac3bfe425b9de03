"""The what-if surface: how long 16 x 8 settings take, how far a sampled surface is off, and the saving it finds."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agents.units import readable
from benchmarks.harness import Benchmark, Report, Table, at_most, main, say
from benchmarks.workloads import ZIPF_FACTS, twitter_trace, zipf_trace
from envs.world import World
from traces.trace import Trace
from traces.whatif import Sampling
from tuner.config import TunerConfig, load_tuner_config
from tuner.problem import problem_of
from tuner.whatif import SIZES, TTLS, Ask, what_if
from tuner.whatif_result import WhatIf
from tuner.whatif_surface import axis_of, response_cells

Array = NDArray[Any]

GOAL_SECONDS = 20.0
SAMPLE_REQUESTS = (160_000, 800_000, 1_600_000)  # in all samples together
QUICK_REQUESTS, ZIPF_REQUESTS = 60_000, 6_000_000
SETTINGS: dict[str, object] = {  # as in benchmarks/workloads.py: answers that change within its span
    "trace.interval_seconds": 10.0,
    "knobs.ttl_seconds.high": 3600.0,
    "knobs.ttl_seconds.default": 600.0,
    "serving.profile": "qwen-7b-a100",
    "serving.replicas": 32,
    "prices.answer_lifetime_seconds": 14_400.0,
    "prices.slow_request_usd": 0.001,
    "constraints.p99_ttft_seconds": 3.0,
    "constraints.max_unsafe_per_1000": 5.0,
    "run.threads": 2,
}


@dataclass(frozen=True)
class Timed:
    """A whole what-if with the seconds that it took, and those of its parts."""

    result: WhatIf
    seconds: float
    parts: dict[str, float]


class Stopwatch:
    """Notes when each part was last heard of, as the progress of a what-if."""

    def __init__(self) -> None:
        self.began = time.perf_counter()
        self.heard: dict[str, tuple[float, float]] = {}

    def __call__(self, what: str, done: int, total: int) -> None:
        now = time.perf_counter()
        first, _ = self.heard.get(what, (now, now))
        self.heard[what] = (first, now)


def config() -> TunerConfig:
    return load_tuner_config(None, Path("nowhere"), {}, SETTINGS)


def ask(trace: Trace) -> Timed:
    watch = Stopwatch()
    result = what_if(config(), trace, Ask(), watch)
    seconds = time.perf_counter() - watch.began
    grid_done, priced = watch.heard["replaying the grid"][1], watch.heard["pricing settings in full"][1]
    parts = {
        "trace made ready, and the grid": grid_done - watch.began,
        "bound, and settings in full": priced - grid_done,
        "saving with its interval": watch.began + seconds - priced,
    }
    return Timed(result, seconds, parts)


def sampled_errors(trace: Trace, exact: WhatIf, requests: int) -> list[str | int | float | None]:
    """One row: how far the sampled surface is from the exact one, what it says of itself, and how long it took."""
    world = World(problem_of(config(), trace), 2)
    axes = (axis_of(world.problem.knobs.cache_size, SIZES), axis_of(world.problem.knobs.ttl_seconds, TTLS))
    began = time.perf_counter()
    cells = response_cells(world, axes, 0.0, Sampling(requests=requests))
    seconds = time.perf_counter() - began
    off = np.abs(cells.hit_ratio.values - exact.hit_ratio.values)
    shown = cells.hit_ratio.error
    assert shown is not None
    cost_off = np.abs(cells.usd_per_1000.values / exact.usd_per_1000.values - 1.0)
    return [
        requests,
        f"{cells.share:.3%}",
        float(off.mean()),
        float(off.max()),
        float((off <= shown).mean()),
        float(100.0 * cost_off.mean()),
        float(100.0 * cost_off.max()),
        seconds,
    ]


def measure(quick: bool) -> Report:
    whole = None if quick else twitter_trace()
    trace = zipf_trace(QUICK_REQUESTS if quick else ZIPF_REQUESTS) if whole is None else whole
    say("compiling")
    ask(zipf_trace(QUICK_REQUESTS))
    say("a whole what-if")
    timed = ask(trace)
    say("sampled surfaces")
    scale = len(trace) / 6e6
    errors = [sampled_errors(trace, timed.result, max(int(wanted * scale), 800)) for wanted in SAMPLE_REQUESTS]
    facts = [
        f"Twitter cluster52 part 1, {len(trace):,} requests." if whole is not None else ZIPF_FACTS,
        f"{SIZES} sizes x {TTLS} TTLs, settings {SETTINGS}.",
        "The time is that of `tuner.whatif.what_if`, from the loaded trace to the saving; kernels are compiled before.",
    ]
    sampled = Table(
        "Sampled surfaces (8 samples) against the exact one",
        (
            "requests in samples",
            "keys in each",
            "hit ratio off, mean",
            "hit ratio off, largest",
            "inside the interval shown",
            "cost off, mean %",
            "cost off, largest %",
            "s",
        ),
        errors,
        "The interval shown is the 95 % one of Student's t over the samples; its coverage is over the cells.",
    )
    tables = [
        Table("Time", ("part", "s"), [*timed.parts.items(), ("in all", timed.seconds)]),
        sampled,
        found(timed.result),
    ]
    goal = at_most("a 16 x 8 what-if on 5.9 million requests, two threads", GOAL_SECONDS, timed.seconds, "s")
    return Report(facts, tables, [goal])


def found(result: WhatIf) -> Table:
    """What runs by default beside the best, and the saving."""
    rows = [
        (
            name,
            readable(one.settings.cache_size, "bytes"),
            readable(one.settings.ttl_seconds, "s"),
            f"{one.usd_per_1000:.5f}",
            f"{one.hit_ratio:.4f}",
            f"{one.unsafe_per_1000:.1f}",
        )
        for name, one in (("configured default", result.current), ("best", result.best))
    ]
    percent = None if result.saving.over_time is None else result.saving.over_time.percent
    saving = "unknown"
    if percent is not None:
        saving = f"{percent.mean:.2f} % (95 % interval over time {percent.low:.2f} to {percent.high:.2f})"
    return Table(
        "What it found",
        ("setting", "size", "TTL", "USD per 1,000", "hit ratio", "unsafe per 1,000"),
        rows,
        f"Saving {saving}; {result.priced} settings priced in full; the first half's choice saves {_held_out(result)} "
        "on the second half.",
    )


def _held_out(result: WhatIf) -> str:
    held = result.held_out
    percent = None if held is None else held.saving.percent
    return "an unknown share" if percent is None else f"{percent:.2f} %"


BENCHMARK = Benchmark("whatif", "What-if: every size and TTL of a trace", ("setpoint", "numba", "numpy"), measure)

if __name__ == "__main__":
    main(BENCHMARK)
