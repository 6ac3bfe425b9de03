"""Replay speed beside libCacheSim, on one core, with the same misses; memory; and cost as traces grow."""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import libcachesim as lcs
import numpy as np
from numpy.typing import NDArray

from benchmarks import replay_growth
from benchmarks.harness import (
    Benchmark,
    Cell,
    Goal,
    Report,
    Table,
    at_least,
    main,
    median_ratio,
    say,
    seconds_of,
    shown,
    take_turns,
)
from benchmarks.workloads import TWITTER, ZIPF_FACTS, distinct_bytes, twitter_trace, zipf_trace
from caches.shadow.cache import ShadowCache, requests_of
from caches.shadow.curve import link, lru_misses
from traces.trace import Trace

Array = NDArray[Any]

SHARES = (0.0005, 0.005, 0.05, 0.5)  # capacities, of the trace's distinct bytes; equally spaced on a log scale
SETTINGS = 64  # from the smallest of the shares to the largest, so that every 21st is one of them
TTL_SHARE = 0.1  # time to live since write, of the trace's span
RESIZE_EVERY = 1_000
ORACLE_GENERAL = np.dtype([("time", "<u4"), ("id", "<u8"), ("size", "<u4"), ("next", "<i8")])
ONE, MANY, TTL = 10.0, 20.0, 5.0  # goals, times libCacheSim's LRU without TTL


@dataclass(frozen=True)
class Workload:
    """A trace, the same as a file for libCacheSim, and its links."""

    name: str
    trace: Trace
    file: Path
    previous: Array
    following: Array
    link_seconds: float

    @property
    def capacities(self) -> list[int]:
        return [int(share * distinct_bytes(self.trace)) for share in SHARES]


def prepare(name: str, trace: Trace, folder: Path) -> Workload:
    records = np.empty(len(trace), ORACLE_GENERAL)
    records["time"], records["id"] = trace.arrival_seconds, trace.key + 1
    records["size"], records["next"] = trace.size_bytes, -1
    file = folder / f"{name}.oracleGeneral"
    records.tofile(file)
    compile_kernels(trace)
    links: list[Array] = []
    seconds = seconds_of(lambda: links.extend(link(trace.key, trace.num_keys)))
    return Workload(name, trace, file, links[0], links[1], seconds)


def compile_kernels(trace: Trace) -> None:
    """Runs each once, over next to nothing."""
    lru_misses(*link(trace.key[:1], trace.num_keys), trace.size_bytes[:1], np.array([1]))
    ShadowCache(requests_of(trace.key[:1], trace.arrival_seconds[:1], trace.size_bytes[:1]), 1, 1.0).run(0)


class Contest:
    """The contestants at one capacity; each measures itself and keeps the misses it found."""

    def __init__(self, workload: Workload, capacity: int) -> None:
        self.workload, self.capacity = workload, capacity
        trace = workload.trace
        self.requests = requests_of(trace.key, trace.arrival_seconds, trace.size_bytes)
        self.misses: dict[str, int] = {}
        self.expirations = 0

    def libcachesim(self) -> float:
        reader = lcs.TraceReader(str(self.workload.file), lcs.TraceType.ORACLE_GENERAL_TRACE)
        cache = lcs.LRU(self.capacity)
        ratio = 0.0

        def work() -> None:
            nonlocal ratio
            ratio, _ = cache.process_trace(reader)

        seconds = seconds_of(work)
        self.misses["libCacheSim"] = round(ratio * len(self.workload.trace))
        return seconds

    def curve(self) -> float:
        load, capacities = self.workload, np.array([self.capacity])
        misses = np.zeros(1)

        def work() -> None:
            nonlocal misses
            misses, _ = lru_misses(load.previous, load.following, load.trace.size_bytes, capacities)

        seconds = seconds_of(work)
        self.misses["lru_misses"] = int(misses[0])
        return seconds

    def shadow(self) -> float:
        cache = ShadowCache(self.requests, self.workload.trace.num_keys, self.capacity)
        seconds = seconds_of(lambda: cache.run(len(self.workload.trace)))
        self.misses["ShadowCache"] = cache.stats().misses
        return seconds

    def shadow_with_ttl(self) -> float:
        trace = self.workload.trace
        cache = ShadowCache(self.requests, trace.num_keys, self.capacity, TTL_SHARE * trace.span_seconds)
        seconds = seconds_of(lambda: cache.run(len(trace)))
        self.expirations = cache.stats().expirations
        return seconds

    def shadow_resizing(self) -> float:
        """Between half the capacity and twice it, drawn anew every RESIZE_EVERY requests."""
        trace = self.workload.trace
        cache = ShadowCache(self.requests, trace.num_keys, self.capacity)
        factors = 2.0 ** np.random.default_rng(0).uniform(-1.0, 1.0, len(trace) // RESIZE_EVERY + 1)

        def work() -> None:
            for step, factor in enumerate(factors):
                at = cache.position
                cache.apply(factor * self.capacity, np.inf, float(trace.arrival_seconds[min(at, len(trace) - 1)]))
                cache.run(min((step + 1) * RESIZE_EVERY, len(trace)))

        return seconds_of(work)

    def run(self, rounds: int) -> dict[str, list[float]]:
        """Seconds of each, in turns."""
        taken = take_turns(
            {
                "theirs": self.libcachesim,
                "curve": self.curve,
                "shadow": self.shadow,
                "ttl": self.shadow_with_ttl,
                "resizing": self.shadow_resizing,
            },
            rounds,
        )
        self.check()
        return taken

    def check(self) -> None:
        if len(set(self.misses.values())) > 1:
            raise SystemExit(f"{self.workload.name} at {self.capacity} bytes: the misses differ: {self.misses}")


def compare(workload: Workload, rounds: int) -> tuple[list[Table], list[Goal]]:
    """One setting at each capacity, then many settings in one pass, all in turns with libCacheSim."""
    requests = len(workload.trace)
    contests = [Contest(workload, capacity) for capacity in workload.capacities]
    rows: list[list[Cell]] = []
    ratios: dict[str, list[float]] = {"curve": [], "ttl": []}
    for share, contest in zip(SHARES, contests, strict=True):
        say(f"{workload.name}: one setting, {100 * share:g} % of the distinct bytes")
        taken = contest.run(rounds)
        times = {name: median_ratio(taken["theirs"], seconds) for name, seconds in taken.items()}
        for name, values in ratios.items():
            values.append(times[name])
        rates = {name: requests / 1e6 / statistics.median(seconds) for name, seconds in taken.items()}
        rows.append(
            [
                f"{100 * share:g} %",
                contest.misses["libCacheSim"] / requests,
                rates["theirs"],
                *(f"{shown(rates[name])} ({shown(times[name])}x)" for name in ("curve", "shadow", "ttl", "resizing")),
                contest.expirations,
            ]
        )
    one = Table(
        f"{workload.name}: million requests/s, and times libCacheSim",
        (
            "capacity",
            "miss ratio",
            "libCacheSim LRU",
            "one setting (lru_misses)",
            "ShadowCache",
            "with TTL (ShadowCache)",
            f"resizing every {RESIZE_EVERY:,} (ShadowCache)",
            "expirations with TTL",
        ),
        rows,
        "Misses of libCacheSim, lru_misses and ShadowCache without TTL are identical at every capacity. lru_misses "
        f"needs the links of the trace, made once in {workload.link_seconds:.2f} s and not part of its figure.",
    )
    many, per_setting = compare_many(workload, contests, rounds)
    goals = [
        at_least(
            f"{workload.name}, one setting, the least of {len(SHARES)} capacities", ONE, min(ratios["curve"]), "x"
        ),
        at_least(f"{workload.name}, {SETTINGS} settings, per setting", MANY, per_setting, "x"),
        at_least(f"{workload.name}, with TTL, the least of {len(SHARES)} capacities", TTL, min(ratios["ttl"]), "x"),
    ]
    return [one, many], goals


def compare_many(workload: Workload, contests: list[Contest], rounds: int) -> tuple[Table, float]:
    """Their time per setting is the mean over SHARES, which span the same capacities as ours and as evenly."""
    say(f"{workload.name}: {SETTINGS} settings in one pass")
    low, high = workload.capacities[0], workload.capacities[-1]
    capacities = np.rint(low * (high / low) ** np.linspace(0.0, 1.0, SETTINGS)).astype(np.int64)
    capacities[:: (SETTINGS - 1) // (len(SHARES) - 1)] = workload.capacities
    misses = np.zeros(SETTINGS, np.int64)

    def ours() -> None:
        nonlocal misses
        misses, _ = lru_misses(workload.previous, workload.following, workload.trace.size_bytes, capacities)

    taken = take_turns(
        {
            "theirs": lambda: statistics.fmean(contest.libcachesim() for contest in contests),
            "ours": lambda: seconds_of(ours) / SETTINGS,
        },
        rounds,
    )
    for contest in contests:
        contest.misses["lru_misses of many"] = int(misses[np.searchsorted(capacities, contest.capacity)])
        contest.check()
    ratio = median_ratio(taken["theirs"], taken["ours"])
    rate = {name: len(workload.trace) / 1e6 / statistics.median(seconds) for name, seconds in taken.items()}
    row = [rate["theirs"], rate["ours"], ratio, statistics.median(taken["ours"]) * SETTINGS]
    header = ("libCacheSim LRU, mean over capacities", "lru_misses", "times libCacheSim", "the pass, s")
    title = f"{workload.name}: {SETTINGS} settings in one pass, million requests x settings/s"
    return Table(title, header, [row]), ratio


def measure(quick: bool) -> Report:
    if hasattr(os, "sched_setaffinity"):  # only Linux has it
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    rounds = 1 if quick else 3
    zipf = zipf_trace(50_000 if quick else 10_000_000)
    facts = [
        "One process, held on one core; libCacheSim reads an oracleGeneral file by its own reader. Contestants take "
        f"{rounds} turns; a ratio is the median of the ratios within a turn.",
        f"Capacities: {', '.join(f'{100 * share:g} %' for share in SHARES)} of the distinct bytes; TTL since write: "
        f"{100 * TTL_SHARE:g} % of the span.",
        f"{ZIPF_FACTS} {len(zipf):,} requests.",
    ]
    makers: list[tuple[str, Callable[[], Trace | None]]] = [("Zipf", lambda: zipf)]
    if quick:
        facts.append("Twitter: left out of a quick run.")
    else:
        makers.append(("Twitter", twitter_trace))
    tables, goals = [], []
    for name, make in makers:
        trace = make()
        if trace is None:
            goals.append(Goal(f"{name}: all of the above", f"no {TWITTER.name} beside the repository", None))
            continue
        if name != "Zipf":
            facts.append(f"{name}: {TWITTER.name}, {len(trace):,} requests, {trace.num_keys:,} keys.")
        with tempfile.TemporaryDirectory() as folder:
            more_tables, more_goals = compare(prepare(name, trace, Path(folder)), rounds)
        tables += more_tables
        goals += more_goals
    for more in (replay_growth.memory(zipf), replay_growth.growth(quick)):
        tables += more[0]
        goals += more[1]
    return Report(facts, tables, goals)


BENCHMARK = Benchmark("replay", "Replay beside libCacheSim", ("numpy", "numba", "libcachesim"), measure)

if __name__ == "__main__":
    main(BENCHMARK)
