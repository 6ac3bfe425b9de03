"""Requests as the parts hand them over, before they are merged into a trace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from caches.errors import InputError
from traces.per_key import Int64Array, mix
from traces.trace import FloatArray, Int32Array

MAX_BLOCKS = 500_000_000


@dataclass(frozen=True)
class Draw:
    """Some requests, one row each.

    key_id: see `traces.synthetic.streams`. The prompt's blocks belong to `opening_id` as far as they lie in
    its first `opening_tokens` tokens, and to `conversation_id` after that.
    """

    arrival_seconds: FloatArray
    key_id: Int64Array
    prompt_tokens: Int32Array
    opening_tokens: Int32Array
    opening_id: Int64Array
    conversation_id: Int64Array

    def take(self, rows: Int64Array) -> Draw:
        return Draw(*(getattr(self, f.name)[rows] for f in fields(self)))


def standalone(times: FloatArray, key_id: Int64Array, prompt_tokens: Int32Array) -> Draw:
    """Requests outside sessions: the whole prompt belongs to the key."""
    return Draw(times, key_id, prompt_tokens, prompt_tokens, key_id, key_id)


def merge(draws: Sequence[Draw]) -> Draw:
    """All requests in order of arrival."""
    joined = Draw(*(np.concatenate([getattr(d, f.name) for d in draws]) for f in fields(Draw)))
    return joined.take(np.argsort(joined.arrival_seconds, kind="stable"))


def block_chains(draw: Draw, block_size_tokens: int) -> tuple[Int64Array, Int64Array]:
    """Offsets, shape (n + 1,), and block ids of the prompts' full blocks.

    A block's id is a hash of its owner and its place; it is not below 0. Equal ids in equal places therefore
    mean equal prompts up to there. Raises InputError above MAX_BLOCKS blocks.
    """
    count = (draw.prompt_tokens // block_size_tokens).astype(np.int64)
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(count)])
    if offsets[-1] > MAX_BLOCKS:
        raise InputError(
            f"sessions.block_size_tokens: got {block_size_tokens}, which makes {offsets[-1]:,} blocks, "
            f"expected a size that makes at most {MAX_BLOCKS:,}"
        )
    place = np.arange(offsets[-1]) - np.repeat(offsets[:-1], count)
    shared = place < np.repeat(draw.opening_tokens // block_size_tokens, count)
    owner = np.where(shared, np.repeat(draw.opening_id, count), np.repeat(draw.conversation_id, count))
    bits = mix(mix(owner.astype(np.uint64)) + place.astype(np.uint64))
    return offsets, (bits >> np.uint64(1)).astype(np.int64)
