"""What the parts of a lookup take, one by one: keys, embeddings, hits, and searches among many vectors."""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import cycle, islice

import numpy as np
import orjson

from benchmarks.harness import ONE_THREAD, ROOT, Cell, Table, seconds_of
from benchmarks.matrix_threads import ROWS as THREADED_ROWS
from benchmarks.stack_traffic import PARTITION, body_of, key_of, questions
from caches.keys.fields import Endpoint
from caches.keys.fingerprint import request_key
from caches.knobs import Knob, KnobSpace
from caches.place import Place
from caches.semantic.cells import Cells
from caches.semantic.embedder import Vectors, unit_rows
from caches.semantic.matrix import Matrix
from caches.semantic.wordllama_embedder import WordLlamaEmbedder
from caches.stack import Stack
from caches.tiers.memory import MemoryTier
from caches.tiers.tier import Answer

ROUNDS = 5
ROWS = (1_000, 4_096, 8_192, 65_536)
NEIGHBOURS = 8
NOISE = 0.5  # length of what is added to the vector of a question, of length 1, to make another one near it


def space(capacity_bytes: int) -> KnobSpace:
    size = float(capacity_bytes)
    return KnobSpace(
        Knob("cache_size", "bytes", 1.0, size, size, 1.0, "log"),
        Knob("ttl_seconds", "seconds", 1.0, 86_400.0, 86_400.0, 1.0, "log"),
        Knob("warmup_ratio", "share", 0.0, 1.0, 0.0, 1.0, "linear"),
    )


def parts_table(quick: bool) -> Table:
    texts = list(islice(cycle(questions()), 200 if quick else 5_000))
    bodies, embedder = [body_of(text) for text in texts], WordLlamaEmbedder()
    rows: list[list[Cell]] = [
        ["a key, from a parsed body", _micros(lambda: _keys(bodies), len(texts))],
        ["an embedding of one question", _micros(lambda: [embedder.embed([text]) for text in texts], len(texts))],
        ["a hit in memory, through the stack", asyncio.run(_hit_micros(texts))],
    ]
    return Table("One by one", ("what", "µs"), rows, f"Medians of the means of {ROUNDS} rounds.")


def _keys(bodies: list[dict[str, object]]) -> None:
    for body in bodies:
        request_key(Endpoint.CHAT, body, PARTITION)


async def _hit_micros(texts: list[str]) -> float:
    stack, keys = Stack([Place(MemoryTier(space(1 << 30)))]), [key_of(text) for text in texts]
    for key in keys:
        await stack.store(key, Answer(b"answer", time.time()))
    taken = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        for key in keys:
            await stack.lookup(key)
        taken.append(time.perf_counter() - began)
    return 1e6 * statistics.median(taken) / len(keys)


def _micros(work: Callable[[], object], times: int) -> float:
    return 1e6 * statistics.median(seconds_of(work) for _ in range(ROUNDS)) / times


def search_table(quick: bool) -> Table:
    known = WordLlamaEmbedder().embed(questions())
    counts = ROWS[:1] if quick else ROWS
    rows = [_search_row(vectors_near(known, count), 20 if quick else 500) for count in counts]
    header = ("rows", "matrix, ms", "cells, ms", f"of the nearest {NEIGHBOURS}, cells find", "to build the cells, s")
    note = f"Vectors of {known.shape[1]} numbers: those of the questions with noise of length {NOISE:g}."
    return Table(f"A search for {NEIGHBOURS} neighbours, p50", header, rows, note)


def vectors_near(known: Vectors, count: int, seed: int = 0) -> Vectors:
    """As many as wanted, shape (count, dimensions), each near one of those known."""
    random = np.random.default_rng(seed)
    noise = random.standard_normal((count, known.shape[1]), np.float32)
    return unit_rows(known[np.arange(count) % len(known)] + NOISE * unit_rows(noise))


def _search_row(vectors: Vectors, searches: int) -> list[Cell]:
    matrix, built = Matrix(vectors.shape[1]), list[Cells]()
    for number, vector in enumerate(vectors):
        matrix.add(number, vector)
    build_seconds = seconds_of(lambda: built.append(Cells(list(range(len(vectors))), vectors)))
    (cells,) = built
    sought = vectors_near(vectors, searches, seed=1)
    exact, exact_ms = _searched(matrix, sought)
    near, near_ms = _searched(cells, sought)
    found = sum(len(one & other) for one, other in zip(exact, near, strict=True)) / sum(map(len, exact))
    return [len(vectors), exact_ms, near_ms, f"{found:.1%}", build_seconds]


def _searched(rows: Matrix | Cells, sought: Vectors) -> tuple[list[set[int]], float]:
    """What each search found, and the median of what they took, in milliseconds."""
    found, taken = [], []
    for vector in sought:
        began = time.perf_counter()
        neighbours = rows.search(vector, NEIGHBOURS)
        taken.append(time.perf_counter() - began)
        found.append({number for number, _ in neighbours})
    return found, 1e3 * statistics.median(taken)


def threads_table(quick: bool) -> Table:
    """With as many threads as there are cores, each of which is busy with something else."""
    cores = str(os.cpu_count() or 1)
    command = [sys.executable, str(ROOT / "benchmarks" / "matrix_threads.py"), "20" if quick else "500"]
    environment = os.environ | dict.fromkeys(ONE_THREAD, cores)
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=True)
    whole_ms, pieces_ms = orjson.loads(done.stdout)
    rows: list[list[Cell]] = [["in one call", whole_ms], ["in pieces, as the matrix does", pieces_ms]]
    note = f"{cores} threads, beside {cores} processes that keep every core busy; p50."
    return Table(f"A product over {THREADED_ROWS:,} rows on a busy machine", ("how", "ms"), rows, note)
