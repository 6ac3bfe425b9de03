"""What eviction policies are worth in a prefix cache: hit tokens of each between LRU and the clairvoyant optimum."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from kvcache_sim.calculator import calculate_cache_size, load_models_data, models_by_id
from numpy.typing import NDArray

from benchmarks.harness import (
    SHARED_TRACES,
    Benchmark,
    Cell,
    Goal,
    Report,
    Table,
    at_least,
    at_most,
    main,
    say,
    seconds_of,
)
from benchmarks.workloads import SESSIONS
from caches.policies.prefix_cache import PolicyPrefixCache
from caches.policies.prefix_settings import (
    PREFIX_EVICTIONS,
    HitDensity,
    KnownBlocks,
    PrefixRules,
    prefix_rules,
)
from caches.policies.settings import Lru
from caches.shadow.chain import PrefixCache
from caches.shadow.chain_offline import clairvoyant_run, endless_run
from caches.shadow.trie import Chains, chains_of
from envs.serving import load_profile
from envs.units import GIB
from traces.catalog import load_trace
from traces.session_arrivals import Made, SessionStarts, compose_sessions
from traces.trace import Trace

Array = NDArray[Any]
MOONCAKE = SHARED_TRACES / "llm" / "mooncake_conversation.part1.jsonl.gz"
SIZES = (64, 256)  # GiB
PROFILES = ("qwen2.5-7b-a100", "qwen-7b-a100")
OTHERS = "GLM-5.2"  # the model that others' figures are for
THEIRS = {
    64: (4.9, 23.0),
    256: (13.1, 37.3),
}  # LRU and optimum, % of the tokens of the last half of all 12,031 requests
NEAR = 1.0  # points; ours are of the first 6,848 of them
THIRD = 33.3  # goal, % of the gap
AGENT_BLOCKS = (250, 1_000)  # of 1,024 tokens
AGENT_SEEDS = (1, 2, 3)
T_975_2 = 4.303  # Student's t with two degrees of freedom

Policies = dict[str, Callable[[int], PrefixRules]]
POLICIES: Policies = {
    name: lambda tokens, policy=policy: prefix_rules(policy, tokens) for name, policy in PREFIX_EVICTIONS.items()
}
POLICIES |= {
    "lru, second hit": lambda tokens: prefix_rules(Lru(), tokens, KnownBlocks()),
    "hit-density, takes all": lambda tokens: prefix_rules(HitDensity(takes_all=True), tokens),
}


@dataclass(frozen=True)
class Prompts:
    """A trace's blocks. first: the first request that is measured."""

    chains: Chains
    seconds: Array
    prompt_tokens: Array
    block_tokens: int
    first: int

    def percent(self, hits: Array) -> float:
        """Tokens that hit, of the prompts of the measured requests."""
        tokens = np.minimum(hits.astype(np.int64) * self.block_tokens, self.prompt_tokens)
        return 100.0 * float(tokens[self.first :].sum() / self.prompt_tokens[self.first :].sum())


def prompts_of(trace: Trace, rows: slice, first: int) -> Prompts:
    offsets = trace.block_offsets[rows.start : rows.stop + 1]
    chains = chains_of(offsets - offsets[0], trace.block_hashes[offsets[0] : offsets[-1]])
    tokens = trace.prompt_tokens[rows].astype(np.int64)
    return Prompts(chains, trace.arrival_seconds[rows], tokens, int(trace.info.block_size_tokens or 0), first)


@dataclass(frozen=True)
class Replayed:
    """percent: hit tokens by policy. lru: the kernel of caches.shadow.chain. rate: thousand requests a second."""

    percent: dict[str, float]
    rate: dict[str, float]
    lru: float
    optimum: float
    endless: float

    def closed(self, policy: str) -> float:
        return (self.percent[policy] - self.lru) / (self.optimum - self.lru)


def replayed(prompts: Prompts, blocks: int, policies: Policies = POLICIES) -> Replayed:
    percent, rate = {}, {}
    for name, rules in policies.items():
        cache = PolicyPrefixCache(prompts.chains, rules(prompts.block_tokens), blocks)
        hits: list[Array] = []
        seconds = seconds_of(lambda cache=cache, hits=hits: hits.append(cache.run_at(prompts.seconds)))
        percent[name], rate[name] = prompts.percent(hits[0]), len(prompts.seconds) / seconds / 1e3
    lru = PrefixCache(prompts.chains, blocks).run(len(prompts.seconds))
    best, endless = clairvoyant_run(prompts.chains, blocks), endless_run(prompts.chains)
    return Replayed(percent, rate, prompts.percent(lru), prompts.percent(best), prompts.percent(endless))


def bytes_per_token() -> dict[str, int]:
    """Keys and values of a token, by model."""
    kept = {name: int(load_profile(name).kv_bytes_per_token) for name in PROFILES}
    data = load_models_data()
    theirs = calculate_cache_size(models_by_id(data)["glm-5.2"], tokens=1_000, block_size=512, models_data=data)
    return {**kept, OTHERS: int(theirs.bytes_per_token)}


def on_mooncake(prompts: Prompts, sizes: tuple[int, ...]) -> tuple[list[Table], list[Goal]]:
    found = {
        (model, size): replayed(prompts, int(size * GIB / (kept * prompts.block_tokens)))
        for model, kept in bytes_per_token().items()
        for size in sizes
        if not say(f"{model}, {size} GiB")
    }
    header = ("policy", *(f"{model.removesuffix('-a100')}, {size} GiB" for model, size in found))
    rows: list[list[Cell]] = [["LRU", *(one.lru for one in found.values())]]
    rows += [[name, *(one.percent[name] for one in found.values())] for name in POLICIES if name != "lru"]
    rows += [["clairvoyant optimum", *(one.optimum for one in found.values())]]
    rows += [["endless cache", *(one.endless for one in found.values())]]
    shares: list[list[Cell]] = [
        [name, *(100 * one.closed(name) for one in found.values())] for name in POLICIES if name != "lru"
    ]
    speed: list[list[Cell]] = [[name, *(one.rate[name] for one in found.values())] for name in POLICIES]
    tables = [
        Table("Mooncake's conversations, last half of the requests: hit tokens, %", header, rows),
        Table("The same: share of the gap between LRU and the optimum that is closed, %", header, shares),
        Table("The same: replay, thousand requests/s", header, speed, "LRU has a kernel of its own besides."),
    ]
    goals = [
        at_least(f"gap closed by hit-density, {model}, {size} GiB", THIRD, 100 * one.closed("hit-density"), "%")
        for (model, size), one in found.items()
    ]
    same = sum(one.percent["lru"] == one.lru for one in found.values())
    goals.append(Goal("LRU by both kernels the same: everywhere", f"{same} of {len(found)}", same == len(found)))
    for size in sizes:
        one, (lru, best) = found[OTHERS, size], THEIRS[size]
        apart = max(abs(one.lru - lru), abs(one.optimum - best))
        goals.append(
            at_most(f"LRU and optimum, {size} GiB, apart from others' {lru} and {best} %", NEAR, apart, "points")
        )
    return tables, goals


def on_halves(trace: Trace, size: int) -> Table:
    """Each half from an empty cache that has learned nothing."""
    kept, half = bytes_per_token()[PROFILES[0]], len(trace) // 2
    rows: list[list[Cell]] = []
    for name, part in (("first half", slice(0, half)), ("second half", slice(half, len(trace)))):
        prompts = prompts_of(trace, part, 0)
        one = replayed(prompts, int(size * GIB / (kept * prompts.block_tokens)), chosen("lfu", "hit-density"))
        rows.append([name, one.lru, one.percent["lfu"], one.percent["hit-density"], one.optimum])
    header = ("Mooncake", "LRU", "lfu", "hit-density", "optimum")
    title = f"Halves on their own, from nothing, {PROFILES[0]}, {size} GiB: hit tokens, %"
    note = "Classes and strength of hit-density were chosen on the last half of the whole."
    return Table(title, header, rows, note)


def chosen(*names: str) -> Policies:
    return {name: POLICIES[name] for name in names}


def on_agents(seeds: tuple[int, ...], days: float) -> Table:
    """Other traffic: nothing was chosen on it."""
    wanted = chosen("lru-2", "lfu", "gdsf", "hit-density", "hit-density, takes all")
    found: dict[int, list[Replayed]] = {blocks: [] for blocks in AGENT_BLOCKS}
    for seed in seeds:
        say(f"agents' sessions, seed {seed}")
        starts = SessionStarts(days=days, per_day=60)
        trace = compose_sessions(SESSIONS, starts, seed, Made("agents", "Apache-2.0", coarsen=16))
        prompts = prompts_of(trace, slice(0, len(trace)), len(trace) // 2)
        for blocks in AGENT_BLOCKS:
            found[blocks].append(replayed(prompts, blocks, wanted))
    rows: list[list[Cell]] = [
        [name, *(spread([figure(one, name) for one in found[blocks]]) for blocks in AGENT_BLOCKS)]
        for name in ("LRU", *wanted, "optimum", "endless")
    ]
    header = ("policy", *(f"{blocks:,} blocks" for blocks in AGENT_BLOCKS))
    title = f"Coding agents, {days:g} days composed of recorded sessions, last half: hit tokens, %"
    return Table(title, header, rows, f"Mean over {len(seeds)} draws of the sessions' starts, with a 95 % interval.")


def figure(one: Replayed, name: str) -> float:
    return {"LRU": one.lru, "optimum": one.optimum, "endless": one.endless}.get(name, one.percent.get(name, np.nan))


def spread(values: list[float]) -> str:
    mean = statistics.fmean(values)
    if len(values) < 3:
        return f"{mean:.2f}"
    half = T_975_2 * statistics.stdev(values) / len(values) ** 0.5
    return f"{mean:.2f} [{mean - half:.2f}, {mean + half:.2f}]"


def measure(quick: bool) -> Report:
    if not MOONCAKE.exists() or not SESSIONS.exists():
        return Report([], [], [Goal("hit tokens of each policy", "no traces beside the repository", None)])
    trace = load_trace(MOONCAKE)
    requests = 1_000 if quick else len(trace)
    prompts = prompts_of(trace, slice(0, requests), requests // 2)
    facts = [
        f"{MOONCAKE.name}: {requests:,} requests, {int(prompts.chains.offsets[-1]):,} references to blocks of "
        f"{prompts.block_tokens} tokens; requests in turn, from an empty cache; measured from number "
        f"{prompts.first:,} on.",
        "Bytes of keys and values per token: "
        + ", ".join(f"{model} {kept:,}" for model, kept in bytes_per_token().items())
        + ".",
        f"{SESSIONS.name}: recorded sessions with drawn starts, 60 a day, blocks joined to 1,024 tokens.",
    ]
    replayed(prompts_of(trace, slice(0, 200), 0), 500)  # compiles
    tables, goals = on_mooncake(prompts, SIZES[:1] if quick else SIZES)
    if not quick:
        tables += [on_halves(trace, size) for size in SIZES]
    tables.append(on_agents(AGENT_SEEDS[:1] if quick else AGENT_SEEDS, 0.5 if quick else 3.0))
    return Report(facts, tables, goals)


BENCHMARK = Benchmark("prefix_eviction", "Eviction in a prefix cache", ("numpy", "numba", "kvcache-simulator"), measure)

if __name__ == "__main__":
    main(BENCHMARK)
