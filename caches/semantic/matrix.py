"""Vectors in one growing matrix: exact, and the fastest there is for some thousands of rows."""

from __future__ import annotations

import numpy as np

from caches.semantic.embedder import Vectors

# A product over more rows at a time wakes the threads of the linear algebra library. On a machine whose cores are busy
# these wait for each other, many times as long as the product takes in pieces (`python benchmarks/stack.py`).
ROWS_AT_A_TIME = 1_024
SMALLEST = 4


class Matrix:
    """Rows are known by a number that the caller gives. A removed row is filled with the last one."""

    def __init__(self, dimensions: int) -> None:
        self._rows: Vectors = np.empty((SMALLEST, dimensions), np.float32)
        self._numbers: list[int] = []
        self._row_of: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def add(self, number: int, vector: Vectors) -> None:
        row = len(self._numbers)
        if row == len(self._rows):
            self._rows = np.concatenate([self._rows, np.empty_like(self._rows)])
        self._rows[row] = vector
        self._row_of[number] = row
        self._numbers.append(number)

    def remove(self, number: int) -> None:
        row, last = self._row_of.pop(number), self._numbers.pop()
        if last != number:
            self._rows[row] = self._rows[len(self._numbers)]
            self._numbers[row] = last
            self._row_of[last] = row
        if SMALLEST < 4 * len(self._numbers) < len(self._rows):
            self._rows = self._rows[: len(self._rows) // 2].copy()

    def search(self, vector: Vectors, count: int) -> list[tuple[int, float]]:
        """Number and similarity, most similar first; the one added first among equals."""
        held = len(self._numbers)
        similarity = np.empty(held, np.float32)
        for start in range(0, held, ROWS_AT_A_TIME):
            end = min(start + ROWS_AT_A_TIME, held)
            np.dot(self._rows[start:end], vector, out=similarity[start:end])
        best = range(held) if count >= held else np.argpartition(-similarity, count - 1)[:count].tolist()
        found = [(self._numbers[row], float(similarity[row])) for row in best]
        return sorted(found, key=lambda pair: (-pair[1], pair[0]))

    def vectors(self, numbers: list[int]) -> Vectors:
        return np.asarray(self._rows[[self._row_of[number] for number in numbers]])
