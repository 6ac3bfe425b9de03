"""Prompts as paths in a tree of blocks: equal beginnings share nodes, and every node has one parent."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

Array = NDArray[Any]
FIRST_SLOTS = 1_024


class Chains(NamedTuple):
    """Request t's prompt is node[offsets[t] : offsets[t + 1]], from its first block on.

    offsets: int64 (requests + 1,). node: int32 (blocks of all prompts,). parent: int32 (nodes,), -1 for a first block.
    A parent's number is smaller than its children's.
    """

    offsets: Array
    node: Array
    parent: Array


def chains_of(offsets: Array, hashes: Array) -> Chains:
    """From block ids as traces have them (traces.trace.Trace.block_offsets, block_hashes).

    A node is a block after one particular beginning: where a source gives one id to equal blocks after different
    beginnings, these are different nodes, as in an engine that hashes a block together with all before it.
    """
    offsets, hashes = np.require(offsets, np.int64, ["C", "W"]), np.require(hashes, np.int64, ["C", "W"])
    node, parent = _number(offsets, hashes)
    return Chains(offsets, node, parent)


@njit(cache=True)
def _number(offsets: Array, hashes: Array) -> tuple[Array, Array]:
    """(node, parent). A table of open slots finds a block by its parent and id; it is never more than half full."""
    node, parent = np.empty(hashes.size, np.int32), np.empty(hashes.size, np.int32)
    block = np.empty(hashes.size, np.int64)  # ids, by node
    slots = np.full(FIRST_SLOTS, -1, np.int32)
    count = 0
    for t in range(offsets.size - 1):
        above = np.int32(-1)
        for i in range(offsets[t], offsets[t + 1]):
            at = _slot(slots, parent, block, above, hashes[i])
            if slots[at] < 0:
                slots[at] = count
                parent[count], block[count] = above, hashes[i]
                count += 1
            above = node[i] = slots[at]
            if 2 * count > slots.size:
                slots = np.full(4 * slots.size, -1, np.int32)
                for known in range(count):
                    slots[_slot(slots, parent, block, parent[known], block[known])] = known
    return node, parent[:count].copy()


@njit(inline="always")
def _slot(slots: Array, parent: Array, block: Array, above: Any, wanted: Any) -> Any:
    """Where the block with this parent and id is in the table, or the free slot where it belongs."""
    mixed = (np.uint64(wanted) + np.uint64(above + 1) * np.uint64(0x9E3779B97F4A7C15)) * np.uint64(0xBF58476D1CE4E5B9)
    at = np.int64((mixed >> np.uint64(20)) & np.uint64(slots.size - 1))
    while slots[at] >= 0 and (parent[slots[at]] != above or block[slots[at]] != wanted):
        at = (at + 1) & (slots.size - 1)
    return at
