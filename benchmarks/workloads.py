"""Traffic that the benchmarks run on: seeded Zipf and recorded traffic for speed, whole workloads for tuning.

A workload is a trace with everything else that a control problem needs: interval, knobs, prices, constraints. Its trace
is made once and kept converted.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import ROOT, SHARED_TRACES
from envs.world import Problem
from traces.catalog import load_trace
from traces.compose import Arrivals, Span, Volume, compose
from traces.servegen import read_lengths, read_rates
from traces.session_arrivals import Made, SessionStarts, compose_sessions
from traces.store import is_converted, open_trace, save_trace
from traces.synthetic.generate import synthesise
from traces.synthetic.parts import (
    Drift,
    FlashCrowd,
    Launch,
    Popularity,
    Rate,
    Sizes,
    SyntheticWorkload,
    Tokens,
)
from traces.trace import Trace, TraceInfo
from tuner.config import TunerConfig
from tuner.problem import problem_of

ALPHA, CATALOGUE = 1.0, 1_000_000
SMALLEST, LARGEST = 50, 5_000  # bytes; a key's size is drawn once, log-uniformly between them
RATE = 2_000.0  # requests/s, equally spaced
TWITTER = SHARED_TRACES / "kv" / "twitter_cluster52.part1.csv.zst"
MOONCAKE = SHARED_TRACES / "llm" / "mooncake_conversation.part1.jsonl.gz"
SESSIONS = SHARED_TRACES / "llm" / "claude_code_sessions.part1.jsonl.gz"
RATES = SHARED_TRACES / "llm" / "servegen_m-small_rates.csv.gz"
LARGE_RATES = SHARED_TRACES / "llm" / "servegen_m-large.part1_rates.csv.gz"
LENGTHS = SHARED_TRACES / "llm" / "servegen_m-large.part1_lengths.csv.gz"
GIB = 2**30
SEEDS = (0, 1, 2, 3, 4)
WORKERS = 2
DEFAULT_MEMORY_PRICE = TunerConfig().prices.memory_usd_per_gib_hour
CONVERTED = ROOT / "out" / "benchmarks"
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


@dataclass(frozen=True)
class Workload:
    """make: the trace, from the files in `needs`. settings: sections of the configuration that differ from the
    defaults. facts: one sentence per fact for the report."""

    name: str
    make: Callable[[], Trace]
    needs: tuple[Path, ...]
    settings: Mapping[str, Any]
    facts: tuple[str, ...] = ()

    @property
    def missing(self) -> list[str]:
        """Names of the recordings that are not beside the repository."""
        return [path.name for path in self.needs if not path.exists()]


def trace_of(workload: Workload) -> Trace:
    """Made once and kept converted."""
    folder = CONVERTED / f"{workload.name}.trace"
    if not is_converted(folder):
        CONVERTED.mkdir(parents=True, exist_ok=True)
        save_trace(workload.make(), folder)
    return open_trace(folder)


def _twitter(keys: slice) -> Trace:
    return part(load_trace(TWITTER), keys)


def _composed(name: str, rates: Path, keys: slice) -> Trace:
    arrivals = Arrivals(read_rates(rates), Span(), Volume(), read_lengths(LENGTHS))
    return compose(arrivals, _twitter(keys), seed=1, name=name)


def _agents(name: str) -> Trace:
    starts = SessionStarts(days=6, per_day=60, rates=read_rates(LARGE_RATES))
    return compose_sessions(SESSIONS, starts, seed=1, made=Made(name, "Apache-2.0", coarsen=16))


def _events(name: str) -> Trace:
    return synthesise(EVENT_PARTS, seed=1, name=name)


# Hours of 14 days; the parts for training, validation and test end at hours 201.6, 268.8 and 336. Irregular, so that no
# clock foretells them. Crowds: (start, hours, keys of their own, times the usual rate), drawn once.
LAUNCHES = (39, 85, 128, 171, 222, 262, 287, 318)
CROWDS = (
    *((20.7, 3.2, 288, 5.0), (21.8, 2.2, 247, 4.7), (23.5, 2.8, 208, 3.2), (82.0, 4.0, 363, 5.6)),
    *((98.6, 2.7, 263, 5.6), (130.2, 2.1, 368, 5.1), (138.3, 2.0, 111, 4.3), (146.9, 2.6, 251, 4.0)),
    *((173.0, 4.4, 145, 3.4), (217.4, 4.1, 194, 4.3), (266.8, 4.4, 339, 4.0), (267.8, 4.4, 170, 4.5)),
    *((279.5, 3.5, 390, 3.0), (296.8, 4.8, 170, 3.3), (321.6, 4.5, 235, 5.9), (329.7, 3.2, 210, 5.8)),
)
EVENT_PARTS = SyntheticWorkload(
    days=14,
    popularity=Popularity(num_keys=30_000, alpha=0.9),
    rate=Rate(mean_rps=0.6, daily_amplitude=0.9, peak_hour=15.0, weekend_factor=0.7),
    sizes=Sizes(median_bytes=1e6, sigma=0.8),
    tokens=Tokens(prompt_median=900, prompt_sigma=0.8, output_median=200, output_sigma=0.8),
    drift=Drift(reshuffled_per_hour=0.005),
    launches=tuple(Launch(float(hour)) for hour in LAUNCHES),
    flash_crowds=tuple(FlashCrowd(*crowd) for crowd in CROWDS),
)


COMPOSED = Workload(
    "servegen-twitter",
    partial(_composed, "servegen-twitter", RATES, slice(2_000_000)),
    (RATES, LENGTHS, TWITTER),
    {
        "trace": {"interval_seconds": 600},
        "knobs": {"ttl_seconds": {"low": 600, "high": 604_800, "default": 86_400}},
        "serving": {"profile": "qwen-7b-a100", "max_sequences": 16},
        "prices": {"slow_request_usd": 0.001},
        "constraints": {"p99_ttft_seconds": 3.0, "max_unsafe_per_1000": 5},
        "ppo": {"total_steps": 300_000},
    },
    facts=(
        "servegen-twitter (composed of real parts, response mode): arrival rates of ServeGen m-small over 14 days, "
        "keys and sizes of the first 2 million requests of Twitter cluster52 part 1 in order, token lengths per key "
        "fitted to ServeGen m-large; one request in 700 of the recorded rates, served by 16 sequences of one Qwen-7B "
        "on an A100. This test part was seen while prices, sequences and PPO's defaults were chosen.",
    ),
)
UNSEEN = Workload(
    "servegen-large-twitter",
    partial(_composed, "servegen-large-twitter", LARGE_RATES, slice(2_000_000, 3_200_000)),
    (LARGE_RATES, LENGTHS, TWITTER),
    {**COMPOSED.settings, "serving": {"profile": "qwen-7b-a100", "max_sequences": 14}},
    facts=(
        "servegen-large-twitter (composed likewise): arrival rates of ServeGen m-large over 8 days, the next 1.2 "
        "million requests of Twitter, 14 sequences, everything else as before. Nothing was chosen by its test part.",
    ),
)
TWITTER_ALONE = Workload(
    "twitter",
    partial(_twitter, slice(None)),
    (TWITTER,),
    {
        "trace": {"interval_seconds": 10},
        "knobs": {"ttl_seconds": {"low": 10, "high": 3_600, "default": 600}},
        "serving": {"profile": "qwen-7b-a100", "replicas": 32},
        "prices": {"answer_lifetime_seconds": 14_400, "slow_request_usd": 0.001},
        "constraints": {"p99_ttft_seconds": 3.0, "max_unsafe_per_1000": 5},
        "ppo": {"total_steps": 100_000, "lanes": 16, "horizon": 64, "starts": 8},
    },
    facts=(
        "twitter (response mode): cluster52 part 1 as recorded, 53 minutes, 5.9 million requests; 1,020 prompt tokens "
        "and a quarter of the response's bytes as output tokens assumed; answers live four hours, for so short a span.",
    ),
)
EVENTS = Workload(
    "events",
    partial(_events, "events"),
    (),
    {**COMPOSED.settings, "serving": {"profile": "qwen-7b-a100", "max_sequences": 32}},
    facts=(
        "events (synthetic, response mode): nothing recorded. 14 days of drifting Zipf traffic with a strong day and "
        "night; 8 launches after which every key is new and 16 flash crowds of 3 to 6 times the usual rate, 4 and 9 of "
        "them in training, 2 and 4 in the test part; answers of about 1 MB (pictures or sound), so that memory and "
        "compute cost about the same; 32 sequences. Sizes, rates and sequences were chosen such that fixed settings "
        "leave something to gain, by what an oracle of the past made of the test part.",
    ),
)
# What the two prefix workloads have in common besides their time scales.
PREFIX: Mapping[str, Any] = {
    "cache": {"kind": "prefix"},
    "prefix": {"placement": "host"},
}
MOONCAKE_CHAT = Workload(
    "mooncake",
    partial(load_trace, MOONCAKE),
    (MOONCAKE,),
    {
        **PREFIX,
        "trace": {"interval_seconds": 15},
        "knobs": {
            "cache_size": {"low": 4 * GIB, "high": 2_048 * GIB, "default": 512 * GIB},
            "ttl_seconds": {"low": 10, "high": 3_600, "default": 600},
        },
        "serving": {"profile": "qwen2.5-7b-a100", "replicas": 8},
        "constraints": {"p99_ttft_seconds": 14.0, "max_unsafe_per_1000": 10},
        "ppo": {"total_steps": 60_000, "lanes": 16, "horizon": 32, "starts": 4},
    },
    facts=(
        "mooncake (prefix mode): the conversation trace of Mooncake, part 1, as recorded: 6,848 requests in 35 "
        "minutes, blocks of 512 tokens, cold start; eight GPUs over a host tier. The longest prompt takes 14 s.",
    ),
)
AGENTS = Workload(
    "agents",
    partial(_agents, "agents"),
    (SESSIONS, LARGE_RATES),
    {
        **PREFIX,
        "trace": {"interval_seconds": 600},
        "knobs": {
            "cache_size": {"low": 4 * GIB, "high": 512 * GIB, "default": 128 * GIB},
            "ttl_seconds": {"low": 60, "high": 86_400, "default": 3_600},
        },
        "serving": {"profile": "qwen2.5-7b-a100", "replicas": 2},
        "constraints": {"p99_ttft_seconds": 90.0, "max_unsafe_per_1000": 10},
        "ppo": {"total_steps": 60_000, "lanes": 32, "horizon": 72, "starts": 16},
    },
    facts=(
        "agents (prefix mode, composed): 350 recorded sessions of coding agents (kv-cache-tester), none twice, 21,268 "
        "requests; starts are drawn over 6 days, about 60 a day in the shape of ServeGen m-large's rates; times inside "
        "a session as recorded; blocks of 64 tokens joined by 16, with which an endless cache hits 95.7 % of the "
        "prompt tokens in place of 96.1 %; two GPUs over a host tier. A first prompt of 226,000 tokens takes 25 s.",
    ),
)
# The five that tuners are compared on.
WORKLOADS = (MOONCAKE_CHAT, AGENTS, TWITTER_ALONE, COMPOSED, EVENTS)


def config_of(workload: Workload, memory_factor: float = 1.0, quick: bool = False) -> TunerConfig:
    """memory_factor: of the price of memory. quick: hardly any training."""
    price = DEFAULT_MEMORY_PRICE * memory_factor
    settings = {
        **workload.settings,
        "prices": {**workload.settings.get("prices", {}), "memory_usd_per_gib_hour": price},
    }
    if quick:
        settings["ppo"] = {**settings.get("ppo", {}), "total_steps": 2_048}
    return TunerConfig.model_validate(settings)


def problem_for(workload: Workload, memory_factor: float = 1.0, quick: bool = False) -> Problem:
    """Called again in each worker."""
    return problem_of(config_of(workload, memory_factor, quick), trace_of(workload))
