"""Prompt blocks: larger ones made of several, and what an endless cache could reuse of them.

A chain hash stands for a block together with all before it, as in an engine that hashes blocks that way: h of a
prompt's first block is mix(mix(id)), of each later one mix(h of the block before ^ mix(id)), mix being the finaliser of
SplitMix64. Of n different chains some two have one hash with a probability of about n^2 / 2^65.
"""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from caches.errors import InputError
from traces.per_key import Int64Array, mix
from traces.store import trace_sha256
from traces.trace import FloatArray, Int32Array, Trace

_mix: Any = njit(cache=True)(mix)


def prompt_key(chain: Int64Array, prompt_tokens: int) -> bytes:
    """16 bytes for a prompt. The length tells apart prompts whose last, partial block has no id."""
    return hashlib.blake2b(chain.tobytes() + np.int64(prompt_tokens).tobytes(), digest_size=16).digest()


def coarsen(trace: Trace, factor: int) -> Trace:
    """The same trace with blocks of `factor` times as many tokens, see `coarse_chains`.

    Raises InputError for a factor below 1 and for a trace without blocks.
    """
    if factor < 1:
        raise InputError(f"coarsen: got {factor}, expected at least 1")
    size = trace.info.block_size_tokens
    if trace.block_offsets is None or trace.block_hashes is None or size is None:
        raise InputError(f"{trace.info.name}: has no prompt blocks, so they cannot be coarsened")
    if factor == 1:
        return trace
    offsets, hashes = coarse_chains(trace.block_offsets, trace.block_hashes, factor)
    info = dataclasses.replace(
        trace.info,
        block_size_tokens=size * factor,
        assumptions=tuple(sorted({*trace.info.assumptions, coarsened(size, factor)})),
    )
    made = dataclasses.replace(trace, info=info, block_offsets=offsets, block_hashes=hashes)
    return dataclasses.replace(made, sha256=trace_sha256(made))


def coarse_chains(offsets: Int64Array, hashes: Int64Array, factor: int) -> tuple[Int64Array, Int64Array]:
    """Offsets and ids of chains in which one block stands for `factor` consecutive ones.

    offsets: shape (n + 1,), into `hashes`. A new id is the chain hash of the group's last block, without its lowest
    bit. Blocks beyond the last whole group are dropped, as an engine with blocks of that size keeps whole ones only. So
    a prompt with a leading run of k blocks in common with another has floor(k / factor) in common afterwards: what an
    endless cache hits is rounded down by at most factor - 1 blocks per request, and never up.
    """
    counts = np.diff(offsets) // factor
    coarse = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    return coarse, _group_hashes(_plain(offsets), _plain(hashes), coarse, factor)


def coarsened(block_size_tokens: int, factor: int) -> str:
    """The sentence for the trace's assumptions."""
    return (
        f"Prompt blocks of {block_size_tokens} tokens are joined by {factor}, into {block_size_tokens * factor:,}; "
        "what is left of a prompt beyond whole blocks is never reused."
    )


class BlockReuse(NamedTuple):
    """What an endless cache that starts empty finds again.

    leading_run: blocks of each request's prompt, from its first on, that an earlier request had too; int32 (n,).
    different: how many different chains of blocks there are. gap_seconds (m,) and blocks (m,): so many blocks were used
    again that long after their last use; a block used again counts each time.
    """

    leading_run: Int32Array
    different: int
    gap_seconds: FloatArray
    blocks: Int64Array


def block_reuse(trace: Trace) -> BlockReuse | None:
    """None for a trace without blocks."""
    if trace.block_offsets is None or trace.block_hashes is None:
        return None
    return BlockReuse(*_reuse(_plain(trace.block_offsets), _plain(trace.block_hashes), trace.arrival_seconds))


def token_hit_ratio(trace: Trace, reuse: BlockReuse) -> float | None:
    """Tokens in leading runs / prompt tokens; without recorded tokens every block counts as full. None for no tokens.

    A run that reaches the end of a prompt with a partial last block counts the tokens that it has.
    """
    size = trace.info.block_size_tokens
    if trace.block_offsets is None or size is None:
        return None
    if trace.prompt_tokens is None:
        prompt = np.diff(trace.block_offsets) * size
    else:
        prompt = trace.prompt_tokens.astype(np.int64)
    hits = np.minimum(reuse.leading_run.astype(np.int64) * size, prompt)
    total = int(prompt.sum())
    return int(hits.sum()) / total if total else None


def _plain(column: Int64Array) -> Int64Array:
    """A memory-mapped, read-only column is another type to Numba: each would compile anew."""
    return np.require(column, requirements=["C", "W"])


@njit(cache=True)
def _group_hashes(offsets: Int64Array, hashes: Int64Array, coarse: Int64Array, factor: int) -> Int64Array:
    groups = np.empty(coarse[-1], np.int64)
    for t in range(offsets.size - 1):
        chain, group = np.uint64(0), coarse[t]
        for i in range((coarse[t + 1] - coarse[t]) * factor):
            chain = _mix(chain ^ _mix(np.uint64(hashes[offsets[t] + i])))
            if (i + 1) % factor == 0:
                groups[group] = np.int64(chain >> np.uint64(1))
                group += 1
    return groups


@njit(cache=True)
def _reuse(
    offsets: Int64Array, hashes: Int64Array, arrival: FloatArray
) -> tuple[Int32Array, int, FloatArray, Int64Array]:
    chains, last, different = np.zeros(1024, np.uint64), np.empty(1024), 0
    runs = np.zeros(offsets.size - 1, np.int32)
    gaps, blocks, found = np.empty(1024), np.empty(1024, np.int64), 0
    for t in range(offsets.size - 1):
        chain, first = np.uint64(0), found
        for i in range(offsets[t], offsets[t + 1]):
            chain = _mix(chain ^ _mix(np.uint64(hashes[i])))
            slot = _slot(chains, chain)
            if chains[slot] == 0:
                chains[slot], last[slot] = chain, arrival[t]
                different += 1
                if 2 * different > chains.size:
                    chains, last = _rehashed(chains, last)
                continue
            gap, last[slot] = arrival[t] - last[slot], arrival[t]
            runs[t] += 1
            if found > first and gaps[found - 1] == gap:
                blocks[found - 1] += 1
                continue
            if found == gaps.size:
                gaps, blocks = _doubled(gaps), _doubled(blocks)
            gaps[found], blocks[found] = gap, 1
            found += 1
    return runs, different, gaps[:found].copy(), blocks[:found].copy()


@njit(cache=True)
def _slot(chains: NDArray[np.uint64], chain: np.uint64) -> np.uint64:
    """Where a chain stands, or the empty place (0) for it: its own bits say where to begin, as they are mixed well."""
    mask = np.uint64(chains.size - 1)
    slot = chain & mask
    while chains[slot] != 0 and chains[slot] != chain:
        slot = (slot + np.uint64(1)) & mask
    return slot


@njit(cache=True)
def _rehashed(chains: NDArray[np.uint64], last: FloatArray) -> tuple[NDArray[np.uint64], FloatArray]:
    more, times = np.zeros(2 * chains.size, np.uint64), np.empty(2 * chains.size)
    for old in range(chains.size):
        if chains[old] != 0:
            slot = _slot(more, chains[old])
            more[slot], times[slot] = chains[old], last[old]
    return more, times


@njit(cache=True)
def _doubled(values: NDArray[Any]) -> NDArray[Any]:
    more = np.empty(2 * values.size, values.dtype)
    more[: values.size] = values
    return more
