"""The seam of a structure that holds the vectors of one group and finds the nearest of them.

`matrix.py` is exact, `cells.py`, `signed_matrix.py` and `buckets.py` look at a part of the rows only: they can miss a
neighbour, never invent one, since every similarity they tell is computed from the vectors themselves. So whatever
proposes, threshold and guard decide on the same figures.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from caches.semantic.embedder import Vectors


class Rows(Protocol):
    """Rows are known by a number that the caller gives."""

    def __len__(self) -> int:
        """How many are held."""

    def add(self, number: int, vector: Vectors) -> None:
        """A number that is not held. vector: shape (dimensions,), length 1."""

    def remove(self, number: int) -> None:
        """One that is held."""

    def search(self, vector: Vectors, count: int) -> list[tuple[int, float]]:
        """At most `count`: number and inner product, most similar first, the one added first among equals."""

    def vectors(self, numbers: list[int]) -> Vectors:
        """Shape (numbers, dimensions), of those that are held."""


MakeRows = Callable[[int], Rows]  # of vectors of this length
