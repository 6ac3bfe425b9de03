"""The most that a prefix cache can hit: endless room, and the clairvoyant optimum for a number of blocks.

Belady's MIN (see caches/shadow/offline.py) over the blocks of all prompts, one after the other, is an upper bound for
any prefix cache, which may keep no block without the one before it. Here the bound is reached, so it is the optimum:

- Compare blocks by the position that asks for them next. A block's parent is asked for no later than the block itself,
  and in the same request earlier; so of any path the deepest block is needed last, and MIN gives up leaves alone.
- A block that is not worth keeping is not taken in: everything that is asked for again sooner stays. What comes behind
  it in its prompt is asked for later still, so nothing of the request is lost that would be kept.

So what is kept is closed upwards, every hit belongs to a leading run, and nobody who keeps as many blocks hits more. It
counts blocks; in tokens a last, partial block is worth less, and the optimum may be better by less than one block a
request. Requests come one after the other: none holds blocks while others run.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from caches.errors import InputError
from caches.shadow.curve import link
from caches.shadow.offline import clear_place, highest_bit
from caches.shadow.trie import Chains

Array = NDArray[Any]
U, ONE = np.uint64, np.uint64(1)


def endless_run(chains: Chains) -> Array:
    """Leading blocks of each request that an endless cache hits, int32 (requests,)."""
    return _endless(chains.offsets, chains.node, len(chains.parent))


def clairvoyant_run(chains: Chains, blocks: int) -> Array:
    """Leading blocks of each request that the optimum for `blocks` blocks of room hits, int32 (requests,).

    It is the optimum in their sum, for a cache that starts empty. InputError for a negative room.
    """
    if blocks < 0:
        raise InputError(f"blocks: got {blocks}, expected 0 or more")
    _, following = link(chains.node, len(chains.parent))
    return _clairvoyant(chains.offsets, following, blocks)


@njit(cache=True)
def _endless(offsets: Array, node: Array, nodes: int) -> Array:
    seen, runs = np.zeros(nodes, np.bool_), np.zeros(offsets.size - 1, np.int32)
    for t in range(offsets.size - 1):
        for i in range(offsets[t], offsets[t + 1]):
            runs[t] += seen[node[i]]
            seen[node[i]] = True
    return runs


@njit(cache=True, nogil=True)
def _clairvoyant(offsets: Array, following: Array, blocks: int) -> Array:
    """following: of each block asked for, the position that asks for it next, int32, len(following) for none.

    What is held is a set of such positions, as in caches.shadow.offline.min_hits. A block joins it, and where one is
    too many the one needed last leaves, which may be the one that joined.
    """
    n = following.size
    base, width = [0], (n >> 6) + 1
    while width > 1:
        base.append(base[-1] + width)
        width = (width >> 6) + 1
    tree, top = np.zeros(base[-1] + 1, np.uint64), len(base) - 1
    runs, held = np.zeros(offsets.size - 1, np.int32), 0
    for t in range(offsets.size - 1):
        for i in range(offsets[t], offsets[t + 1]):
            if tree[i >> 6] >> U(i & 63) & ONE:
                runs[t] += 1
                held -= 1
                clear_place(tree, base, i)
            p = following[i]
            if p == n:
                continue
            held += 1
            for level in range(top + 1):
                tree[base[level] + (p >> 6)] |= ONE << U(p & 63)
                p >>= 6
            if held > blocks:
                place = 0
                for level in range(top, -1, -1):
                    place = (place << 6) + int(highest_bit(tree[base[level] + place]))
                clear_place(tree, base, place)
                held -= 1
    return runs
