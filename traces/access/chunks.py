"""From rows of the access log to requests of a trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from traces.reader import Chunk, Location

LEFT_OUT = "Requests that went past the cache, or that no answer is known of, are left out."
TOKENS_ABSENT = "Token counts that an answer does not state are taken to be 0."
DEFAULT = "default"
# A client may ask for a lifetime of nothing, or for longer than any cache lives: the nearest that a trace can hold.
SHORTEST_TTL_SECONDS, LONGEST_TTL_SECONDS = 1e-6, 1e9
TOKENS = ("prompt_tokens", "output_tokens")


def cached_only(table: Any, key: str = "key") -> Any:
    """The rows that a cache of any kind would have seen, and could have answered. key: the column that is the key; rows
    without it are none of these."""
    return table.filter(pc.and_(pc.is_valid(table[key]), pc.is_valid(table["size"])))


def in_order(table: Any) -> Any:
    """The rows by arrival; those that came at the same time stay in the order that they have."""
    return table.take(pa.array(np.argsort(table["time"].cast(pa.int64()).to_numpy(), kind="stable")))


def chunk_of(
    table: Any, stated: frozenset[str], left_out: bool, locate: Callable[[int], Location], key: str = "key"
) -> Chunk:
    """table: of the log's columns, as `cached_only` returns it, in order of time. stated: those of TOKENS that some
    answer in the log states; the others are no columns of the trace. left_out: whether rows were."""
    absent = any(table[name].null_count for name in stated)
    told = (LEFT_OUT,) * left_out + (TOKENS_ABSENT,) * absent
    counts = {name: _integers(table[name]) for name in stated}
    return Chunk(
        keys=_whole(pc.cast(table[key], pa.binary())),
        locate=locate,
        time=np.asarray(pc.cast(table["time"], pa.timestamp("ns", "UTC")).cast(pa.int64()).to_numpy()),
        size=_integers(table["size"]),
        prompt_tokens=counts.get("prompt_tokens"),
        output_tokens=counts.get("output_tokens"),
        ttl_seconds=np.clip(table["ttl"].to_numpy(), SHORTEST_TTL_SECONDS, LONGEST_TTL_SECONDS),
        namespace=_namespaces(table),
        names={"ttl_seconds": "ttl"},
        assumptions=told,
    )


def _namespaces(table: Any) -> Any:
    """TENANT/NAMESPACE, or "default" where both are."""
    tenant, namespace = table["tenant"], table["namespace"]
    both = pc.and_(pc.equal(tenant, DEFAULT), pc.equal(namespace, DEFAULT))
    return _whole(pc.if_else(both, DEFAULT, pc.binary_join_element_wise(tenant, namespace, "/")))


def _integers(column: Any) -> NDArray[np.int64]:
    return np.asarray(pc.fill_null(column, 0).to_numpy())


def _whole(column: Any) -> Any:
    """One array of a column's parts."""
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
