"""Prefix caches: where blocks of keys and values live, what moving them takes, and whose come up ahead of need."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Literal

import numpy as np
from numba import njit
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from caches.errors import InputError
from caches.shadow.trie import Chains
from envs.units import described
from traces.trace import Trace

Array = NDArray[Any]


class Placement(IntEnum):
    """SHARED: blocks use the VRAM that running sequences leave free and yield first; the size is a cap.
    RESERVED: a share of VRAM set aside, so fewer sequences fit. HOST: memory of the host, rented, copied to the GPU on
    a hit."""

    SHARED = 0
    RESERVED = 1
    HOST = 2


class PrefixConfig(BaseModel):
    """Where a prefix cache keeps its blocks. Read only where `cache.kind` is `prefix`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    placement: Literal["shared", "reserved", "host"] = described(
        "host", "shared: VRAM that sequences leave free; reserved: a share of VRAM; host: memory of the host", "name"
    )
    host_gib_per_second: float = described(
        20.0, "copying from the host's memory to the GPU (PCIe 4.0 x16 gives 20 to 25 of its 31.5)", "GiB/s", gt=0
    )
    host_latency_seconds: float = described(0.002, "until such a copy begins", "s", ge=0)
    below_gib: float = described(
        0.0, "size of a tier below the tuned one: host memory below VRAM, an SSD below the host; 0: none", "GiB", ge=0
    )
    below_gib_per_second: float = described(3.0, "copying from the tier below to the GPU (one NVMe SSD)", "GiB/s", gt=0)
    below_latency_seconds: float = described(0.005, "until such a copy begins", "s", ge=0)
    below_usd_per_gib_hour: float = described(
        0.0001, "rent of the tier below (SSD of a rented server, assumption)", "USD/(GiB h)", ge=0
    )

    @property
    def place(self) -> Placement:
        return Placement[self.placement.upper()]


def require_blocks(trace: Trace) -> tuple[tuple[Array, Array], int]:
    """(offsets, hashes) and tokens per block. InputError where the trace has no block hashes."""
    if trace.block_offsets is None or trace.block_hashes is None or trace.info.block_size_tokens is None:
        raise InputError(
            f'trace {trace.info.name}: got no block hashes, expected them for a prefix cache (cache.kind = "prefix")'
        )
    return (trace.block_offsets, trace.block_hashes), trace.info.block_size_tokens


@njit(cache=True)
def sessions_of(chains: Chains) -> Array:
    """Which session each request belongs to, int32, numbered in order of appearance.

    A request goes on with the session whose latest prompt, less its last block (which may be partial), it begins with;
    of several the longest. A prompt of one block begins a session of its own.
    """
    n = chains.offsets.size - 1
    session = np.empty(n, np.int32)
    ended = np.full(chains.parent.size, -1, np.int32)  # session whose latest prompt's last whole block this is
    count = 0
    for t in range(n):
        first, last = chains.offsets[t], chains.offsets[t + 1]
        found, where = -1, -1
        for i in range(first, last):
            if ended[chains.node[i]] >= 0:
                found, where = ended[chains.node[i]], i
        if found < 0:
            found = count
            count += 1
        else:
            ended[chains.node[where]] = -1
        session[t] = found
        if last - first >= 2:
            ended[chains.node[last - 2]] = found
    return session


AGE_BINS = 40  # doublings of an age from a tenth of a second on


@njit(cache=True)
def returning(
    session: Array, time: Array, edges: Array, start: float, seconds: float, wanted: int
) -> tuple[Array, Array]:
    """Whose blocks to bring up at the beginning of each interval: of the sessions likeliest to return in it.

    How likely depends on how long a session has been silent: the share of those silent as long (within a factor of two)
    that came back within one interval, in all intervals before (Laplace's rule). Returns positions of each session's
    latest request, int32 (intervals, wanted), likeliest first (ties: latest first), and how many, int32 (intervals,).
    """
    intervals = edges.size - 1
    chosen, number = np.zeros((intervals, wanted), np.int32), np.zeros(intervals, np.int32)
    sessions = session.max() + 1 if session.size else 0
    latest = np.full(sessions, -1, np.int32)
    came, waited = np.ones(AGE_BINS), np.full(AGE_BINS, 2.0)
    order = np.empty(sessions, np.int32)  # sessions that have begun
    begun = 0
    for i in range(intervals):
        now = start + i * seconds
        score = np.empty(begun)
        bins = np.empty(begun, np.int32)
        for j in range(begun):
            bins[j] = age_bin(now - time[latest[order[j]]])
            score[j] = -came[bins[j]] / waited[bins[j]] - 1e-12 * latest[order[j]]
        best = np.argsort(score)[:wanted]
        number[i] = best.size
        for j in range(best.size):
            chosen[i, j] = latest[order[best[j]]]
        before = begun
        for t in range(edges[i], edges[i + 1]):
            if latest[session[t]] < 0:
                order[begun] = session[t]
                begun += 1
            latest[session[t]] = t
        for j in range(before):
            waited[bins[j]] += 1.0
            came[bins[j]] += latest[order[j]] >= edges[i]
    return chosen, number


@njit(cache=True)
def age_bin(seconds: float) -> int:
    """Doublings above a tenth of a second, 0 to AGE_BINS - 1."""
    return int(min(max(np.log2(max(seconds, 0.1) / 0.1), 0.0), AGE_BINS - 1.0))
