"""Requests as they come, without an end: columns for the kernels that grow, and what is known of each key.

Positions and key numbers go on from interval to interval, as in a trace. What no cache needs any more is taken out, and
what is left is numbered anew in its old order. That changes nothing for a cache (`envs/ghost_kernels.py` says why).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caches.shadow import kernel
from caches.target import Arm
from envs.serving import Backend, Load, gpu_seconds
from envs.traffic import Counting, Popularity

Array = NDArray[Any]

GROUPS = 64  # of keys, by the last bits of their hash: how far sums over them differ says how far a sample may be off
ROWS, KEYS = 1 << 14, 1 << 12  # to begin with
COLUMNS = {  # those named by an arm: the operation as its cache sees it
    "key": np.int32,
    "time": np.float64,
    "size": np.int32,
    "ttl": np.float32,
    "prompt": np.int32,
    "output": np.int32,
    "gpu": np.float32,
    "group": np.uint8,
    Arm.CONTROL: np.uint8,
    Arm.TREATMENT: np.uint8,
}
OF_KEYS = {
    "now": np.int32,
    "before": np.int32,
    "seen": np.bool_,
    "score": np.float32,
    "updated": np.int32,
    "latest": np.int32,
    "listed": np.int32,
    "asked": np.float64,
    "treatment": np.bool_,
}
UNKNOWN = {"latest": kernel.ABSENT, "listed": kernel.ABSENT}  # of a new key; the rest is 0


@dataclass(frozen=True)
class Batch:
    """Requests in order of time, all reads, shape (n,). id: uint64, hash of the key, alike in all its
    bits. time: float64, s. size: int32, bytes of the entry. ttl: float32, NaN for none. prompt, output: int32, tokens.
    treatment: bool, whether the request is the treatment arm's."""

    id: Array
    time: Array
    size: Array
    ttl: Array
    prompt: Array
    output: Array
    treatment: Array

    def __len__(self) -> int:
        return len(self.id)

    def of(self, rows: Array) -> Batch:
        """Some of them, by a mask or positions."""
        return Batch(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))


def places(ids: Array) -> Array:
    """Where hashes lie on [0, 1), float64. The keys below `rate` are a sample of that share, and those of a smaller
    rate are among those of a larger."""
    return np.asarray((ids >> np.uint64(11)).astype(np.float64) * 2.0**-53)


class Journal:
    """rows, keys: how many are held. start: where the interval begins that is open, earlier: the one before it. known:
    keys with numbers below it were held when it began. ids:
    uint64, by key, from 0 to `keys` - 1; what `column` and `of_keys` return is longer than that."""

    def __init__(self) -> None:
        self.rows, self.keys = 0, 0
        self.start, self.earlier, self.known = 0, 0, 0
        self.has_ttl = False
        self._columns = {name: np.zeros(ROWS, dtype) for name, dtype in COLUMNS.items()}
        self._of_keys: dict[str, Array] = {
            name: np.full(KEYS, UNKNOWN.get(name, 0), dtype) for name, dtype in OF_KEYS.items()
        }
        self._ids = np.zeros(KEYS, np.uint64)
        self._numbers: dict[int, int] = {}

    @property
    def ids(self) -> Array:
        return self._ids[: self.keys]

    @property
    def key_room(self) -> int:
        return len(self._ids)

    def column(self, name: str) -> Array:
        return self._columns[name]

    def of_keys(self, name: str) -> Array:
        return self._of_keys[name]

    def new_keys(self, ids: Array) -> int:
        """How many of these keys are not held yet."""
        return len(set(ids.tolist()).difference(self._numbers))

    def make_key_room(self, wanted: int) -> None:
        self._of_keys = {name: _longer(array, wanted, UNKNOWN.get(name, 0)) for name, array in self._of_keys.items()}
        self._ids = _longer(self._ids, wanted)

    def turn(self) -> None:
        """The interval that is open is over, and the next one begins."""
        self.earlier, self.start, self.known = self.start, self.rows, self.keys

    def asked_now(self) -> tuple[Array, Array]:
        """Key and group of each request of the interval that is open."""
        return self._asked(self.start, self.rows)

    def asked_before(self) -> tuple[Array, Array]:
        """Of each of the interval before it."""
        return self._asked(self.earlier, self.start)

    def _asked(self, start: int, stop: int) -> tuple[Array, Array]:
        return self._columns["key"][start:stop], self._columns["group"][start:stop]

    def add(self, batch: Batch, backend: Backend) -> None:
        """More requests, none earlier than those before. Keys are numbered as they appear."""
        start, stop = self.rows, self.rows + len(batch)
        key = self._number(batch.id)
        self._columns = {name: _longer(array, stop) for name, array in self._columns.items()}
        told = {
            "key": key,
            "time": batch.time,
            "size": batch.size,
            "ttl": batch.ttl,
            "prompt": batch.prompt,
            "output": batch.output,
            "gpu": gpu_seconds(backend, batch.prompt, batch.output),
            "group": batch.id % np.uint64(GROUPS),
            # a request of the other arm leaves a cache alone: it removes what the cache does not hold
            Arm.CONTROL: np.where(batch.treatment, kernel.DELETE, kernel.READ),
            Arm.TREATMENT: np.where(batch.treatment, kernel.READ, kernel.DELETE),
        }
        for name, values in told.items():
            self._columns[name][start:stop] = values
        self._of_keys["asked"][key] = batch.time
        self.has_ttl = self.has_ttl or not np.isnan(batch.ttl).all()
        self.rows = stop

    def requests(self, arm: Arm | None) -> kernel.Requests:
        """All that is held, for a cache of one arm, or of both together."""
        column = self._columns
        ttl = column["ttl"] if self.has_ttl else column["ttl"][:0]
        operations = column[Arm.CONTROL][:0] if arm is None else column[arm]
        return kernel.Requests(column["key"], column["time"], column["size"], ttl, operations)

    def load(self) -> Load:
        return Load(self._columns["time"], self._columns["prompt"], self._columns["output"])

    def counting(self) -> Counting:
        return Counting(*(self._of_keys[name] for name in Counting._fields))

    def popularity(self) -> Popularity:
        return Popularity(*(self._of_keys[name] for name in Popularity._fields))

    def keep(self, rows: Array, keys: Array) -> tuple[Array, Array]:
        """Takes all others out. rows, keys: bool, of those held; no row whose key goes may stay.

        Returns where each goes, int32: for rows (one more than were held) how many stay before it; for keys the new
        number, kernel.ABSENT for those that go.
        """
        row_to = np.concatenate(([0], np.cumsum(rows))).astype(np.int32)
        key_to = np.where(keys, np.cumsum(keys) - 1, kernel.ABSENT).astype(np.int32)
        self._columns["key"][: self.rows] = key_to[self._columns["key"][: self.rows]]
        latest = self._of_keys["latest"][: self.keys]
        there = (latest >= 0) & np.append(rows, False)[latest]
        latest[:] = np.where(there, row_to[latest], kernel.ABSENT)
        stay, known = int(row_to[-1]), int(keys.sum())
        for array in self._columns.values():
            array[:stay] = array[: self.rows][rows]
        for name, array in (*self._of_keys.items(), ("id", self._ids)):
            array[:known] = array[: self.keys][keys]
            array[known : self.keys] = UNKNOWN.get(name, 0)
        self.start, self.earlier = int(row_to[self.start]), int(row_to[self.earlier])
        self.rows, self.keys, self.known = stay, known, int(keys[: self.known].sum())
        self._numbers = dict(zip(self.ids.tolist(), range(known), strict=True))
        return row_to, key_to

    def _number(self, ids: Array) -> Array:
        """int32, by request; new keys get the numbers that follow, in order of appearance."""
        distinct, first, which = np.unique(ids, return_index=True, return_inverse=True)
        numbers = np.array([self._numbers.get(one, kernel.ABSENT) for one in distinct.tolist()], np.int32)
        fresh = np.flatnonzero(numbers == kernel.ABSENT)
        fresh = fresh[np.argsort(first[fresh])]
        numbers[fresh] = np.arange(self.keys, self.keys + len(fresh))
        stop = self.keys + len(fresh)
        self.make_key_room(stop)
        self._ids[self.keys : stop] = distinct[fresh]
        self._numbers.update(zip(distinct[fresh].tolist(), range(self.keys, stop), strict=True))
        self.keys = stop
        return np.asarray(numbers[which], np.int32)


def _longer(array: Array, wanted: int, fill: float = 0) -> Array:
    """With room for as many, half as much again where that takes more."""
    if wanted <= len(array):
        return array
    grown = np.full(max(wanted, len(array) + len(array) // 2), fill, array.dtype)
    grown[: len(array)] = array
    return grown
