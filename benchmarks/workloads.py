"""Traffic that the benchmarks run on: a seeded Zipf trace, and the recorded Twitter trace where it is at hand."""

from __future__ import annotations

import dataclasses

import numpy as np

from benchmarks.harness import SHARED_TRACES
from traces.catalog import load_trace
from traces.trace import Trace, TraceInfo

ALPHA, CATALOGUE = 1.0, 1_000_000
SMALLEST, LARGEST = 50, 5_000  # bytes; a key's size is drawn once, log-uniformly between them
RATE = 2_000.0  # requests/s, equally spaced
TWITTER = SHARED_TRACES / "kv" / "twitter_cluster52.part1.csv.zst"
ZIPF_FACTS = (
    f"Zipf: alpha {ALPHA}, a catalogue of {CATALOGUE:,} keys in random order, sizes log-uniform from {SMALLEST} to "
    f"{LARGEST:,} bytes per key, {RATE:,.0f} requests/s equally spaced, seed 0."
)


def zipf_trace(requests: int, seed: int = 0) -> Trace:
    """Independent draws: the k-th most popular key has weight k to the power of -ALPHA. Keys that are never drawn leave
    gaps in the numbering: `num_keys` is the size of the catalogue."""
    random = np.random.default_rng(seed)
    share = np.cumsum(np.arange(1, CATALOGUE + 1) ** -ALPHA)
    names = random.permutation(CATALOGUE).astype(np.int32)
    sizes = np.exp(random.uniform(np.log(SMALLEST), np.log(LARGEST), CATALOGUE)).astype(np.int32)
    key = np.empty(requests, np.int32)
    for start in range(0, requests, 1_000_000):  # by pieces: ranks take 8 bytes each
        part = key[start : start + 1_000_000]
        part[:] = names[np.searchsorted(share, random.random(len(part)) * share[-1])]
    info = TraceInfo("zipf", f"drawn by benchmarks/workloads.py, seed {seed}")
    return Trace(info, np.arange(requests) / RATE, key, sizes[key], CATALOGUE)


def twitter_trace(requests: int | None = None) -> Trace | None:
    """The first so many requests; None where the recorded traces are not beside the repository."""
    if not TWITTER.exists():
        return None
    trace = load_trace(TWITTER)
    return trace if requests is None else first(trace, requests)


def first(trace: Trace, requests: int) -> Trace:
    """The beginning of a trace, keys numbered anew without gaps."""
    return part(trace, slice(requests))


def part(trace: Trace, requests: slice) -> Trace:
    """A stretch of a trace without optional columns, keys numbered anew without gaps."""
    _, key = np.unique(trace.key[requests], return_inverse=True)
    return dataclasses.replace(
        trace,
        arrival_seconds=trace.arrival_seconds[requests],
        key=key.astype(np.int32),
        size_bytes=trace.size_bytes[requests],
        num_keys=int(key.max()) + 1,
    )


def stretched(trace: Trace, span_seconds: float) -> Trace:
    """Arrivals spread evenly in proportion over another span: the order and the bursts stay, the rate changes."""
    arrival = trace.arrival_seconds - trace.arrival_seconds[0]
    return dataclasses.replace(trace, arrival_seconds=arrival * (span_seconds / arrival[-1]))


def distinct_bytes(trace: Trace) -> int:
    """Every requested key once. Sizes must not change."""
    size = np.zeros(trace.num_keys, np.int64)
    size[trace.key] = trace.size_bytes
    return int(size.sum())
