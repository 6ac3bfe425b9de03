"""The shadow prefix cache beside two other implementations on recorded chat prompts: the same hits, and how fast."""

from __future__ import annotations

import dataclasses
import statistics
from dataclasses import dataclass
from typing import Any

import numpy as np
from kvcache_sim.cpp_backend import ensure_cpp_simulator, run_cpp_sweep
from kvcache_sim.plan import ExecutionPlan, build_execution_plan
from kvcache_sim.policies import simulate_policy
from kvcache_sim.trace import TraceData, parse_trace_file
from numpy.typing import NDArray

from benchmarks import dynamo_peer
from benchmarks.dynamo_peer import Answer, Unavailable, Wanted
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
    median_ratio,
    say,
    seconds_of,
    take_turns,
)
from caches.shadow.chain import PrefixCache
from caches.shadow.trie import Chains, chains_of
from traces.catalog import load_trace
from traces.trace import Trace

Array = NDArray[Any]

MOONCAKE = SHARED_TRACES / "llm" / "mooncake_conversation.part1.jsonl.gz"
BLOCK = 512  # tokens
CAPACITIES = (250, 1_000, 4_000, 16_000, 50_000)  # blocks; the longest prompt has 244
POOLS = (260, 1_000, 4_000, 16_000, 50_000)  # blocks of an engine that answers too
CORE, PLAIN = 5.0, 100.0  # goals, times kvcache-simulator's C++ core and its Python backend
POINTS = 0.1  # goal, percentage points of the token hit ratio


# kvcache-simulator: one request after the other


@dataclass(frozen=True)
class Sides:
    """The same requests as both have them. window: the first request that is measured."""

    theirs: TraceData
    plan: ExecutionPlan
    chains: Chains
    prompt_tokens: Array

    @property
    def window(self) -> int:
        return self.plan.warmup_requests

    def our_hit_tokens(self, capacity: int) -> int:
        hits = PrefixCache(self.chains, capacity).run(self.theirs.request_count)
        return int(np.minimum(hits * BLOCK, self.prompt_tokens)[self.window :].sum())


def sides(trace: Trace) -> Sides:
    theirs = parse_trace_file(MOONCAKE, block_size=BLOCK, max_records=len(trace))
    return Sides(theirs, build_execution_plan(theirs), chains_of(*blocks_of(trace)), trace.prompt_tokens)


def blocks_of(trace: Trace) -> tuple[Array, Array]:
    return trace.block_offsets, trace.block_hashes


def replay_at(both: Sides, capacity: int, rounds: int) -> tuple[list[Cell], bool, float]:
    """A row of the table, whether the hits are equal, and how many times the peer's Python backend ours is."""
    told: list[int] = []

    def plain() -> float:
        def work() -> None:
            told.append(simulate_policy(both.plan, "lru", capacity).hitTokens)

        return seconds_of(work)

    def ours() -> float:
        cache = PrefixCache(both.chains, capacity)
        return seconds_of(lambda: cache.run(both.theirs.request_count))

    taken = take_turns({"theirs": plain, "ours": ours}, rounds)
    tokens, hits = int(both.prompt_tokens[both.window :].sum()), both.our_hit_tokens(capacity)
    rate = {name: len(both.theirs.ids) / 1e6 / statistics.median(seconds) for name, seconds in taken.items()}
    ratio = median_ratio(taken["theirs"], taken["ours"])
    row: list[Cell] = [f"{capacity:,}", told[0], hits, hits / tokens, rate["theirs"], rate["ours"], ratio]
    return row, set(told) == {hits}, ratio


def sweep(both: Sides, capacities: tuple[int, ...], rounds: int) -> tuple[list[Cell], bool, float]:
    """All capacities together, the tree of blocks included: by its C++ core, by ours."""
    told: dict[int, int] = {}

    def core() -> float:
        def work() -> None:
            done = run_cpp_sweep(
                both.theirs, capacities=list(capacities), policies=["lru"], warmup_requests=both.window
            )
            told.update({capacity: done.results["lru", capacity].hitTokens for capacity in capacities})

        return seconds_of(work)

    offsets, hashes = np.array(both.theirs.request_starts), np.array(both.theirs.ids)

    def ours() -> float:
        def work() -> None:
            chains = chains_of(offsets, hashes)
            for capacity in capacities:
                PrefixCache(chains, capacity).run(both.theirs.request_count)

        return seconds_of(work)

    taken = take_turns({"theirs": core, "ours": ours}, rounds)
    ratio = median_ratio(taken["theirs"], taken["ours"])
    equal = told == {capacity: both.our_hit_tokens(capacity) for capacity in capacities}
    return [statistics.median(taken["theirs"]), statistics.median(taken["ours"]), ratio], equal, ratio


def beside_kvcache_simulator(trace: Trace, quick: bool) -> tuple[list[Table], list[Goal]]:
    rounds, capacities = (1, CAPACITIES[:2]) if quick else (3, CAPACITIES)
    both = sides(trace)
    rows, equal, plain = [], [], []
    for capacity in capacities:
        say(f"kvcache-simulator, {capacity:,} blocks")
        row, same, ratio = replay_at(both, capacity, rounds)
        rows.append(row)
        equal.append(same)
        plain.append(ratio)
    header = ("blocks", "hit tokens, theirs", "hit tokens, ours", "token hit ratio", "theirs", "ours", "times theirs")
    note = "Hit tokens of the second half of the requests, which is what it measures."
    title = "Beside kvcache-simulator's Python backend: hits, and million block references/s"
    tables = [Table(title, header, rows, note)]
    goals = [
        equal_at("hit tokens equal to kvcache-simulator's Python backend", equal),
        at_least("replay, times its Python backend, the least", PLAIN, min(plain), "x"),
    ]
    try:
        ensure_cpp_simulator()
    except RuntimeError as error:
        return tables, [*goals, Goal("beside its C++ core", str(error), None)]
    say("kvcache-simulator's C++ core, all capacities")
    row, same, ratio = sweep(both, capacities, rounds)
    title = f"{len(capacities)} capacities in one sweep, the tree of blocks included, s"
    tables.append(Table(title, ("its C++ core", "ours", "times theirs"), [row], CORE_NOTE))
    goals += [
        equal_at("hit tokens equal to its C++ core", [same]),
        at_least("sweep, times its C++ core", CORE, ratio, "x"),
    ]
    return tables, goals


CORE_NOTE = (
    "Its core is a process that reads files, which its Python writes: both are in its figure, as in any use of it. "
    "Both start from lists or arrays in memory."
)


def equal_at(what: str, equal: list[bool]) -> Goal:
    return Goal(f"{what}: everywhere", f"{sum(equal)} of {len(equal)}", all(equal))


# Dynamo's replay: one request after the other, and side by side


def engine_chains(trace: Trace) -> Chains:
    """The blocks that an engine keeps: the whole ones of a prompt, then those that its answer fills, which nobody else
    has. The last token of an answer is never computed."""
    whole = trace.prompt_tokens // BLOCK
    filled = (trace.prompt_tokens + trace.output_tokens - 1) // BLOCK - whole
    chains, own = [], int(trace.block_hashes.max()) + 1
    for row in range(len(trace)):
        first = int(trace.block_offsets[row])
        chains += [trace.block_hashes[first : first + whole[row]], np.arange(own, own + filled[row])]
        own += int(filled[row])
    return chains_of(np.concatenate([[0], np.cumsum(whole + filled)]), np.concatenate(chains))


def in_turn(chains: Chains, pool: int) -> int:
    """Reused tokens. One block of the pool is for the partial block of whoever runs."""
    return BLOCK * int(PrefixCache(chains, pool - 1).run(len(chains.offsets) - 1).sum())


@dataclass(frozen=True)
class Followed:
    """Ours, following when Dynamo admitted and finished each request. reused: tokens, of each request."""

    reused: Array
    theirs: Array
    most_at_once: int
    preempted: int


def follow(chains: Chains, pool: int, rows: list[dict[str, Any]]) -> Followed:
    """Blocks that an answer fills count from its admission on; in Dynamo they come one by one."""
    admissions = [(row["first_admit_ms"], 1, row["admission_history"][0]["admission_ordinal"]) for row in rows]
    events = sorted(
        [(*when, request) for request, when in enumerate(admissions)]
        + [(row["terminal_time_ms"], 0, 0, request) for request, row in enumerate(rows)]
    )
    cache = PrefixCache(chains, pool)
    reused, running, most = np.zeros(len(rows), np.int64), 0, 0
    for now, begins, _, request in events:
        if begins:
            reused[request] = BLOCK * cache.arrive(request, now)[0]
            running += 1
            most = max(most, running)
        else:
            cache.finish(request, now)
            running -= 1
    theirs = np.array([row["admission_history"][0]["reused_input_tokens"] for row in rows])
    return Followed(reused, theirs, most, sum(row["admission_count"] > 1 for row in rows))


def beside_dynamo(trace: Trace, quick: bool) -> tuple[list[Table], list[Goal]]:
    pools = POOLS[:2] if quick else POOLS
    say("Dynamo's replay, one request after the other and as recorded")
    wanted = [Wanted(pool, at_once) for pool in pools for at_once in (1, None)]
    try:
        answers = dynamo_peer.replay(trace, wanted)
    except Unavailable as why:
        return [], [Goal("beside Dynamo's replay", str(why), None)]
    chains, tokens = engine_chains(trace), int(trace.prompt_tokens.sum())
    alone = [reused_tokens(answer) for answer in answers[::2]]
    ours = [in_turn(chains, pool) for pool in pools]
    followed = [follow(chains, pool, answer.per_request) for pool, answer in zip(pools, answers[1::2], strict=True)]
    apart = [100 * abs(each.theirs.sum() - each.reused.sum()) / tokens for each in followed]
    tables = [turns_table(pools, alone, ours, tokens), together_table(pools, followed, ours, tokens)]
    goals = [
        equal_at(
            "reused tokens equal to Dynamo's, one request after the other",
            [theirs == mine for theirs, mine in zip(alone, ours, strict=True)],
        ),
        at_most("reused share, following its admissions, the largest difference", POINTS, max(apart), "points"),
    ]
    return tables, goals


def turns_table(pools: tuple[int, ...], theirs: list[int], ours: list[int], tokens: int) -> Table:
    rows = [
        [f"{pool:,}", its, mine, percent(mine / tokens)] for pool, its, mine in zip(pools, theirs, ours, strict=True)
    ]
    title = "Beside Dynamo's replay, one request after the other: reused tokens"
    return Table(title, ("blocks of the pool", "theirs", "ours", "of the prompts, %"), rows)


def together_table(pools: tuple[int, ...], followed: list[Followed], ours: list[int], tokens: int) -> Table:
    rows: list[list[Cell]] = [
        [
            f"{pool:,}",
            percent(each.theirs.sum() / tokens),
            percent(each.reused.sum() / tokens),
            int((each.theirs != each.reused).sum()),
            percent(alone / tokens),
            each.most_at_once,
            each.preempted,
        ]
        for pool, each, alone in zip(pools, followed, ours, strict=True)
    ]
    header = (
        "blocks of the pool",
        "theirs",
        "ours, following its admissions",
        "requests that differ",
        "ours, one after the other",
        "most at once",
        "preempted",
    )
    title = "Beside Dynamo's replay, requests side by side as recorded: reused share of the prompts, %"
    return Table(title, header, rows, SIDE_BY_SIDE)


SIDE_BY_SIDE = (
    "At a request's first admission: what is preempted is admitted again and finds its own blocks, which is no saving. "
    "Ours counts the blocks that an answer fills from its admission on, Dynamo as they are filled."
)


def reused_tokens(answer: Answer) -> int:
    return int(answer.summary["total_input_tokens"] - answer.summary["committed_prefill_tokens"])


def percent(share: float) -> str:
    return f"{100 * share:.3f}"


def first_requests(trace: Trace, requests: int) -> Trace:
    rows = slice(requests)
    return dataclasses.replace(
        trace,
        arrival_seconds=trace.arrival_seconds[rows],
        key=trace.key[rows],
        size_bytes=trace.size_bytes[rows],
        namespace=None,
        prompt_tokens=trace.prompt_tokens[rows],
        output_tokens=trace.output_tokens[rows],
        block_offsets=trace.block_offsets[: requests + 1],
        block_hashes=trace.block_hashes[: trace.block_offsets[requests]],
    )


def measure(quick: bool) -> Report:
    if not MOONCAKE.exists():
        return Report([], [], [Goal("the same hits as others", f"no {MOONCAKE.name} beside the repository", None)])
    whole = load_trace(MOONCAKE)
    trace = first_requests(whole, 1_000 if quick else len(whole))
    PrefixCache(chains_of(*blocks_of(trace)), 1).run(1)  # compiles
    facts = [
        f"{MOONCAKE.name}: {len(trace):,} requests, {int(trace.block_offsets[-1]):,} references to blocks of {BLOCK} "
        "tokens.",
        f"Dynamo: ai-dynamo {dynamo_peer.VERSION} in an environment of its own, its engine `vllm`, one worker.",
    ]
    tables, goals = beside_kvcache_simulator(trace, quick)
    more_tables, more_goals = beside_dynamo(trace, quick)
    return Report(facts, tables + more_tables, goals + more_goals)


BENCHMARK = Benchmark("prefix_cache", "Prefix cache beside others", ("numpy", "numba", "kvcache-simulator"), measure)

if __name__ == "__main__":
    main(BENCHMARK)
