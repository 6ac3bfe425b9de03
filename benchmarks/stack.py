"""The stack in a process: lookups of real questions, a stampede, and what the parts of a lookup take."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import Benchmark, Cell, Goal, Report, Table, at_least, at_most, main, say
from benchmarks.stack_parts import parts_table, search_table, space, threads_table
from benchmarks.stack_traffic import CLOSERS, OPENERS, asked, keys_of, questions
from benchmarks.stampede import stampede_table
from caches.admission import Doorkeeper
from caches.keys.request_key import RequestKey
from caches.place import Place
from caches.policies.settings import SecondHit
from caches.semantic.tier import SemanticTier
from caches.semantic.wordllama_embedder import WordLlamaEmbedder
from caches.stack import Stack
from caches.tiers.memory import MemoryTier
from caches.tiers.tier import Answer

REQUESTS = 200_000  # of each process
PROCESSES = 2
EXACT_SHARE = 0.9
BODY_BYTES = 1_000
MEMORY_ENTRIES = 512  # room above, in entries: fewer than there are questions
SEMANTIC_BYTES = 16 << 20
TEND_EVERY = 1_000  # requests
RATE, P99_MS = 28_900.0, 14.0


@dataclass(frozen=True)
class Run:
    """seconds: of everything, stores and housekeeping included. lookup_seconds: of each lookup. by: how many requests
    each way answered. kept_out: answers that admission kept out of memory."""

    seconds: float
    lookup_seconds: NDArray[Any]
    by: Counter[str]
    kept_out: int
    held: int


async def run(known: Sequence[RequestKey], requests: Sequence[RequestKey], admission: Doorkeeper | None) -> Run:
    """Known questions are answered before, in the tier below only. What no tier answers is stored in both."""
    overhead = 512
    memory = MemoryTier(space(MEMORY_ENTRIES * (BODY_BYTES + overhead)), entry_overhead_bytes=overhead)
    semantic = SemanticTier(WordLlamaEmbedder(), space(SEMANTIC_BYTES))
    places = [Place(memory, admission=admission), Place(semantic)]
    stack, body = Stack(places), bytes(BODY_BYTES)
    for key in known:
        await semantic.store(key, Answer(body, time.time()), time.time())
    await stack.tend()
    taken, by = np.zeros(len(requests)), Counter[str]()
    began = time.perf_counter()
    for place, key in enumerate(requests):
        start = time.perf_counter()
        served = await stack.lookup(key)
        taken[place] = time.perf_counter() - start
        if served is None:
            by["nothing"] += 1
            await stack.store(key, Answer(body, time.time()))
        else:
            by[str(served.tier) if served.similarity == 1.0 else "by meaning"] += 1
        if place % TEND_EVERY == 0:
            await stack.tend()
    seconds = time.perf_counter() - began
    held = (await semantic.stats()).entries
    await stack.close()
    return Run(seconds, taken, by, places[0].stats.kept_out, held)


def run_of(requests: int, rule: SecondHit | None, seed: int) -> Run:
    """With traffic and tiers of its own."""
    texts = questions()
    sent = keys_of(asked(texts, requests, EXACT_SHARE, seed))
    return asyncio.run(run(keys_of(texts), sent, None if rule is None else Doorkeeper.alike(rule)))


def runs_of(requests: int, rule: SecondHit | None, processes: int) -> list[Run]:
    """At the same time."""
    with ProcessPoolExecutor(processes, get_context("fork")) as pool:
        return list(pool.map(partial(run_of, requests, rule), range(processes)))


def measure(quick: bool) -> Report:
    requests, second = 2_000 if quick else REQUESTS, SecondHit()
    runs = {}
    for name, rule, processes in (
        ("every answer", None, 1),
        ("at its second request", second, 1),
        ("at its second request", second, PROCESSES),
    ):
        say(f"lookups: memory takes in {name}, processes: {processes}")
        runs[name, processes] = runs_of(requests, rule, processes)
    waiting, together = stampede_table(quick)
    say("parts")
    tables = [_lookup_table(runs, requests), waiting, parts_table(quick), search_table(quick), threads_table(quick)]
    return Report(_facts(len(questions())), tables, _goals(runs["at its second request", PROCESSES], together.calls))


def rate(runs: Sequence[Run]) -> float:
    """Lookups of all processes in a second."""
    return sum(len(one.lookup_seconds) / one.seconds for one in runs)


def quantile_ms(runs: Sequence[Run], share: float) -> float:
    return 1e3 * float(np.quantile(np.concatenate([one.lookup_seconds for one in runs]), share))


def _lookup_table(runs: dict[tuple[str, int], list[Run]], requests: int) -> Table:
    header = (
        "memory takes in",
        "processes",
        "lookups/s",
        "p50, ms",
        "p99, ms",
        "hit in memory, %",
        "equal, below, %",
        "by meaning, %",
        "nothing, %",
        "kept out",
        "questions held",
    )
    rows: list[list[Cell]] = []
    for (name, processes), some in runs.items():
        one = some[0]
        shares = [f"{100.0 * one.by[way] / requests:.1f}" for way in ("memory", "semantic", "by meaning", "nothing")]
        times = (rate(some), quantile_ms(some, 0.5), quantile_ms(some, 0.99))
        rows.append([name, processes, *times, *shares, one.kept_out, one.held])
    note = (
        "Rates are of all processes together, with the storing of what nothing answered and the housekeeping; keys are "
        "made before. Shares and counts are of the first process."
    )
    return Table(f"{requests:,} lookups in each process", header, rows, note)


def _goals(runs: Sequence[Run], calls: int) -> list[Goal]:
    what = f"{EXACT_SHARE:.0%} exact, LRU-2 admission, semantic tier, {PROCESSES} cores"
    return [
        at_least(f"lookups, {what}", RATE, rate(runs), "lookups/s"),
        at_most(f"p99 of a lookup, {what}", P99_MS, quantile_ms(runs, 0.99), "ms"),
        Goal("a stampede on one key: one call of the backend", f"{calls:,}", calls == 1),
    ]


def _facts(distinct: int) -> list[str]:
    return [
        f"Text: the {distinct:,} different questions of fow-cache 0.1.0 (CC BY 4.0), all answered before. "
        f"{EXACT_SHARE:.0%} of the requests ask one of them to the letter, by Zipf's law; the rest ask it in words "
        f"never used before: one of {len(OPENERS)} greetings before and of {len(CLOSERS)} endings after it.",
        f"Memory has room for {MEMORY_ENTRIES} answers of {BODY_BYTES:,} bytes, the semantic tier below it "
        f"{SEMANTIC_BYTES / 2**20:g} MiB; threshold and guard as by default, WordLlama, one context.",
        f"A process does one lookup after the other; {PROCESSES} at once have traffic and tiers of their own each.",
    ]


if __name__ == "__main__":
    packages = ("setpoint", "fow-cache", "wordllama", "tokenizers", "faiss-cpu")
    main(Benchmark("stack", "The stack: lookups, a stampede, and what their parts take", packages, measure))
