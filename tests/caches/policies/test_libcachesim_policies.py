"""The same misses as libCacheSim, another implementation by other people, under each policy that both have.

docs/eviction.md says what differs: LRU-K with K above 2 and W-TinyLFU, and responses larger than S3-FIFO's small queue.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from caches.policies.settings import Eviction, Gdsf, Lfu, Lru, LruK, S3Fifo, Sieve
from caches.shadow.cache import ShadowCache, requests_of
from traces.packed import open_packed
from traces.shipped import shipped_traces

lcs = pytest.importorskip("libcachesim", reason="libcachesim is not installed (the extra `bench` has it)")

RECORD = np.dtype([("time", "<u4"), ("id", "<u8"), ("size", "<u4"), ("next", "<i8")])
SHARES = (0.01, 0.1, 0.5)  # of the distinct bytes
COST = 1e6  # what libCacheSim's GDSF multiplies by, whatever a miss costs
PEERS: dict[str, tuple[Eviction, Callable[[int], Any]]] = {
    "LRU": (Lru(), lcs.LRU),
    "LRU-2": (LruK(2, kept=0.0), lambda capacity: lcs.LRUK(capacity, k=2)),
    "LFU": (Lfu(decay=1.0), lcs.LFU),
    "GDSF": (Gdsf(), lcs.GDSF),
    "S3-FIFO": (S3Fifo(), lcs.S3FIFO),
    "SIEVE": (Sieve(), lcs.Sieve),
}


def zipf(requests: int) -> tuple[np.ndarray, np.ndarray]:
    """Keys whose popularity falls as 1 / rank^1.1; sizes of 1 to 499 bytes."""
    rng = np.random.default_rng(0)
    ranks = np.minimum(rng.zipf(1.1, requests), 20_000)
    key = np.unique(ranks, return_inverse=True)[1].astype(np.int32)
    return key, rng.integers(1, 500, key.max() + 1).astype(np.int32)[key]


def shipped(requests: int) -> tuple[np.ndarray, np.ndarray]:
    """Of the trace that comes with Setpoint, whose keys are Twitter's; sizes as it has them."""
    trace = open_packed(shipped_traces()["servegen-twitter-14d"])
    key = np.unique(trace.key[:requests], return_inverse=True)[1].astype(np.int32)
    first = np.unique(key, return_index=True)[1]
    return key, np.asarray(trace.size_bytes[:requests], np.int32)[first][key]


def misses_of_both(name: str, key: np.ndarray, size: np.ndarray, capacity: int, path: Path) -> tuple[int, int]:
    eviction, peer = PEERS[name]
    records = np.zeros(len(key), RECORD)
    records["time"], records["id"], records["size"], records["next"] = np.arange(len(key)), key, size, -1
    records.tofile(path)
    ratio, _ = peer(capacity).process_trace(lcs.TraceReader(str(path), lcs.TraceType.ORACLE_GENERAL_TRACE))
    assert ratio * len(key) == pytest.approx(round(ratio * len(key)), abs=1e-4)
    requests = requests_of(key, np.arange(len(key), dtype=float), size)
    cost = np.full(len(key), COST, np.float32)
    cache = ShadowCache(requests, int(key.max()) + 1, capacity, eviction=eviction, cost=cost)
    cache.run(len(key))
    return cache.stats().misses, round(ratio * len(key))


@pytest.mark.parametrize("sized", [False, True], ids=["entries", "bytes"])
@pytest.mark.parametrize("workload", [zipf, shipped], ids=lambda one: one.__name__)
@pytest.mark.parametrize("name", PEERS)
def test_misses_are_the_same(
    name: str, workload: Callable[[int], tuple[np.ndarray, np.ndarray]], sized: bool, tmp_path: Path
) -> None:
    key, size = workload(100_000)
    size = size if sized else np.ones(len(key), np.int32)
    largest = np.zeros(key.max() + 1, np.int64)
    np.maximum.at(largest, key, size)
    for share in SHARES:
        capacity = int(share * largest.sum())
        assert size.max() < capacity // 10 or not sized  # it fits into S3-FIFO's small queue
        ours, theirs = misses_of_both(name, key, size, capacity, tmp_path / "trace.bin")
        assert ours == theirs, share
