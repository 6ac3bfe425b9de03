"""Eviction and admission policies: replay speed beside libCacheSim, and what each hits on recorded traffic."""

from __future__ import annotations

import dataclasses
import os
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import libcachesim as lcs
import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import (
    SHARED_TRACES,
    Benchmark,
    Cell,
    Goal,
    Report,
    Table,
    at_least,
    main,
    say,
    seconds_of,
    shown,
    take_turns,
)
from benchmarks.workloads import RATE, ZIPF_FACTS, distinct_bytes, first, twitter_trace, zipf_trace
from caches.policies.catalog import ADMISSIONS, EVICTIONS
from caches.policies.settings import Admission, AdmitAll, Eviction, Gdsf, Lfu, Lru, LruK, S3Fifo, Sieve, WTinyLfu
from caches.shadow import kernel
from caches.shadow.cache import ShadowCache, requests_of
from caches.shadow.offline import hit_bound
from traces.catalog import load_trace
from traces.packed import open_packed
from traces.reader import ReadOptions
from traces.shipped import shipped_traces
from traces.trace import Trace

Array = NDArray[Any]
Make = Callable[[int], Any]

SHARES = (0.01, 0.1, 0.5)  # capacities, of the distinct bytes
SPEED_SHARE = 0.1
REQUESTS, QUICK_REQUESTS = 2_000_000, 20_000
ROUNDS = 5
HASH_POWER = 20  # libCacheSim's table: a million places, more than are held here
ORACLE_GENERAL = np.dtype([("time", "<u4"), ("id", "<u8"), ("size", "<u4"), ("next", "<i8")])
THEIR_COST = 1e6  # libCacheSim's GDSF multiplies uses by it
PREFILL_SECONDS, DECODE_SECONDS = 1.1e-4, 2e-3  # GPU seconds for each prompt and each output token of a miss
# Ours beside theirs, and whether the misses must be the same.
PEERS: Mapping[str, tuple[Eviction, Make, bool]] = {
    "LRU": (Lru(), partial(lcs.LRU, hashpower=HASH_POWER), True),
    "LRU-2": (LruK(2, kept=0.0), partial(lcs.LRUK, k=2, hashpower=HASH_POWER), True),
    "LRU-3": (LruK(3, kept=0.0), partial(lcs.LRUK, k=3, hashpower=HASH_POWER), False),
    "LFU": (Lfu(decay=1.0), partial(lcs.LFU, hashpower=HASH_POWER), True),
    "GDSF": (Gdsf(), partial(lcs.GDSF, hashpower=HASH_POWER), True),
    "S3-FIFO": (S3Fifo(), partial(lcs.S3FIFO, hashpower=HASH_POWER), True),
    "SIEVE": (Sieve(), partial(lcs.Sieve, hashpower=HASH_POWER), True),
    "W-TinyLFU": (WTinyLfu(), partial(lcs.WTinyLFU, hashpower=HASH_POWER), False),
}


@dataclass(frozen=True)
class Load:
    """A trace, and GPU seconds of each request on a miss where its tokens say them."""

    name: str
    trace: Trace
    cost: Array | None = None

    @property
    def requests(self) -> kernel.Requests:
        return requests_of(self.trace.key, self.trace.arrival_seconds, self.trace.size_bytes)

    def capacity(self, share: float) -> int:
        return int(share * distinct_bytes(self.trace))


def recorded(requests: int) -> list[tuple[str, Callable[[], Trace | None]]]:
    """The first so many requests of each recorded trace; None where it is not beside the repository."""

    def keys(name: str) -> Callable[[], Trace | None]:
        file = SHARED_TRACES / "kv" / name
        return lambda: (
            ones(load_trace(file, options=ReadOptions(requests_per_second=RATE, limit=requests)))
            if file.exists()
            else None
        )

    return [
        ("Twitter cluster52", lambda: twitter_trace(requests)),
        ("cache2k web07", keys("cache2k_web07.keys.zst")),
        ("cache2k orm-busy", keys("cache2k_orm-busy.keys.zst")),
        ("CloudPhysics w106", keys("cloudphysics_w106.part1.keys.zst")),
    ]


def ones(trace: Trace) -> Trace:
    """Of a source without sizes: every entry counts 1, so that capacities are numbers of entries."""
    return dataclasses.replace(trace, size_bytes=np.ones(len(trace), np.int32))


def speed(load: Load, rounds: int) -> tuple[Table, list[Goal]]:
    """Each policy beside libCacheSim's, in turns."""
    rows: list[list[Cell]] = []
    goals: list[Goal] = []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.oracleGeneral"
        records = np.empty(len(load.trace), ORACLE_GENERAL)
        records["time"], records["id"] = load.trace.arrival_seconds, load.trace.key + 1
        records["size"], records["next"] = load.trace.size_bytes, -1
        records.tofile(file)
        for name, (eviction, make, same) in PEERS.items():
            say(f"{load.name}: {name}")
            row, goal = contest(load, name, (eviction, make, same), file, rounds)
            rows.append(row)
            goals.append(goal)
    title = f"{load.name}, {100 * SPEED_SHARE:g} % of the distinct bytes: million requests/s"
    header = (
        "policy",
        "ours",
        "libCacheSim",
        "times libCacheSim",
        "of the rounds",
        "misses of ours",
        "of theirs",
        "bytes per key",
    )
    return Table(title, header, rows), goals


def contest(
    load: Load, name: str, peers: tuple[Eviction, Make, bool], file: Path, rounds: int
) -> tuple[list[Cell], Goal]:
    """One policy; stops where misses differ that must not."""
    eviction, make, same = peers
    capacity, requests, length = load.capacity(SPEED_SHARE), load.requests, len(load.trace)
    cost = np.full(length, THEIR_COST, np.float32)
    misses: dict[str, int] = {}

    def theirs() -> float:
        reader = lcs.TraceReader(str(file), lcs.TraceType.ORACLE_GENERAL_TRACE)
        cache, ratio = make(capacity), 0.0

        def work() -> None:
            nonlocal ratio
            ratio, _ = cache.process_trace(reader)

        seconds = seconds_of(work)
        misses["theirs"] = round(ratio * length)
        return seconds

    def ours() -> float:
        cache = ShadowCache(requests, load.trace.num_keys, capacity, eviction=eviction, cost=cost)
        seconds = seconds_of(lambda: cache.run(length))
        misses["ours"] = cache.stats().misses
        return seconds

    taken = take_turns({"ours": ours, "theirs": theirs}, rounds)
    if same and misses["ours"] != misses["theirs"]:
        raise SystemExit(f"{load.name}, {name}: the misses differ: {misses}")
    ratios = sorted(b / a for a, b in zip(taken["ours"], taken["theirs"], strict=True))
    rates = [length / 1e6 / statistics.median(taken[who]) for who in ("ours", "theirs")]
    ratio = statistics.median(ratios)
    spread = f"{shown(ratios[0])} to {shown(ratios[-1])}"
    state = ShadowCache(requests, load.trace.num_keys, capacity, eviction=eviction).state
    per_key = sum(array.nbytes for array in state) / load.trace.num_keys
    row: list[Cell] = [name, *rates, ratio, spread, misses["ours"], misses["theirs"], _tenths(per_key)]
    return row, at_least(f"{load.name}, {name}, the least of {rounds} rounds", 1.0, ratios[0], "times libCacheSim")


def hit_ratio(load: Load, capacity: int, eviction: Eviction, admission: Admission = AdmitAll()) -> float:
    cache = ShadowCache(load.requests, load.trace.num_keys, capacity, eviction=eviction, admission=admission)
    cache.run(len(load.trace))
    return cache.stats().hits / len(load.trace)


def hits(loads: Sequence[Load]) -> list[Table]:
    """Without lifetimes, every miss at the same cost."""
    by_eviction: list[list[Cell]] = []
    by_admission: list[list[Cell]] = []
    for load in loads:
        capacities = np.array([load.capacity(share) for share in SHARES])
        bound = hit_bound(load.requests, load.trace.num_keys, capacities, np.array([np.inf]))
        for share, capacity, most in zip(SHARES, capacities, bound.hits[:, 0], strict=True):
            say(f"{load.name}, {100 * share:g} %")
            what, limit = [load.name, f"{100 * share:g} %"], 100.0 * float(most) / len(load.trace)
            found = [100.0 * hit_ratio(load, int(capacity), policy) for policy in EVICTIONS.values()]
            admitted = [100.0 * hit_ratio(load, int(capacity), Lru(), rule) for rule in ADMISSIONS.values()]
            by_eviction.append([*what, *map(_tenths, found), _tenths(limit)])
            by_admission.append([*what, *map(_tenths, admitted), _tenths(limit)])
    where = ("workload", "of the distinct bytes")
    return [
        Table(
            "Hit ratio in per cent, by eviction policy", (*where, *EVICTIONS, "clairvoyant bound"), by_eviction, BOUND
        ),
        Table("Hit ratio in per cent of LRU, by admission", (*where, *ADMISSIONS, "clairvoyant bound"), by_admission),
    ]


BOUND = (
    "The bound is Belady's where all entries have one size and PFOO-L else (docs/shadow-cache.md). Policies at their "
    "defaults; lru-2 and lru-3 remember uses of as many keys that left as are held."
)


def savings(load: Load) -> Table:
    """Of the GPU seconds that a cache could save, those that each policy does, where misses differ in cost."""
    assert load.cost is not None
    total, rows = float(load.cost.sum(dtype=np.float64)), list[list[Cell]]()
    for share in SHARES:
        for name, eviction, admission in [
            *((name, policy, AdmitAll()) for name, policy in EVICTIONS.items()),
            ("lru, cost-aware", Lru(), ADMISSIONS["cost-aware"]),
        ]:
            cache = ShadowCache(
                load.requests,
                load.trace.num_keys,
                load.capacity(share),
                eviction=eviction,
                admission=admission,
                cost=load.cost,
            )
            hit = cache.run_recording(len(load.trace)).outcome == kernel.HIT
            saved = float(load.cost[hit].sum(dtype=np.float64)) / total
            rows.append([f"{100 * share:g} %", name, _tenths(100.0 * hit.mean()), _tenths(100.0 * saved)])
    title = f"{load.name}: hits and GPU seconds saved, in per cent, where a miss costs what its tokens take"
    return Table(title, ("of the distinct bytes", "policy", "hits", "GPU seconds saved"), rows)


def _tenths(value: float) -> str:
    return f"{value:.1f}"


def costed(requests: int) -> Load:
    """The shipped trace, whose requests have tokens."""
    name = next(iter(shipped_traces()))
    trace = open_packed(shipped_traces()[name])
    assert trace.prompt_tokens is not None
    assert trace.output_tokens is not None
    span = slice(requests)
    cost = PREFILL_SECONDS * trace.prompt_tokens[span] + DECODE_SECONDS * trace.output_tokens[span]
    plain = dataclasses.replace(trace, prompt_tokens=None, output_tokens=None)
    return Load(name, first(plain, requests), cost.astype(np.float32))


def measure(quick: bool) -> Report:
    if hasattr(os, "sched_setaffinity"):  # only Linux has it
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    requests, rounds = (QUICK_REQUESTS, 2) if quick else (REQUESTS, ROUNDS)
    zipf = first(zipf_trace(requests), requests)
    compile_kernels(zipf)
    loads, missing = [Load("Zipf", zipf)], list[str]()
    for name, make in recorded(requests):
        trace = make()
        if trace is None:
            missing.append(name)
        else:
            loads.append(Load(name, trace))
    tables, goals = list[Table](), list[Goal]()
    for load in loads[:2]:
        table, more = speed(load, rounds)
        tables.append(table)
        goals += more
    goals += [Goal(f"{name}: all of the above", "not beside the repository", None) for name in missing[:1]]
    tables += [*hits(loads), savings(costed(requests))]
    facts = [
        "One process, held on one core; libCacheSim reads an oracleGeneral file by its own reader, with a "
        f"table of 2^{HASH_POWER} places. Both take "
        f"{rounds} turns; a ratio is the median of the ratios within a turn, beside the least and the greatest.",
        f"{ZIPF_FACTS} Keys that were not drawn are left out.",
        f"The first {requests:,} requests of each, where there are so many: "
        + ", ".join(f"{load.name} {len(load.trace):,} of {load.trace.num_keys:,} keys" for load in loads)
        + ".",
        f"A miss of the shipped trace costs {PREFILL_SECONDS:g} GPU seconds for each prompt token and "
        f"{DECODE_SECONDS:g} for each output token.",
        f"Recorded keys without times and sizes come {RATE:,.0f} a second and count 1 each.",
        *(f"{name}: left out, not beside the repository." for name in missing),
    ]
    return Report(facts, tables, goals)


def compile_kernels(trace: Trace) -> None:
    """Runs the kernels once, over next to nothing."""
    few = requests_of(trace.key[:1], trace.arrival_seconds[:1], trace.size_bytes[:1])
    for eviction in (Lru(), Sieve()):
        ShadowCache(few, trace.num_keys, 1.0, eviction=eviction).run(0)


BENCHMARK = Benchmark("eviction", "Eviction and admission policies", ("numpy", "numba", "libcachesim"), measure)

if __name__ == "__main__":
    main(BENCHMARK)
