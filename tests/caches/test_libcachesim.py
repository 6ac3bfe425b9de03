"""The same misses as libCacheSim, another implementation by other people, to the last one.

On both sides a response larger than the cache is not admitted and evicts nothing, and an entry keeps the size it was
written with until it is written again.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.csv
import pytest

from caches.shadow.cache import ShadowCache, requests_of
from caches.shadow.curve import link, lru_misses

lcs = pytest.importorskip("libcachesim", reason="libcachesim is not installed (the extra `bench` has it)")

RECORD = np.dtype([("time", "<u4"), ("id", "<u8"), ("size", "<u4"), ("next", "<i8")])
SHARES = (0.002, 0.01, 0.05, 0.2, 0.6)  # of the distinct bytes
FIRST_PART = 1_000_000


def read(path: Path) -> tuple[np.ndarray, np.ndarray]:
    table = pyarrow.csv.read_csv(path)
    key = table["key"].to_numpy()
    return np.unique(key, return_inverse=True)[1].astype(np.int32), table["size_b"].to_numpy().astype(np.int32)


def capacities_of(key: np.ndarray, size: np.ndarray) -> np.ndarray:
    largest = np.zeros(key.max() + 1, np.int64)
    np.maximum.at(largest, key, size)
    return (np.array(SHARES) * largest.sum()).astype(np.int64)


def peer_misses(key: np.ndarray, size: np.ndarray, capacities: np.ndarray, path: Path) -> list[int]:
    records = np.zeros(len(key), RECORD)
    records["time"], records["id"], records["size"], records["next"] = np.arange(len(key)), key, size, -1
    records.tofile(path)
    misses = []
    for capacity in capacities:
        reader = lcs.TraceReader(str(path), lcs.TraceType.ORACLE_GENERAL_TRACE)
        ratio, _ = lcs.LRU(int(capacity)).process_trace(reader)
        assert ratio * len(key) == pytest.approx(round(ratio * len(key)), abs=1e-4)
        misses.append(round(ratio * len(key)))
    return misses


def our_misses(key: np.ndarray, size: np.ndarray, capacities: np.ndarray) -> list[int]:
    requests, misses = requests_of(key, np.arange(len(key), dtype=float), size), []
    for capacity in capacities:
        cache = ShadowCache(requests, int(key.max()) + 1, int(capacity))
        cache.run(len(key))
        misses.append(cache.stats().misses)
    return misses


def test_objects_of_very_different_sizes(shared_traces: Path, tmp_path: Path) -> None:
    key, size = read(shared_traces / "kv" / "adaptsize_cdn_sample.csv.zst")
    capacities = capacities_of(key, size)
    assert size.max() > capacities[0]  # some are larger than the cache
    assert our_misses(key, size, capacities) == peer_misses(key, size, capacities, tmp_path / "cdn.bin")


@pytest.mark.parametrize(
    "limit", [FIRST_PART, pytest.param(None, marks=pytest.mark.slow)], ids=["first million", "whole"]
)
def test_small_values_of_a_production_cache(shared_traces: Path, tmp_path: Path, limit: int | None) -> None:
    key, size = (column[:limit] for column in read(shared_traces / "kv" / "twitter_cluster52.part1.csv.zst"))
    capacities = capacities_of(key, size)
    theirs = peer_misses(key, size, capacities, tmp_path / "twitter.bin")
    assert our_misses(key, size, capacities) == theirs
    misses, _ = lru_misses(*link(key, int(key.max()) + 1), size, capacities)
    assert misses.tolist() == theirs
