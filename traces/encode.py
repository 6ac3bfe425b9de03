"""Values of any type to dense integers, numbered by first appearance."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from traces.trace import Int32Array


class Encoder:
    """Numbers the values of a stream of pyarrow arrays of one type.

    Arrays are dictionary-encoded as they come, and the dictionaries joined whenever the new ones have grown
    as large as the joined one (and have at least `join_at` values), so memory follows the distinct values and
    time stays linear.
    """

    def __init__(self, join_at: int = 1_000_000) -> None:
        self._join_at = join_at
        self._known: Any = None
        self._pending: list[Any] = []
        self._pending_values = 0
        self._done: list[Int32Array] = []

    def add(self, values: Any) -> None:
        """Appends a pyarrow array without nulls, of the same type as the ones before."""
        encoded = values.dictionary_encode()
        if self._known is None:
            self._known = encoded.dictionary.slice(0, 0)
        self._pending.append(encoded)
        self._pending_values += len(encoded.dictionary)
        if self._pending_values >= max(len(self._known), self._join_at):
            self._join()

    def finish(self) -> tuple[Int32Array, Any]:
        """(number of each value in order of arrival, the distinct values as a pyarrow array)."""
        self._join()
        return np.concatenate(self._done), self._known

    def _join(self) -> None:
        if not self._pending:
            return
        known = pa.DictionaryArray.from_arrays(pa.array([], pa.int32()), self._known)
        joined = pa.chunked_array([known, *self._pending]).unify_dictionaries()
        self._known = joined.chunk(0).dictionary
        self._done += [chunk.indices.to_numpy() for chunk in joined.chunks[1:]]
        self._pending, self._pending_values = [], 0


def renumber(values: NDArray[np.integer[Any]]) -> tuple[Int32Array, int]:
    """(dense number of each value by first appearance, how many distinct values there are)."""
    encoded = pa.array(values).dictionary_encode()
    return encoded.indices.to_numpy(), len(encoded.dictionary)
