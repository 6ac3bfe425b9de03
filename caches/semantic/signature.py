"""Signatures of 64 bits by random hyperplanes (Charikar, STOC 2002): a bit says on which side of a plane a vector lies.

Of two vectors at an angle t, each bit differs with a probability of t / pi, independently. So the number of bits that
differ says how similar the vectors are, and can be counted several hundred million times a second.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr

from caches.semantic.embedder import Vectors

BITS = 64
VERSION = 1  # of how planes are drawn; signatures of two versions are not comparable
Signatures = NDArray[np.uint64]


class Hyperplanes:
    """Drawn from a seed: the same in every process. name: which they are."""

    def __init__(self, dimensions: int, seed: int = 0) -> None:
        self.name = f"simhash-{BITS} version {VERSION}, seed {seed}, {dimensions} dimensions"
        drawn = np.random.Generator(np.random.PCG64(seed)).standard_normal((BITS, dimensions))
        self._planes: Vectors = drawn.astype(np.float32)

    def signature(self, vector: Vectors) -> np.uint64:
        """Of a vector of shape (dimensions,)."""
        sides: NDArray[np.bool_] = self._planes @ vector > 0.0
        return np.uint64(np.packbits(sides, bitorder="little").view("<u8")[0])

    def signatures(self, vectors: Vectors) -> Signatures:
        """Shape (n,), of vectors of shape (n, dimensions)."""
        sides = np.packbits(vectors @ self._planes.T > 0.0, axis=1, bitorder="little")
        return sides.view("<u8")[:, 0].astype(np.uint64)


def differing_bits(signatures: Signatures, signature: np.uint64) -> NDArray[np.uint8]:
    """In how many bits each differs, 0 to 64."""
    found: NDArray[Any] = np.bitwise_count(signatures ^ signature)
    return found


def share_within(similarity: float, radius: int) -> float:
    """How many of the vectors with this inner product lie within so many bits, of unit vectors and planes at random:
    sum over k <= radius of C(64, k) p^k (1 - p)^(64 - k), with p = arccos(similarity) / pi."""
    apart = math.acos(min(max(similarity, -1.0), 1.0)) / math.pi
    return float(bdtr(radius, BITS, apart))


def similarity_by(bits: int) -> float:
    """The inner product that so many differing bits speak for: cos(pi * bits / 64)."""
    return math.cos(math.pi * bits / BITS)
