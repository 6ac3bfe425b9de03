"""Vectors in the cells of an inverted file (faiss): approximate, for many thousands of rows. Nobody else knows faiss.

Only the cells nearest to a question are searched, so a near neighbour in another cell can be missed: a lost hit, never
a wrong one. Of faiss's indexes this one takes rows out as well as in; its graph of neighbours (HNSW) cannot.
"""

from __future__ import annotations

import math

import faiss
import numpy as np

from caches.semantic.embedder import Vectors

PROBED = 8  # cells, or this share of them where that is more:
PROBED_SHARE = 1 / 16
TRAINED_PER_CELL = 64  # rows that place a cell; more cost time and bring nothing measurable
PASSES = 8


class Cells:
    """Rows are known by a number that the caller gives. `trained_on`: how many rows placed the cells."""

    def __init__(self, numbers: list[int], vectors: Vectors) -> None:
        """Too long for a request to wait: `python benchmarks/stack.py`."""
        faiss.omp_set_num_threads(1)  # threads would wait for each other, as in matrix.py
        rows, dimensions = vectors.shape
        cells = max(int(math.sqrt(rows)), 1)
        self.trained_on = rows
        self._centres = faiss.IndexFlatIP(dimensions)  # kept: the index does not own it
        self._index = faiss.IndexIVFFlat(self._centres, dimensions, cells, faiss.METRIC_INNER_PRODUCT)
        self._index.cp.niter, self._index.cp.max_points_per_centroid = PASSES, TRAINED_PER_CELL
        self._index.cp.min_points_per_centroid = 1  # fewer are fine, and not worth a warning
        self._index.train(vectors)
        # finds a row to remove without a search
        self._index.set_direct_map_type(faiss.DirectMap.Hashtable)  # type: ignore[attr-defined]
        self._index.add_with_ids(vectors, np.array(numbers, np.int64))
        self._index.nprobe = max(PROBED, int(cells * PROBED_SHARE))

    def __len__(self) -> int:
        return int(self._index.ntotal)

    def add(self, number: int, vector: Vectors) -> None:
        faiss.omp_set_num_threads(1)
        self._index.add_with_ids(np.ascontiguousarray(vector[np.newaxis]), np.array([number], np.int64))

    def remove(self, number: int) -> None:
        self._index.remove_ids(np.array([number], np.int64))  # type: ignore[arg-type]

    def search(self, vector: Vectors, count: int) -> list[tuple[int, float]]:
        """Number and similarity, most similar first; the one added first among equals. May miss some."""
        faiss.omp_set_num_threads(1)
        similarity, numbers = self._index.search(np.ascontiguousarray(vector[np.newaxis]), count)
        found = [(int(n), float(s)) for n, s in zip(numbers[0], similarity[0], strict=True) if n >= 0]
        return sorted(found, key=lambda pair: (-pair[1], pair[0]))

    def vectors(self, numbers: list[int]) -> Vectors:
        if not numbers:
            return np.empty((0, self._index.d), np.float32)
        return np.asarray(self._index.reconstruct_batch(np.array(numbers, np.int64)), np.float32)
