"""Parts of benchmarks/replay.py: memory beyond the trace, and cost per request as traces grow."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.harness import Cell, Goal, Table, at_most, median_ratio, say, seconds_of, take_turns
from benchmarks.workloads import CATALOGUE, distinct_bytes, zipf_trace
from caches.shadow import kernel
from caches.shadow.cache import ShadowCache, requests_of
from caches.shadow.curve import link, lru_misses
from traces.trace import Trace

PER_REQUEST, PER_KEY = 32, 24  # goal, bytes beyond the trace itself
FLAT = 1.2
CAPACITY_SHARE = 0.005  # of the catalogue: full long before the shortest trace ends
Figures = tuple[list[Table], list[Goal]]


def memory(trace: Trace) -> Figures:
    """Arrays counted one by one, and the growth of the peak resident size beside them."""
    say("memory")
    n, keys = len(trace), trace.num_keys
    links = link(trace.key, keys)
    cache = ShadowCache(requests_of(trace.key, trace.arrival_seconds, trace.size_bytes), keys, 1e6)
    state = sum(array.nbytes for array in cache.state)
    stored = sum(column.nbytes for column in cache.requests)  # copied only where the trace lies on disk
    per_key = 4  # link's scratch, the last position of each key
    counted: list[tuple[str, float, float, float | None]] = [
        ("lru_misses", sum(array.nbytes for array in links) / n, per_key, peak_growth(lambda: _curve(trace))),
        ("ShadowCache", 0.0, state / keys, peak_growth(lambda: _shadow(trace))),
        ("ShadowCache on a stored trace", stored / n, state / keys, None),
    ]
    rows: list[list[Cell]] = [
        [name, request, key, request * n + key * keys, peak] for name, request, key, peak in counted
    ]
    table = Table(
        f"Memory beyond the trace, {n:,} requests, {keys:,} keys",
        ("what", "bytes per request", "bytes per key", "together, bytes", "growth of peak RSS, bytes"),
        rows,
        "A stored trace is memory-mapped; its columns are read into memory for the replay, which is "
        "counted here. The peak grows by less where memory freed before is used again.",
    )
    request, key = max(one[1] for one in counted), max(one[2] for one in counted)
    wanted = f"memory beyond the trace: at most {PER_REQUEST} bytes per request + {PER_KEY} per key"
    return [table], [Goal(wanted, f"{request:.0f} + {key:.0f}", request <= PER_REQUEST and key <= PER_KEY)]


def _curve(trace: Trace) -> None:
    lru_misses(*link(trace.key, trace.num_keys), trace.size_bytes, np.array([1_000_000]))


def _shadow(trace: Trace) -> None:
    requests = requests_of(trace.key, trace.arrival_seconds, trace.size_bytes)
    ShadowCache(requests, trace.num_keys, 1e6).run(len(trace))


def peak_growth(work: Callable[[], None]) -> float | None:
    """By how many bytes the peak resident size rises above what is resident before; None where Linux does not say."""
    reset = Path("/proc/self/clear_refs")
    try:
        reset.write_text("5")
    except OSError:
        return None
    before = _status_bytes("VmRSS")
    work()
    return float(_status_bytes("VmHWM") - before)


def _status_bytes(field: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


def growth(quick: bool) -> Figures:
    """The same popularity at every length: shorter traces are the beginning of the longest."""
    lengths = (10_000, 100_000) if quick else (1_000_000, 10_000_000, 50_000_000)
    say(f"growth: drawing {lengths[-1]:,} requests")
    trace = zipf_trace(lengths[-1])
    curve = _CurveCost(trace)
    shadow = _ShadowCost(trace, curve.capacity)
    say("growth: measuring")
    rounds = 1 if quick else 3
    rows: list[list[Cell]] = []
    goals = []
    for name, cost in (("lru_misses", curve.cost), ("ShadowCache", shadow.cost)):
        taken: dict[tuple[int, bool], list[float]] = {}
        for warm in (False, True):
            turns = take_turns({n: partial(cost, n, warm) for n in lengths}, rounds)
            taken |= {(n, warm): turns[n] for n in lengths}
        rows += [
            [name, n, *(statistics.median(taken[n, warm]) for warm in (False, True)), len(np.unique(trace.key[:n]))]
            for n in lengths
        ]
        for warm, where in ((False, "from an empty cache"), (True, "second half")):
            ratio = median_ratio(taken[lengths[-1], warm], taken[lengths[0], warm])
            wanted = f"{name}, {where}: cost per request at {lengths[-1]:,} over {lengths[0]:,} requests"
            goals.append(at_most(wanted, FLAT, ratio, "x"))
    table = Table(
        "Cost per request as the trace grows",
        ("what", "requests", "ns per request, from an empty cache", "ns per request, second half", "keys so far"),
        rows,
        f"Zipf as above: the popularity of all {CATALOGUE:,} keys is the same at every length, and ever more of them "
        f"have been requested. One capacity, {100 * CAPACITY_SHARE:g} % of the distinct bytes of the longest trace.",
    )
    return [table], goals


class _CurveCost:
    def __init__(self, trace: Trace) -> None:
        self.previous, self.following = link(trace.key, trace.num_keys)
        self.size, self.capacity = trace.size_bytes, int(CAPACITY_SHARE * distinct_bytes(trace))

    def cost(self, n: int, warm: bool) -> float:
        """ns per request, over all n or over the second half."""
        whole = self._seconds(n)
        return 1e9 * ((whole - self._seconds(n // 2)) / (n - n // 2) if warm else whole / n)

    def _seconds(self, n: int) -> float:
        """Short replays are repeated, so that what is timed is long enough to time."""
        repeats = max(1, 10_000_000 // n)
        columns, capacity = (self.previous[:n], self.following[:n], self.size[:n]), np.array([self.capacity])
        return statistics.median(seconds_of(lambda: lru_misses(*columns, capacity)) for _ in range(repeats))


class _ShadowCost:
    def __init__(self, trace: Trace, capacity: int) -> None:
        self.requests: kernel.Requests = requests_of(trace.key, trace.arrival_seconds, trace.size_bytes)
        self.num_keys, self.capacity = trace.num_keys, capacity

    def cost(self, n: int, warm: bool) -> float:
        """ns per request, over all n or over the second half."""
        return 1e9 * statistics.median(self._seconds(n, warm) for _ in range(max(1, 5_000_000 // n)))

    def _seconds(self, n: int, warm: bool) -> float:
        cache = ShadowCache(self.requests, self.num_keys, self.capacity)
        cache.run(n // 2 if warm else 0)
        start = cache.position
        return seconds_of(lambda: cache.run(n)) / (n - start)
