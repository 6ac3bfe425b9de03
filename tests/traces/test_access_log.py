"""The access log as a folder of Parquet files: what is in it, and the trace that it is."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caches.errors import InputError
from caches.keys.levels import LEVELS
from tests.traces.access_records import BEGIN, SECRET, bypass, cached, files
from traces.access.chunks import LEFT_OUT, TOKENS_ABSENT
from traces.access.parquet_log import ParquetAccessLog
from traces.access.record import AccessRecord
from traces.access.secret import key_hash
from traces.catalog import detect_format, load_trace
from traces.reader import ReadOptions

ROOT = Path(__file__).parents[2]


def keys_by_first_appearance(records: Sequence[AccessRecord]) -> list[int]:
    numbers: dict[tuple[object, ...], int] = {}
    return [numbers.setdefault((one.tenant, one.namespace, one.key_id), len(numbers)) for one in records]


def test_columns_are_what_was_recorded(tmp_path: Path) -> None:
    log = ParquetAccessLog(tmp_path, secret=SECRET)
    miss = cached(0.25, "k", "miss", compute_seconds=1.5, ttl_seconds=60.0)._replace(tenant="acme", namespace="shop")
    levels = tuple(b"level %d" % place for place in range(len(LEVELS)))
    alike = cached(1.0, "l", "semantic", similarity=0.9375, arm="treatment", levels=levels)
    log.write([miss, alike, bypass(2.0)], BEGIN)
    log.close()
    (file,) = files(tmp_path)
    rows = pq.read_table(file).to_pylist()
    assert [row.pop("time").timestamp() for row in rows] == [BEGIN + 0.25, BEGIN + 1.0, BEGIN + 2.0]
    hashed = key_hash(SECRET)
    assert [list(row.values()) for row in rows] == [
        [hashed(b"k"), "acme", "shop", "miss", 200, 100, 10, 5, 1.5, None, 60.0, None, *[None] * 6],
        [hashed(b"l"), "default", "default", "semantic", 200, 100, 10, 5, None, 0.9375, None, "treatment"]
        + [hashed(one)[:8] for one in levels],
        [None, "default", "default", "bypass", 200, *[None] * 13],
    ]


def test_a_log_of_before_there_were_arms_can_be_read(tmp_path: Path) -> None:
    """Alone, and with files that have them."""
    for name, dropped in (("old", ["arm"]), ("new", [])):
        folder = tmp_path / name
        log = ParquetAccessLog(folder, secret=SECRET)
        log.write([cached(0.0, "k"), cached(1.0, "l", arm="control"), cached(2.0, "k")], BEGIN)
        log.close()
        (file,) = files(folder)
        pq.write_table(pq.read_table(file).drop_columns(dropped), tmp_path / f"access-20231114T221320Z-{name}.parquet")
    assert load_trace(tmp_path / "access-20231114T221320Z-old.parquet").key.tolist() == [0, 1, 0]
    both = tmp_path / "both"
    both.mkdir()
    for file in tmp_path.glob("*.parquet"):
        file.rename(both / file.name)
    assert load_trace(both).key.tolist() == [0, 0, 1, 1, 0, 0]


def test_hashes_cannot_be_made_without_the_secret(tmp_path: Path) -> None:
    """BLAKE2b under a key; the standard library with the same key is the oracle."""
    whole = hashlib.blake2b(b"id", key=hashlib.sha256(SECRET).digest(), digest_size=16).digest()
    assert key_hash(SECRET)(b"id") == whole
    assert key_hash(SECRET + b".")(b"id") != whole
    assert hashlib.blake2b(b"id", digest_size=16).digest() != whole
    with pytest.raises(InputError, match="access log secret: got 3 bytes, expected at least 16"):
        key_hash(b"abc")


def test_two_processes_with_one_folder_have_equal_hashes(tmp_path: Path) -> None:
    for second in (0.0, 1.0):
        log = ParquetAccessLog(tmp_path)
        log.write([cached(second, "same")], BEGIN + second)
        log.close()
    assert len(files(tmp_path)) == 2
    assert load_trace(tmp_path).key.tolist() == [0, 0]


times = st.integers(0, 40).map(lambda quarter: quarter / 4)
requests = st.builds(
    lambda second, key, known: cached(second, key) if known else bypass(second),
    times,
    st.sampled_from("abcde"),
    st.integers(0, 4).map(bool),
)


@settings(deadline=None, max_examples=40)
@given(
    written=st.lists(st.tuples(st.integers(0, 1), st.lists(requests, min_size=1, max_size=6)), min_size=1, max_size=12),
    rotate_rows=st.integers(1, 9),
    group_rows=st.integers(1, 5),
    chunk=st.sampled_from([1, 2**20]),
)
def test_the_trace_is_all_requests_in_order_of_arrival(
    written: list[tuple[int, list[AccessRecord]]], rotate_rows: int, group_rows: int, chunk: int
) -> None:
    """Whatever gateway wrote them, in whatever order they ended, and wherever files and row groups begin."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        logs = [
            ParquetAccessLog(folder, rotate_rows=rotate_rows, row_group_rows=group_rows, secret=SECRET)
            for _ in range(2)
        ]
        for which, records in written:
            logs[which].write([one._replace(size_bytes=None if one.key_id is None else 7) for one in records], BEGIN)
        for log in logs:
            log.close()
        kept = [one for _, records in written for one in records if one.key_id is not None]
        if not kept:
            with pytest.raises(InputError, match="got no records"):
                load_trace(folder)
            return
        trace = load_trace(folder, options=ReadOptions(chunk_bytes=chunk))
    first = min(one.arrival_seconds for one in kept)
    assert trace.arrival_seconds.tolist() == sorted(one.arrival_seconds - first for one in kept)
    assert trace.info.start_unix_seconds == pytest.approx(first, abs=1e-6)
    found = [tuple(trace.arrival_seconds[trace.key == key].tolist()) for key in range(trace.num_keys)]
    by_key = [[one.arrival_seconds - first for one in kept if one.key_id == key] for key in {k.key_id for k in kept}]
    assert sorted(found) == sorted(tuple(sorted(times)) for times in by_key)  # whatever number a key has
    assert (LEFT_OUT in trace.info.assumptions) == (len(kept) < sum(len(records) for _, records in written))


def test_requests_at_the_same_time_stay_in_the_order_of_the_log(tmp_path: Path) -> None:
    log = ParquetAccessLog(tmp_path, row_group_rows=2, secret=SECRET)
    records = [
        cached(1.0, "b"),
        cached(3.0, "c"),
        cached(1.0, "a"),
        cached(1.0, "b"),
        cached(3.0, "a"),
        cached(0.5, "a"),
    ]
    log.write(records[:2], BEGIN)
    log.write(records[2:4], BEGIN)
    log.write(records[4:], BEGIN)
    log.close()
    trace = load_trace(tmp_path)
    ordered = sorted(records, key=lambda one: one.arrival_seconds)  # stable
    assert trace.key.tolist() == keys_by_first_appearance(ordered) == [0, 1, 0, 1, 2, 0]


def test_what_the_trace_takes_from_the_log(tmp_path: Path) -> None:
    """Errors and requests past the cache are left out, tenants are namespaces, no lifetime is the shortest."""
    log = ParquetAccessLog(tmp_path, secret=SECRET)
    failed = cached(2.0, "f", "miss")._replace(status=502, size_bytes=None, prompt_tokens=None, output_tokens=None)
    records = [
        cached(0.0, "a", "miss", size_bytes=50, prompt_tokens=3, output_tokens=None, ttl_seconds=0.0),
        cached(1.0, "a")._replace(tenant="acme", namespace="shop"),
        failed,
        bypass(3.0),
        cached(4.0, "a", size_bytes=60, prompt_tokens=3, output_tokens=None, ttl_seconds=1e300),
    ]
    log.write(records, BEGIN)
    log.close()
    trace = load_trace(tmp_path)
    assert detect_format(tmp_path, ReadOptions()).name == "access_log"
    assert trace.arrival_seconds.tolist() == [0.0, 1.0, 4.0]
    assert trace.key.tolist() == [0, 1, 0]
    assert trace.namespace is not None
    assert [trace.info.namespaces[index] for index in trace.namespace] == ["default", "acme/shop", "default"]
    assert trace.size_bytes.tolist() == [50, 100, 60]
    assert trace.prompt_tokens is not None
    assert trace.output_tokens is not None
    assert (trace.prompt_tokens.tolist(), trace.output_tokens.tolist()) == ([3, 10, 3], [0, 5, 0])
    assert trace.ttl_seconds is not None
    assert trace.ttl_seconds[[0, 2]].tolist() == [pytest.approx(1e-6), 1e9]
    assert np.isnan(trace.ttl_seconds[1])
    assert trace.info.assumptions == tuple(sorted((LEFT_OUT, TOKENS_ABSENT)))


def test_tokens_that_no_answer_states_are_no_column(tmp_path: Path) -> None:
    """So that what needs them assumes them and says so, rather than to take them for 0."""
    log = ParquetAccessLog(tmp_path, rotate_rows=1, secret=SECRET)
    for second in range(2):
        log.write([cached(second, prompt_tokens=7, output_tokens=None)], BEGIN)
    trace = load_trace(tmp_path)
    assert trace.prompt_tokens is not None
    assert trace.output_tokens is None
    assert trace.info.assumptions == ()


def test_a_log_larger_than_asked_for_is_sampled_by_key(tmp_path: Path) -> None:
    log = ParquetAccessLog(tmp_path, rotate_rows=500, row_group_rows=100, secret=SECRET)
    # each row is 5 s later than the one before and 12 s late: row groups overlap in time
    records = [cached(5.0 * index - 12.0 * (index % 2), f"k{index % 200}") for index in range(2_000)]
    for start in range(0, 2_000, 100):
        log.write(records[start : start + 100], BEGIN)
    log.close()
    trace = load_trace(tmp_path, options=ReadOptions(at_most=500))
    assert trace.sample is not None
    assert trace.sample.requests.total == 2_000
    assert len(trace) == 10 * trace.num_keys  # all requests of a key, or none
    assert 0 < trace.num_keys < 200


def test_a_foreign_file_in_the_folder_is_named(tmp_path: Path) -> None:
    log = ParquetAccessLog(tmp_path, secret=SECRET)
    log.write([cached(0.0)], BEGIN)
    log.close()
    shutil.copy(ROOT / "tests" / "traces" / "samples" / "requests.parquet", tmp_path / "z.parquet")
    with pytest.raises(InputError, match=r"z\.parquet: got a Parquet file of another kind"):
        load_trace(tmp_path)
