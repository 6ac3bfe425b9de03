"""Structures that propose neighbours: what they find of the nearest, how soon, and what an entry takes in them."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import faiss
import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import Cell, Table, say
from benchmarks.key_matchers import Bank
from benchmarks.stack_parts import vectors_near
from caches.semantic.bucket_map import BucketMap
from caches.semantic.buckets import Buckets
from caches.semantic.cells import Cells
from caches.semantic.embedder import Vectors
from caches.semantic.matrix import Matrix
from caches.semantic.rows import Rows
from caches.semantic.signature import Hyperplanes, differing_bits
from caches.semantic.signed_matrix import SignedMatrix
from caches.semantic.verification import clopper_pearson

RADII = (12, 16, 20)
PROBED = (1, 4, 16)
LEAST = 0.9  # similarity of a neighbour that would be served, by the tier's default
BANDS, BAND_BITS = 4, 16
NUMBER_BYTES = 8
ROUNDS = 3


@dataclass(frozen=True)
class Built:
    """search: number and similarity, most similar first. beside_bytes: that an entry takes beside its vector."""

    search: Callable[[Vectors], list[tuple[int, float]]]
    beside_bytes: float


class Bands:
    """Signatures in four tables, one for each 16 bits of them: what agrees in one of them is looked at (Norouzi,
    Punjani and Fleet, CVPR 2012, for a radius of 3)."""

    def __init__(self, vectors: Vectors, planes: Hyperplanes) -> None:
        self._vectors, self._planes = vectors, planes
        self._signatures = planes.signatures(vectors)
        self._tables: list[dict[int, list[int]]] = [defaultdict(list) for _ in range(BANDS)]
        for place, signature in enumerate(self._signatures.tolist()):
            for table, band in zip(self._tables, _bands(signature), strict=True):
                table[band].append(place)

    def search(self, vector: Vectors) -> list[tuple[int, float]]:
        signature = self._planes.signature(vector)
        near = sorted(
            {
                one
                for table, band in zip(self._tables, _bands(int(signature)), strict=True)
                for one in table.get(band, ())
            }
        )
        rows = np.array(near, np.int64)
        rows = rows[differing_bits(self._signatures[rows], signature) <= BANDS - 1]
        similarity = self._vectors[rows] @ vector
        return sorted(zip(rows.tolist(), similarity.tolist(), strict=True), key=lambda pair: -pair[1])[:1]


def _bands(signature: int) -> list[int]:
    return [signature >> (BAND_BITS * band) & (2**BAND_BITS - 1) for band in range(BANDS)]


def structures(vectors: Vectors, buckets: BucketMap) -> Mapping[str, Callable[[], Built]]:
    planes = Hyperplanes(vectors.shape[1])
    return {
        "all vectors (matrix)": lambda: _rows(Matrix(vectors.shape[1]), vectors, 0.0),
        "cells (inverted file)": lambda: _cells(vectors),
        "graph of neighbours (HNSW)": lambda: _graph(vectors),
        f"signatures in {BANDS} bands, within {BANDS - 1} bits": lambda: Built(
            Bands(vectors, planes).search, 8.0 + BANDS * NUMBER_BYTES
        ),
        **{f"signatures within {radius} bits": partial(_signed, vectors, planes, radius) for radius in RADII},
        **{f"{one} of {len(buckets):,} buckets": partial(_bucketed, vectors, buckets, one) for one in PROBED},
    }


def _rows(rows: Rows, vectors: Vectors, beside_bytes: float) -> Built:
    for number, vector in enumerate(vectors):
        rows.add(number, vector)
    return Built(lambda vector: rows.search(vector, 1), beside_bytes)


def _signed(vectors: Vectors, planes: Hyperplanes, radius: int) -> Built:
    return _rows(SignedMatrix(vectors.shape[1], planes, radius), vectors, 8.0)


def _bucketed(vectors: Vectors, buckets: BucketMap, probed: int) -> Built:
    shared = (buckets.axes.nbytes + buckets.centres.nbytes) / len(vectors)
    return _rows(Buckets(buckets, probed), vectors, NUMBER_BYTES + shared)


def _cells(vectors: Vectors) -> Built:
    built = Cells(list(range(len(vectors))), vectors)
    beside = len(faiss.serialize_index(built._index)) / len(vectors) - vectors.itemsize * vectors.shape[1]
    return Built(lambda vector: built.search(vector, 1), beside)


def _graph(vectors: Vectors) -> Built:
    faiss.omp_set_num_threads(1)
    index = faiss.IndexHNSWFlat(vectors.shape[1], 16, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction, index.hnsw.efSearch = 100, 64
    index.add(vectors)
    beside = len(faiss.serialize_index(index)) / len(vectors) - vectors.itemsize * vectors.shape[1]

    def search(vector: Vectors) -> list[tuple[int, float]]:
        similarity, numbers = index.search(vector[np.newaxis], 1)
        return [(int(n), float(s)) for n, s in zip(numbers[0], similarity[0], strict=True) if n >= 0]

    return Built(search, beside)


@dataclass(frozen=True)
class Reached:
    """found, sought: of the questions with a neighbour at LEAST or above, those for which one at LEAST or above was
    found. micros: medians of the rounds."""

    found: int
    sought: int
    micros: list[float]
    beside_bytes: float

    @property
    def recall(self) -> float:
        return self.found / self.sought


def measured(stored: Vectors, asked: Vectors, buckets: BucketMap) -> dict[str, Reached]:
    best: NDArray[np.float32] = np.array([(stored @ vector).max() for vector in asked])
    served, results = best >= LEAST, {}
    for name, build in structures(stored, buckets).items():
        say(f"{name}, {len(stored):,} rows")
        built, micros = build(), []
        for _ in range(ROUNDS):
            taken, found = [], 0
            for vector, wanted in zip(asked, served, strict=True):
                began = time.perf_counter()
                near = built.search(vector)
                taken.append(time.perf_counter() - began)
                found += bool(wanted and near and near[0][1] >= LEAST)
            micros.append(1e6 * statistics.median(taken))
        results[name] = Reached(found, int(served.sum()), micros, built.beside_bytes)
    return results


def candidate_table(what: str, stored: int, results: Mapping[str, Reached]) -> Table:
    rows: list[list[Cell]] = []
    for name, one in results.items():
        low, high = clopper_pearson(one.found, one.sought)
        recall = f"{100.0 * one.recall:.1f} [{100.0 * low:.1f}, {100.0 * high:.1f}]"
        time_ = f"{statistics.median(one.micros):.1f} [{min(one.micros):.1f}, {max(one.micros):.1f}]"
        rows.append([name, recall, time_, f"{one.beside_bytes:.0f}"])
    sought = next(iter(results.values())).sought
    header = (
        "structure",
        "neighbours found, % [95 %]",
        "µs a lookup, p50 [lowest, highest round]",
        "bytes beside the vector",
    )
    note = f"Of the {sought:,} questions with a neighbour of similarity {LEAST:g} or above."
    return Table(f"Candidates: {what}, {stored:,} stored", header, rows, note)


def larger(found: Bank, count: int) -> tuple[Vectors, Vectors]:
    """As many rows as wanted near those of the bank, and 500 questions nearer to some of them than LEAST."""
    stored = vectors_near(found.stored.vectors, count)
    rng = np.random.default_rng(2)
    chosen = stored[rng.choice(count, 500, replace=False)]
    noise = rng.standard_normal(chosen.shape).astype(np.float32)
    noise /= np.linalg.norm(noise, axis=1, keepdims=True)
    asked = chosen + 0.4 * noise
    return stored, asked / np.linalg.norm(asked, axis=1, keepdims=True)
