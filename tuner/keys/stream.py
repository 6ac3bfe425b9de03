"""The seam of the key stream: which keys a live cache was asked for, for the ghost caches beside it.

tests/contracts/key_stream_contract.py is what every source has to pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from caches.errors import SetpointError
from envs.journal import Batch
from traces.access.chunks import LONGEST_TTL_SECONDS, SHORTEST_TTL_SECONDS

Array = NDArray[Any]

ID_BYTES = 8  # of a key's hash in the access log, the first ones: what a key is called here
LARGEST = 2**31 - 2**24  # bytes or tokens, with room for what an entry takes beside its answer


class KeysUnavailable(SetpointError):
    """The source cannot be reached. Nothing of it is lost by that: what is there comes with a later call."""


@dataclass(frozen=True, eq=False)
class Taken:
    """requests: of all keys, in order of arrival; size is that of the answer, and a count of tokens that the answer
    does not state is 0. notes: sentences on what was lost."""

    requests: Batch
    notes: tuple[str, ...] = ()


def batch_of(
    ids: Sequence[int] | Array,
    times: Sequence[float] | Array,
    sizes: Sequence[int] | Array,
    ttls: Sequence[float] | Array,
    tokens: tuple[Sequence[int] | Array, Sequence[int] | Array],
    treatment: Sequence[bool] | Array,
) -> Batch:
    """Of columns as a log has them; lifetimes are NaN where there is none, and counts what a trace can hold."""
    sizes, prompt, output = (
        np.clip(np.asarray(one, np.int64), 0, LARGEST).astype(np.int32) for one in (sizes, *tokens)
    )
    ttl = np.clip(np.asarray(ttls, np.float64), SHORTEST_TTL_SECONDS, LONGEST_TTL_SECONDS).astype(np.float32)
    arm = np.asarray(treatment, np.bool_)
    return Batch(np.asarray(ids, np.uint64), np.asarray(times, np.float64), sizes, ttl, prompt, output, arm)


class KeyStream(Protocol):
    """Requests that the cache could have answered, and whose answer is known (traces/access/). All calls come from one
    thread."""

    @property
    def delay_seconds(self) -> float:
        """How long after an answer a source may take to show it."""

    def take(self, until_seconds: float) -> Taken:
        """What arrived before then and was not handed out yet. A request that is seen late, since its answer came late,
        is handed out late.

        Raises KeysUnavailable, having handed out nothing.
        """


class Pending:
    """Requests that a source has read and not handed out."""

    def __init__(self) -> None:
        self._held: list[Batch] = []

    def add(self, batch: Batch) -> None:
        if len(batch):
            self._held.append(batch)

    def take(self, until_seconds: float, notes: tuple[str, ...] = ()) -> Taken:
        """Those that came at the same time stay in the order in which they were added."""
        both = joined(self._held)
        ready = both.time < until_seconds
        self._held = [both.of(~ready)]
        found = both.of(ready)
        return Taken(found.of(np.argsort(found.time, kind="stable")), notes)


def joined(batches: list[Batch]) -> Batch:
    """One after the other."""
    names = Batch.__dataclass_fields__
    return Batch(*(np.concatenate([getattr(one, name) for one in (NOTHING, *batches)]) for name in names))


NOTHING = Batch(
    np.zeros(0, np.uint64),
    np.zeros(0),
    np.zeros(0, np.int32),
    np.zeros(0, np.float32),
    np.zeros(0, np.int32),
    np.zeros(0, np.int32),
    np.zeros(0, np.bool_),
)
