"""Reading a share of the keys: which are kept, what is counted of the rest, and what becomes of their analysis."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from caches.errors import BadRecord, InputError
from tests.traces.tiny import tiny_trace
from traces.catalog import read_trace
from traces.key_sample import KeySample, Tally, drawn
from traces.packed import save_packed
from traces.reader import ReadOptions
from traces.store import save_trace
from traces.trace import Operation, Trace
from traces.workload import SampledKeys, analyse
from traces.workload_sample import scaled_up

KEYS, REQUESTS, PARTS = 400, 6_000, 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Requests every half second in three parts, keys as likely as each other, one in ten a write."""
    random, folder = np.random.default_rng(3), tmp_path_factory.mktemp("partitioned")
    key = random.integers(0, KEYS, REQUESTS)
    operation = np.where(np.arange(REQUESTS) % 10 == 9, "write", "read")
    table = pa.table(
        {
            "time": np.arange(REQUESTS) / 2.0 + 1000.0,
            "key": [f"key {k}" for k in key],
            "size": 100 + key,
            "operation": operation,
        }
    )
    for part in range(PARTS):
        place = folder / f"day={part}"
        place.mkdir()
        pq.write_table(table.slice(part * REQUESTS // PARTS, REQUESTS // PARTS), place / "part.parquet")
    return folder


def sampled(path: Path, at_most: int, seed: int = 0, **options: object) -> tuple[Trace, KeySample]:
    trace = read_trace(path, None, ReadOptions(at_most=at_most, sample_seed=seed, **options))  # type: ignore[arg-type]
    assert trace.sample is not None
    return trace, trace.sample


@given(st.lists(st.integers(0, 400), max_size=60), st.integers(1, 60))
def test_a_tally_counts_between_whole_bins(times: list[int], pieces: int) -> None:
    tally = Tally(most_bins=64)
    for part in np.array_split(np.array(times, float), pieces):
        tally.add(part)
    assert tally.total == len(times)
    assert tally.bin_seconds == (1.0 if max(times, default=0) < 64 else 2.0 ** (max(times) // 64).bit_length())
    edges = np.arange(0.0, 513.0, tally.bin_seconds)
    np.testing.assert_allclose(tally.between(edges), np.histogram(times, edges)[0])


def test_inside_a_bin_times_count_as_spread_evenly() -> None:
    tally = Tally()
    tally.add(np.array([0.1, 0.2, 1.0, 1.9]))
    assert tally.between(np.array([0.0, 0.5, 1.5, 9.0])).tolist() == [1.0, 2.0, 1.0]


def test_a_key_is_kept_or_left_as_a_whole(folder: Path) -> None:
    whole = read_trace(folder)
    trace, sample = sampled(folder, 1_500)
    assert sample.share == 0.25
    sizes = set(np.unique(trace.size_bytes))  # a size belongs to one key here
    rows = np.isin(whole.size_bytes, list(sizes))
    assert 60 < len(sizes) < 140  # of 400, at a quarter
    assert trace.num_keys == len(sizes)
    np.testing.assert_array_equal(trace.arrival_seconds, whole.arrival_seconds[rows])
    np.testing.assert_array_equal(trace.size_bytes, whole.size_bytes[rows])
    assert trace.operation is not None
    assert whole.operation is not None
    np.testing.assert_array_equal(trace.operation, whole.operation[rows])


def test_the_whole_is_counted(folder: Path) -> None:
    whole = read_trace(folder)
    _, sample = sampled(folder, 1_500)
    assert sample.span_seconds == whole.span_seconds
    assert sample.requests.total == REQUESTS
    assert sample.lookups.total == int((whole.operation == Operation.READ).sum()) == REQUESTS * 9 // 10
    np.testing.assert_allclose(sample.requests.between(np.array([0.0, 10.0, 1010.0])), [20.0, 2000.0])


def test_the_sample_does_not_depend_on_how_the_source_is_cut(folder: Path) -> None:
    first, _ = sampled(folder, 1_500)
    second, counted = sampled(folder, 1_500, chunk_bytes=64 * 37)
    other, _ = sampled(folder, 1_500, seed=1)
    assert first.sha256 == second.sha256 != other.sha256
    assert counted.requests.total == REQUESTS


def test_enough_room_or_a_limit_below_it_takes_everything(folder: Path) -> None:
    assert read_trace(folder, None, ReadOptions(at_most=REQUESTS)).sample is None
    assert read_trace(folder, None, ReadOptions(at_most=500, limit=500)).sample is None
    assert sampled(folder, 500, limit=1_000)[1].share == 0.5


def test_a_source_without_times_is_counted_as_it_is_spaced(tmp_path: Path) -> None:
    pq.write_table(pa.table({"key": np.arange(1_000) % 100}), tmp_path / "untimed.parquet")
    trace, sample = sampled(tmp_path / "untimed.parquet", 300, requests_per_second=10.0)
    assert sample.span_seconds == 99.9
    assert sample.requests.between(np.array([0.0, 50.0])).tolist() == [500.0]
    assert set(np.round(np.diff(trace.arrival_seconds[trace.key == 0]), 9)) == {10.0}


def test_integers_and_texts_are_drawn_at_their_share() -> None:
    for keys in (pa.array(np.arange(100_000)), pa.array([f"k{n}" for n in range(100_000)])):
        kept = drawn(keys, 0.1, 0)
        assert abs(kept.mean() - 0.1) < 0.004  # four standard deviations
        assert abs((kept & drawn(keys, 0.1, 1)).mean() - 0.01) < 0.0013  # another seed draws anew
        assert drawn(keys.take(pa.array(np.arange(100_000)[::-1].copy())), 0.1, 0).tolist() == kept[::-1].tolist()


def test_what_is_wrong_with_a_key_that_is_not_drawn_is_said(tmp_path: Path) -> None:
    key = np.arange(1_000)
    left_out = int(np.flatnonzero(~drawn(pa.array(key), 0.1, 0))[5])
    size = np.where(key == left_out, -7, 1)
    pq.write_table(pa.table({"time": key, "key": key, "size": size}), tmp_path / "bad.parquet")
    with pytest.raises(BadRecord, match=f"record {left_out + 1}, size: got -7"):
        sampled(tmp_path / "bad.parquet", 100)


def test_a_sample_cannot_be_sorted_stored_or_empty(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"too long to be sorted, expected 6,000 requests in order of time"):
        sampled(folder, 100, sort=True)
    trace, _ = sampled(folder, 1_500)
    for save, name in ((save_trace, "x.trace"), (save_packed, "x.parquet")):
        with pytest.raises(InputError, match=r"holds 25.000% of the keys, expected all of them"):
            save(trace, tmp_path / name)
    assert list(tmp_path.iterdir()) == []
    key = pa.array(["a", "a"])
    unlucky = next(seed for seed in range(99) if not drawn(key, 0.5, seed).any())
    pq.write_table(pa.table({"time": [0, 1], "key": key}), tmp_path / "few.parquet")
    with pytest.raises(InputError, match="none of the keys was drawn"):
        read_trace(tmp_path / "few.parquet", None, ReadOptions(at_most=1, sample_seed=unlucky))


def test_an_analysis_of_a_sample_by_hand() -> None:
    """Half of the keys: 3 of 8 requests."""
    requests = Tally()
    requests.add(np.array([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]))
    trace = tiny_trace([0, 0, 1], [1, 3, 6], [10, 10, 30])
    found = scaled_up(analyse(trace, 2.0), KeySample(0.5, requests, requests, 7.0))
    assert (found.requests, found.unique_keys, found.footprint_bytes) == (8, 4, 80)
    assert found.rereference_ratio == 1 - 4 / 8
    assert (found.span_seconds, found.mean_rate_rps) == (7.0, 8 / 7)
    assert found.one_hit_share == 0.5
    assert found.popularity.x.tolist() == [2.0, 4.0]
    assert [window.requests for window in found.windows] == [2, 2]
    assert found.entropy_bits is None
    assert found.sampled == SampledKeys(0.5, 3)


def test_an_analysis_of_a_sample_is_near_that_of_the_whole(folder: Path) -> None:
    whole = analyse(read_trace(folder))
    trace, sample = sampled(folder, 3_000)
    found = scaled_up(analyse(trace), sample)
    assert found.unique_keys == pytest.approx(whole.unique_keys, rel=0.15)
    assert found.footprint_bytes == pytest.approx(whole.footprint_bytes, rel=0.15)
    assert found.rereference_ratio == pytest.approx(whole.rereference_ratio, abs=0.01)
    assert found.rate is not None
    assert whole.rate is not None
    shared = min(len(found.rate.y), len(whole.rate.y))
    assert shared >= 100
    np.testing.assert_allclose(found.rate.y[:shared], whole.rate.y[:shared], rtol=0.15)
