"""Vectors in the buckets of a fitted map, of which only those nearest to a question are searched."""

from __future__ import annotations

import numpy as np

from caches.errors import InputError
from caches.semantic.bucket_map import BucketMap
from caches.semantic.embedder import Vectors
from caches.semantic.matrix import Matrix

PROBED = 4  # buckets


class Buckets:
    """Rows as `caches/semantic/rows.py` says. probed: buckets that a search looks into."""

    def __init__(self, buckets: BucketMap, probed: int = PROBED) -> None:
        if probed < 1:
            raise InputError(f"probed buckets: got {probed}, expected at least 1")
        self._map, self._probed = buckets, probed
        self._rows: dict[int, Matrix] = {}
        self._bucket_of: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._bucket_of)

    def add(self, number: int, vector: Vectors) -> None:
        bucket = self._map.nearest(vector, 1)[0]
        if bucket not in self._rows:
            self._rows[bucket] = Matrix(self._map.dimensions)
        self._rows[bucket].add(number, vector)
        self._bucket_of[number] = bucket

    def remove(self, number: int) -> None:
        bucket = self._bucket_of.pop(number)
        self._rows[bucket].remove(number)
        if not len(self._rows[bucket]):
            del self._rows[bucket]

    def search(self, vector: Vectors, count: int) -> list[tuple[int, float]]:
        """As the seam says, among those in the buckets looked into."""
        near = (self._rows.get(bucket) for bucket in self._map.nearest(vector, self._probed))
        found = [one for rows in near if rows is not None for one in rows.search(vector, count)]
        return sorted(found, key=lambda pair: (-pair[1], pair[0]))[:count]

    def vectors(self, numbers: list[int]) -> Vectors:
        if not numbers:
            return np.empty((0, self._map.dimensions), np.float32)
        return np.concatenate([self._rows[self._bucket_of[number]].vectors([number]) for number in numbers])
