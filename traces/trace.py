"""A trace: what arrived, as columns."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from caches.errors import InputError
from traces.key_sample import KeySample

FloatArray = NDArray[np.float64]
Int32Array = NDArray[np.int32]


class Operation(IntEnum):
    """What a request does. READ looks up and, on a miss, fills; WRITE stores; DELETE removes."""

    READ = 0
    WRITE = 1
    DELETE = 2


@dataclass(frozen=True)
class TraceInfo:
    """Where a trace comes from. `composed` is True where its parts come from different sources.

    `assumptions` are sentences about columns that were modelled rather than recorded; every report shows them.
    """

    name: str
    source: str
    licence: str | None = None
    composed: bool = False
    assumptions: tuple[str, ...] = ()
    start_unix_seconds: float | None = None
    block_size_tokens: int | None = None
    namespaces: tuple[str, ...] = ("default",)


@dataclass(frozen=True)
class Trace:
    """Requests in order of arrival; every column has one row per request (n rows).

    arrival_seconds: float64, from the trace's start, never decreasing. key: int32, dense: every number in
    [0, num_keys) occurs. size_bytes: int32, of the response. prompt_tokens, output_tokens: int32, or None
    where the source has none. namespace: int32 index into `info.namespaces`. ttl_seconds: float32, NaN where a
    request has none. operation: uint8 of Operation, None when all are READ. session: int32, numbered by first
    appearance, who is asking: requests of one number are turns of one conversation or one agent at work; None where
    the source does not say. block_offsets (int64, n + 1) and block_hashes (int64) hold each prompt's chain of block
    ids: request i's are block_hashes[block_offsets[i] : block_offsets[i + 1]], in prompt order. Where there are
    chains, `key` stands for the whole prompt. sample: what the trace stands for where it holds the requests of a share
    of the keys only; times then count from the whole trace's start.
    """

    info: TraceInfo
    arrival_seconds: FloatArray
    key: Int32Array
    size_bytes: Int32Array
    num_keys: int
    namespace: Int32Array | None = None
    prompt_tokens: Int32Array | None = None
    output_tokens: Int32Array | None = None
    ttl_seconds: NDArray[np.float32] | None = None
    operation: NDArray[np.uint8] | None = None
    session: Int32Array | None = None
    block_offsets: NDArray[np.int64] | None = None
    block_hashes: NDArray[np.int64] | None = None
    sha256: str = field(default="", compare=False)
    sample: KeySample | None = None

    def __post_init__(self) -> None:
        n = len(self.arrival_seconds)
        if n == 0:
            raise InputError(f"trace {self.info.name}: got no requests, expected at least one")
        for name in COLUMNS:
            column = getattr(self, name)
            if column is not None and len(column) != n:
                raise InputError(f"trace {self.info.name}, {name}: got {len(column)} rows, expected {n}")

    def __len__(self) -> int:
        return len(self.arrival_seconds)

    @property
    def span_seconds(self) -> float:
        """From the first arrival to the last."""
        return float(self.arrival_seconds[-1] - self.arrival_seconds[0])


COLUMNS = (
    "arrival_seconds",
    "key",
    "size_bytes",
    "namespace",
    "prompt_tokens",
    "output_tokens",
    "ttl_seconds",
    "operation",
    "session",
)
