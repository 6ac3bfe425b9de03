"""The shadow cache beside the live tiers it stands for: Redis with its own memory limit, and the tier in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from benchmarks.fidelity_memory import OVERHEAD_BYTES, Compared, compare
from benchmarks.fidelity_redis import (
    DOCUMENTED_BYTES,
    Replayed,
    Setting,
    documented_shadow_of,
    replay_side_by_side,
    shadow_of,
)
from benchmarks.harness import Benchmark, Cell, Goal, Report, Table, at_most, main, say
from benchmarks.redis_process import redis_binary, redis_version
from benchmarks.workloads import TWITTER, first, twitter_trace, zipf_trace
from caches.tiers.redis_server import AT_ONCE
from traces.trace import Trace

QUICK = 6_000
REQUESTS = 200_000  # through Redis, for each cell: 100 seconds of the recording
MAXMEMORY = (2_000_000, 2_800_000, 4_400_000, 7_600_000, 14_000_000)  # bytes; the empty server takes some 1.2 million
REDIS_TTLS = (10.0, 30.0, 3_600.0)  # seconds; nothing is as old as the last in this stretch
ENDS_NEVER = REDIS_TTLS[-1]
VARIED = 2_800_000
SPEEDS = (2.0, 4.0, None)
SAMPLES = (3, 5, 20)
CAPACITIES = (1 << 20, 1 << 22, 1 << 24, 1 << 26, 1 << 28)
MEMORY_TTLS = (10.0, 300.0, 1e9)
BOUND_POINTS = 0.5
ENDLESS = 1e5  # seconds; shown as "none"


def measure(quick: bool) -> Report:
    trace = first(zipf_trace(QUICK), QUICK) if quick else twitter_trace()
    if trace is None:
        missing = f"no {TWITTER.name} beside the repository"
        return Report([], [], [Goal(wanted, missing, None) for wanted in ("Redis", "in process")])
    tables, goals = in_process(trace, quick)
    more_tables, more_goals = redis(first(trace, REQUESTS), quick)
    return Report(_facts(trace, quick), [*tables, *more_tables], [*goals, *more_goals])


# In process


def in_process(trace: Trace, quick: bool) -> tuple[list[Table], list[Goal]]:
    cells = [(capacity, ttl) for capacity in CAPACITIES for ttl in MEMORY_TTLS]
    say("the tier in memory")
    compared = compare(trace, cells[:4] if quick else cells)
    rows = [_memory_row(one) for one in compared]
    header = ("capacity, MiB", "TTL, s", "tier: hit ratio, %", "shadow: hit ratio, %", "requests that differ")
    differing = sum(one.differing for one in compared)
    wanted = f"in process, {len(compared)} cells: every request hits in both or in neither"
    goal = Goal(wanted, f"{differing:,} of {len(compared) * len(trace):,} differ", differing == 0)
    return [Table(f"The tier in memory, {len(trace):,} requests", header, rows)], [goal]


def _memory_row(one: Compared) -> list[Cell]:
    ratios = [f"{100.0 * ratio:.3f}" for ratio in (one.hit_ratio, one.shadow_hit_ratio)]
    return [f"{one.capacity_bytes / 2**20:g}", _ttl(one.ttl_seconds), *ratios, one.differing]


# Redis


def redis(trace: Trace, quick: bool) -> tuple[list[Table], list[Goal]]:
    binary = redis_binary()
    wanted = "Redis: hit ratio of the shadow beside the server's, largest difference of all cells"
    if binary is None:
        return [], [Goal(wanted, "no redis-server on this machine", None)]
    if quick:
        settings = [Setting(size, 2.0, 1.0) for size in MAXMEMORY[:2]]
        done = _side_by_side(binary, trace, settings)
        return [_main_table(trace, done)], [_goal(wanted, trace, done)]
    done = [
        one for ttl in REDIS_TTLS for one in _side_by_side(binary, trace, [Setting(s, ttl, 1.0) for s in MAXMEMORY])
    ]
    tables = [_main_table(trace, done), _varied_table(trace, varied(binary, trace, done))]
    return tables, [_goal(wanted, trace, done)]


def varied(binary: str, trace: Trace, done: Sequence[Replayed]) -> list[tuple[str, Replayed]]:
    """One size without a lifetime that ends: other speeds, other samples, and one lookup in a call."""
    usual = next(one for one in done if (one.setting.maxmemory_bytes, one.setting.ttl_seconds) == (VARIED, ENDS_NEVER))
    found = [("as above", usual)]
    for speed in SPEEDS:
        name = "as fast as it goes" if speed is None else f"{speed:g} times as fast"
        found += [(name, one) for one in _side_by_side(binary, trace, [replace(usual.setting, speed=speed)])]
    others = {f"{samples} samples": replace(usual.setting, samples=samples) for samples in SAMPLES}
    others["one lookup a call"] = replace(usual.setting, at_once=1)
    return [*found, *zip(others, _side_by_side(binary, trace, list(others.values())), strict=True)]


def _side_by_side(binary: str, trace: Trace, settings: Sequence[Setting]) -> list[Replayed]:
    say(f"Redis, {len(settings)} servers, {settings[0]}")
    return replay_side_by_side(binary, trace, settings)


def _main_table(trace: Trace, done: Sequence[Replayed]) -> Table:
    header = (
        "maxmemory, MB",
        "TTL, s",
        "entries",
        "bytes beside a value",
        "Redis: hit ratio, %",
        "shadow, measured bytes, %",
        "difference, points",
        f"shadow, body + {DOCUMENTED_BYTES} bytes, %",
        "difference, points",
    )
    rows: list[list[Cell]] = []
    for one in done:
        both = (shadow_of(one, trace), documented_shadow_of(one, trace))
        shown = [text for hits in both for text in (f"{100.0 * hits.mean():.2f}", f"{points(one, hits.mean()):+.2f}")]
        size, ratio = f"{one.setting.maxmemory_bytes / 1e6:g}", f"{100.0 * one.hit_ratio:.2f}"
        ttl = _ttl(one.setting.ttl_seconds)
        rows.append([size, ttl, one.entries, round(one.overhead_bytes), ratio, *shown])
    return Table(f"Redis, {len(trace):,} requests for each cell", header, rows)


def _varied_table(trace: Trace, found: Sequence[tuple[str, Replayed]]) -> Table:
    header = ("how", "seconds", "Redis: hit ratio, %", "shadow, %", "difference, points")
    rows: list[list[Cell]] = []
    for name, one in found:
        shadow = float(shadow_of(one, trace).mean())
        ratios = (f"{100.0 * one.hit_ratio:.2f}", f"{100.0 * shadow:.2f}", f"{points(one, shadow):+.2f}")
        rows.append([name, one.seconds, *ratios])
    title = f"Redis, {VARIED / 1e6:g} MB, no lifetime: what speed, samples and batches change"
    return Table(title, header, rows)


def points(one: Replayed, shadow_hit_ratio: float) -> float:
    """By how many percentage points the shadow is above the server."""
    return 100.0 * (float(shadow_hit_ratio) - one.hit_ratio)


def _goal(wanted: str, trace: Trace, done: Sequence[Replayed]) -> Goal:
    largest = max(abs(points(one, float(np.mean(shadow_of(one, trace))))) for one in done)
    return at_most(wanted, BOUND_POINTS, largest, "percentage points")


# Text


def _ttl(seconds: float) -> str:
    return "none" if seconds > ENDLESS else f"{seconds:g}"


def _facts(trace: Trace, quick: bool) -> list[str]:
    binary = redis_binary()
    server = "" if binary is None else f" Redis {redis_version(binary)}."
    source = "Zipf" if quick else TWITTER.name
    return [
        f"{source}: {len(trace):,} requests, {trace.num_keys:,} keys, all of them reads; a miss stores a body of the "
        f"recorded size. In memory: all requests, {OVERHEAD_BYTES} bytes beside each body. Redis: the first "
        f"{min(REQUESTS, len(trace)):,}.{server}",
        "Redis: every cell on a server of its own (`maxmemory`, `allkeys-lru`, 10 samples), a row of sizes at once, at "
        "the speed of the recording, since the server expires by its own clock and knows the order of touches to its "
        "second; the shadow is told when each request was really asked. No entry gets as old as the longest lifetime. "
        f"Lookups go in calls of at most {AT_ONCE}, of requests that came in the same second (the recording "
        "knows no finer time) and of which no two are equal; what missed is then stored one by one, in order.",
        "Bytes: room for entries is `maxmemory` less what the server uses before the first. An entry takes its value "
        "(object, header, rounded as jemalloc rounds) and a constant for name, tables and expiry, which is what the "
        f"server used in the end. Beside it stands the shadow with {DOCUMENTED_BYTES} bytes beside each body, the "
        "constant that the tier states, and nothing measured.",
    ]


BENCHMARK = Benchmark("fidelity", "The shadow cache beside the live tiers", ("setpoint", "numpy", "redis"), measure)

if __name__ == "__main__":
    main(BENCHMARK)
