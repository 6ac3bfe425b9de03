"""A matrix that looks only at rows whose signatures differ in a few bits from the one asked for.

Counting bits over all signatures reads 8 bytes a row, where the product reads 4 for each dimension. Looking signatures
up in tables instead (four bands of 16 bits) finds all within three bits and no more, which is too near for questions
that mean the same: at a similarity of 0.9 some nine bits differ. `python benchmarks/keys.py` measures both.
"""

from __future__ import annotations

import numpy as np

from caches.errors import InputError
from caches.semantic.embedder import Vectors
from caches.semantic.matrix import Matrix
from caches.semantic.signature import BITS, Hyperplanes, Signatures, differing_bits

RADIUS = 16  # bits; `share_within` says what it loses: 0.8 % at a similarity of 0.9, 5 % at 0.85


class SignedMatrix(Matrix):
    """radius: bits that may differ. planes: to be shared between the groups of an index."""

    def __init__(self, dimensions: int, planes: Hyperplanes, radius: int = RADIUS) -> None:
        super().__init__(dimensions)
        if not 0 <= radius <= BITS:
            raise InputError(f"radius of signatures: got {radius}, expected 0 to {BITS} bits")
        self._planes, self._radius = planes, radius
        self._signatures: Signatures = np.zeros(len(self._rows), np.uint64)

    def add(self, number: int, vector: Vectors) -> None:
        super().add(number, vector)
        self._fit()
        self._signatures[len(self) - 1] = self._planes.signature(vector)

    def remove(self, number: int) -> None:
        row = self._row_of[number]
        super().remove(number)
        if row < len(self):
            self._signatures[row] = self._signatures[len(self)]
        self._fit()

    def search(self, vector: Vectors, count: int) -> list[tuple[int, float]]:
        """As the seam says, among those within the radius."""
        signature = self._planes.signature(vector)
        near = np.flatnonzero(differing_bits(self._signatures[: len(self)], signature) <= self._radius)
        similarity = self._rows[near] @ vector
        if len(near) > count:
            best = np.argpartition(-similarity, count - 1)[:count]
            near, similarity = near[best], similarity[best]
        found = [(self._numbers[row], float(s)) for row, s in zip(near.tolist(), similarity, strict=True)]
        return sorted(found, key=lambda pair: (-pair[1], pair[0]))

    def _fit(self) -> None:
        """As much room as the rows have."""
        if len(self._signatures) != len(self._rows):
            room = np.zeros(len(self._rows), np.uint64)
            held = min(len(room), len(self._signatures))
            room[:held] = self._signatures[:held]
            self._signatures = room
