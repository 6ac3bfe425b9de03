"""A map from vectors to buckets of questions about one thing, fitted on an operator's own traffic, and its file.

With mean m, principal axes A and centres c of the clusters along these axes, a vector v is in the bucket

    argmin over k of |A (v - m) - c_k|

It belongs to one embedder, as vectors do.
"""

from __future__ import annotations

import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from caches.errors import InputError, Mismatch
from caches.files import written_whole
from caches.semantic.embedder import Vectors

FORMAT = "setpoint buckets 1"


@dataclass(frozen=True, eq=False)
class BucketMap:
    """embedder: name of whose vectors it is for. mean: shape (dimensions,). axes: (axes, dimensions), orthonormal rows.
    centres: (buckets, axes). fitted_on: questions. explained: share of their variance that the axes keep."""

    embedder: str
    mean: Vectors
    axes: Vectors
    centres: Vectors
    fitted_on: int
    explained: float
    _shift: Vectors = field(init=False, repr=False)
    _halves: Vectors = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_halves", 0.5 * np.einsum("ka,ka->k", self.centres, self.centres))
        object.__setattr__(self, "_shift", self.axes @ self.mean)

    def __len__(self) -> int:
        return len(self.centres)

    @property
    def dimensions(self) -> int:
        return int(self.axes.shape[1])

    def buckets_of(self, vectors: Vectors) -> NDArray[np.int64]:
        """Shape (n,), of vectors of shape (n, dimensions)."""
        return np.asarray(self._scores(vectors).argmax(axis=1), np.int64)

    def nearest(self, vector: Vectors, count: int) -> list[int]:
        """The buckets whose centres are nearest to it, the nearest first."""
        scores = self._scores(vector[np.newaxis])[0]
        if count == 1:
            return [int(scores.argmax())]
        best = np.argpartition(-scores, min(count, len(scores)) - 1)[:count]
        return [int(one) for one in best[np.argsort(-scores[best], kind="stable")]]

    def _scores(self, vectors: Vectors) -> NDArray[Any]:
        """The higher, the nearer: -|z - c|^2 / 2 without the part that is the same for all centres."""
        along = vectors @ self.axes.T - self._shift
        return np.asarray(along @ self.centres.T - self._halves)


def save_bucket_map(found: BucketMap, path: Path) -> None:
    """Whole or not at all. Raises SetpointError where it cannot be written."""
    about = {"format": FORMAT, "embedder": found.embedder, "fitted_on": found.fitted_on, "explained": found.explained}
    with written_whole(path) as partial, partial.open("wb") as file:
        np.savez(
            file,
            head=np.frombuffer(orjson.dumps(about), np.uint8),
            mean=found.mean,
            axes=found.axes,
            centres=found.centres,
        )


def load_bucket_map(path: Path, embedder_name: str, dimensions: int) -> BucketMap:
    """Raises Mismatch where it is for another embedder or of another version, InputError where it is no such file."""
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            about = orjson.loads(file["head"].tobytes())
            mean, axes, centres = (np.asarray(file[name], np.float32) for name in ("mean", "axes", "centres"))
        got = (about["format"], about["embedder"], axes.shape[1])
        fitted_on, explained = int(about["fitted_on"]), float(about["explained"])
    except (OSError, EOFError, KeyError, TypeError, ValueError, IndexError, zipfile.BadZipFile) as error:
        raise InputError(f"{path}: cannot be read as a map of buckets: {error}") from error
    expected = (FORMAT, embedder_name, dimensions)
    if got != expected:
        raise Mismatch(f"{path}: got buckets of {got}, expected {expected}; `setpoint keys fit` makes them")
    if mean.shape != (dimensions,) or centres.ndim != 2 or centres.shape[1] != len(axes) or len(centres) == 0:
        raise InputError(f"{path}: its parts do not belong together")
    return BucketMap(embedder_name, mean, axes, centres, fitted_on, explained)
