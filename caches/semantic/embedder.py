"""The seam of an embedder: from texts to vectors whose inner product says how alike the texts are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]


class Embedder(Protocol):
    """A pure function of the text: equal texts have equal vectors, alone or among others, today and tomorrow."""

    @property
    def name(self) -> str:
        """Which model it is. Vectors of different names are not comparable and are never compared."""

    @property
    def dimensions(self) -> int:
        """Length of a vector."""

    @property
    def slow(self) -> bool:
        """Whether a call takes so long that it belongs in a thread of its own: above about a millisecond."""

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Shape (texts, dimensions), rows of length 1; all zeros for a text without any token, which is then like
        nothing. Raises TierError where it reaches over the network and that fails. May be called from any thread."""

    def close(self) -> None:
        """Lets go of connections."""


def unit_rows(rows: Vectors) -> Vectors:
    """Each row divided by its length; a row of zeros stays one."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.where(lengths > 0.0, lengths, 1.0), np.float32)
