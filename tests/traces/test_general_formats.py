"""CSV, JSON lines and Parquet by a mapping of roles to columns."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from caches.errors import InputError
from tests.traces.trace_samples import CSV_COLUMNS, FOLDER
from traces.catalog import read_trace
from traces.formats.operations import GENERIC
from traces.reader import ReadOptions
from traces.trace import Operation

NAN = float("nan")
KEY_ONLY = ReadOptions(requests_per_second=1)


def refused(path: Path, content: str, message: str, options: ReadOptions = KEY_ONLY) -> None:
    path.write_text(content)
    with pytest.raises(InputError) as caught:
        read_trace(path, None, options)
    assert str(caught.value) == f"{path}{message}"


def test_csv_with_every_role() -> None:
    trace = read_trace(FOLDER / "requests.csv", None, ReadOptions(columns=CSV_COLUMNS, time_unit="ms"))
    assert trace.arrival_seconds.tolist() == [0, 0.5, 0.5, 2, 3]
    assert trace.info.start_unix_seconds == 1.7e9
    assert trace.info.namespaces == ("shop", "bank")
    assert trace.namespace is not None
    assert trace.namespace.tolist() == [0, 0, 1, 1, 0]
    # abc of the shop and abc of the bank are two entries.
    assert trace.key.tolist() == [0, 1, 2, 3, 0]
    assert trace.size_bytes.tolist() == [1200, 900, 1200, 10, 1200]
    assert trace.prompt_tokens is not None
    assert trace.prompt_tokens.tolist() == [50, 60, 50, 70, 50]
    assert trace.ttl_seconds is not None
    np.testing.assert_array_equal(trace.ttl_seconds, np.float32([NAN, 60, 0.5, NAN, NAN]))
    assert trace.operation is not None
    assert trace.operation.tolist() == [
        Operation.READ,
        Operation.WRITE,
        Operation.READ,
        Operation.DELETE,
        Operation.READ,
    ]
    assert trace.info.assumptions == ()


def test_csv_takes_names_that_say_the_unit(tmp_path: Path) -> None:
    path = tmp_path / "cdn.csv"
    path.write_text("seq,key,size_b,ttl_s\n0,a,7,60\n1,b,9,\n")
    trace = read_trace(path, None, KEY_ONLY)
    assert trace.size_bytes.tolist() == [7, 9]
    assert trace.ttl_seconds is not None
    assert np.array_equal(trace.ttl_seconds, [60, NAN], equal_nan=True)
    assert not any("no sizes" in sentence for sentence in trace.info.assumptions)


def test_csv_prefers_the_name_of_the_role(tmp_path: Path) -> None:
    path = tmp_path / "both.csv"
    path.write_text("t_s,time,key,size_bytes\n5,1,a,3\n6,3,b,4\n")
    assert read_trace(path).arrival_seconds.tolist() == [0, 2]
    assert read_trace(path, None, ReadOptions(columns={"time": "t_s"})).arrival_seconds.tolist() == [0, 1]


def test_cdn_sample_has_its_sizes(shared_traces: Path) -> None:
    trace = read_trace(shared_traces / "kv" / "adaptsize_cdn_sample.csv.zst", None, KEY_ONLY)
    assert (len(trace), trace.num_keys, int(trace.size_bytes.max())) == (66_987, 36_815, 4_092_928)


def test_csv_lines_count_quoted_newlines(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    header = "time,key,size\n"
    refused(
        path,
        header + '0,"a\nb\nc",1\n\n1,b,x\n',
        ", line 6, size: got 'x', expected an integer",
        ReadOptions(),
    )
    refused(
        path,
        header + '0,"a\nb",1\n1,b\n',
        ", line 4: got '1,b', expected 3 cells (time, key, size)",
        ReadOptions(),
    )


def test_csv_open_quote_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('key,size\na,1\n"b,2\nc,3\n' + "d,4\n" * 50_000)
    with pytest.raises(InputError, match=r"a\.csv, line 3: got .* expected a record without an open quote"):
        read_trace(path, None, KEY_ONLY)


def test_csv_time_units(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("time,key\n1000,a\n3000,b\n")
    for unit, span in (("s", 2000), ("ms", 2), ("us", 0.002), ("ns", 2e-6)):
        trace = read_trace(path, None, ReadOptions(time_unit=unit))  # type: ignore[arg-type]
        assert trace.span_seconds == pytest.approx(span, rel=1e-12)
    path.write_text("time,key\n2026-01-05T08:00:00.5+01:00,a\n2026-01-05T07:00:01Z,b\n")
    trace = read_trace(path, None, ReadOptions(time_unit="iso"))
    assert trace.arrival_seconds.tolist() == [0, 0.5]
    assert trace.info.start_unix_seconds == 1_767_596_400.5


def test_csv_iso_times_without_zone_are_utc(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("time,key\n2026-01-05 07:00:00,a\n2026-01-05T07:00:01.25Z,b\n2026-01-05T09:00:02+0200,c\n")
    iso = ReadOptions(time_unit="iso")
    assert read_trace(path, None, iso).arrival_seconds.tolist() == [0, 1.25, 2]
    content = "time,key\n2026-01-05T07:00:00Z,a\n5 January,b\n"
    refused(path, content, ", line 3, time: got '5 January', expected an ISO 8601 time", iso)


def test_tsv(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv.gz"
    path.write_bytes(gzip.compress(b"time\tkey\n0\ta,b\n1\ta,b\n"))
    assert read_trace(path).num_keys == 1


def test_column_that_is_not_there_names_the_nearest(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    options = ReadOptions(columns={"time": "tss", "key": "k"})
    message = ", time: got the column 'tss', expected one of ts, k; did you mean 'ts'?"
    refused(path, "ts,k\n0,a\n", message, options)
    no_key = ", key: got no column for the keys, expected key=COLUMN with one of ts, k"
    refused(path, "ts,k\n0,a\n", no_key, ReadOptions(columns={"time": "ts"}))
    refused(path, "k,k\n0,a\n", ", line 1, header: got 'k,k\\n', expected names that differ")


def test_unknown_role_names_the_nearest(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"k": "a"}\n')
    with pytest.raises(InputError, match=r"column role: got 'tmie', .* did you mean time\?"):
        read_trace(path, None, ReadOptions(columns={"tmie": "ts", "key": "k"}))


def test_times_and_even_spacing_exclude_each_other(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    refused(path, "key\na\n", ": has no arrival times, expected a number of requests per second", ReadOptions())
    refused(path, "time,key\n0,a\n", ": has arrival times, so requests per second cannot be set")
    path.write_text("time,key\n0,a\n")
    for rate in (0, -1, NAN, float("inf")):
        with pytest.raises(InputError, match="requests per second"):
            read_trace(path, None, ReadOptions(requests_per_second=rate))
    with pytest.raises(InputError, match="limit: got 0"):
        read_trace(path, None, ReadOptions(limit=0))


def test_header_without_records_is_empty(tmp_path: Path) -> None:
    refused(tmp_path / "a.csv", "key\n", ": got no records, expected at least one")
    refused(tmp_path / "b.csv", "key\n\n\n", ": got no records, expected at least one")


def test_jsonl_paths_nulls_and_large_integers() -> None:
    options = ReadOptions(columns={"prompt_tokens": "usage.in", "output_tokens": "usage.out"}, time_unit="iso")
    trace = read_trace(FOLDER / "requests.jsonl", None, options)
    assert trace.arrival_seconds.tolist() == [0, 0.25, 1]
    assert trace.key.tolist() == [0, 1, 1]
    assert trace.output_tokens is not None
    assert trace.output_tokens.tolist() == [2, 4, 4]
    assert trace.ttl_seconds is not None
    np.testing.assert_array_equal(trace.ttl_seconds, np.float32([NAN, 30, NAN]))


def test_jsonl_refuses_mixed_types(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    message = ", line 2, key: got 7, expected a string, as in the first record"
    refused(path, '{"key": "7"}\n{"key": 7}\n', message)
    message = ", line 3, key: got '7', expected an integer, as in the first record"
    refused(path, '{"key": 7}\n\n{"key": "7"}\n', message)
    refused(path, '{"key": 7.0}\n', ", line 1, key: got 7.0, expected a string or an integer")
    refused(path, '{"key": true}\n', ", line 1, key: got True, expected a string or an integer")
    refused(path, '{"key": 1, "size": 2.5}\n', ", line 1, size: got 2.5, expected an integer")
    refused(path, '{"key": 1, "size": 2}\n{"key": 1}\n', ", line 2, size: got None, expected an integer")
    refused(path, '{"key": 1, "ttl": "1h"}\n', ", line 1, ttl: got '1h', expected a number")
    times = ReadOptions(time_unit="iso")
    refused(path, '{"key": 1, "time": "noon"}\n', ", line 1, time: got 'noon', expected an ISO 8601 time", times)


def test_parquet_folder_in_order_of_names(tmp_path: Path) -> None:
    for number, times in enumerate(([0.0, 1.0], [2.5])):
        part = tmp_path / "log" / f"day={number}" / "part.parquet"
        part.parent.mkdir(parents=True)
        pq.write_table(pa.table({"time": times, "key": ["a"] * len(times)}), part)
    trace = read_trace(tmp_path / "log")
    assert trace.arrival_seconds.tolist() == [0, 1, 2.5]
    assert trace.num_keys == 1
    (tmp_path / "none").mkdir()
    with pytest.raises(InputError, match=r"without \.parquet files"):
        read_trace(tmp_path / "none")


def test_parquet_refuses_bad_columns(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"

    def refused_table(table: dict[str, object], message: str) -> None:
        pq.write_table(pa.table(table), path)
        with pytest.raises(InputError) as caught:
            read_trace(path, None, KEY_ONLY)
        assert str(caught.value) == f"{path}, record {message}"

    refused_table({"key": [1.5]}, "1, key: got 1.5, expected strings, bytes or integers as keys, not double")
    refused_table({"key": ["a", None]}, "2, key: got None, expected a string, bytes or an integer")
    refused_table({"key": ["a"], "size": [0.5]}, "1, size: got 0.5, expected integers, not double")
    refused_table(
        {"key": ["a"], "operation": ["look"]},
        f"1, operation: got 'look', expected one of {', '.join(GENERIC)}",
    )
    refused_table(
        {"key": ["a"], "time": ["noon"]},
        "1, time: got 'noon', expected a timestamp or a number with a unit of s, ms, us or ns, not string",
    )


def test_damaged_parquet_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(b"PAR1 but not for long")
    with pytest.raises(InputError, match=r"a\.parquet: got a damaged Parquet file"):
        read_trace(path)


def test_keys_of_one_type_in_all_parts(tmp_path: Path) -> None:
    for number, keys in enumerate(([1, 2], ["a"])):
        pq.write_table(pa.table({"key": keys}), tmp_path / f"{number}.parquet")
    with pytest.raises(InputError, match=r"1\.parquet, record 1, key: got 'a', expected keys of one type, int64"):
        read_trace(tmp_path, None, KEY_ONLY)


def test_sort_moves_every_column_together(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("time,key,size,ttl,operation\n5,b,2,7,set\n3,a,1,,get\n5,a,1,,get\n0,c,3,,get\n")
    trace = read_trace(path, None, ReadOptions(sort=True))
    # Order of time: c at 0, a at 3, b at 5, a at 5 (ties keep the order of the file).
    assert trace.arrival_seconds.tolist() == [0, 3, 5, 5]
    assert trace.key.tolist() == [0, 1, 2, 1]
    assert trace.size_bytes.tolist() == [3, 1, 2, 1]
    assert trace.ttl_seconds is not None
    np.testing.assert_array_equal(trace.ttl_seconds, np.float32([NAN, NAN, 7, NAN]))
    assert trace.operation is not None
    assert trace.operation.tolist() == [0, 0, 1, 0]


def test_sort_moves_block_chains(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    rows = [(9, [1, 2, 3]), (5, []), (7, [4]), (5, [5, 6])]
    path.write_text(
        "".join(
            f'{{"timestamp": {time}, "input_length": 9, "output_length": 1, "hash_ids": {ids}}}\n' for time, ids in rows
        )
    )
    trace = read_trace(path, "mooncake", ReadOptions(sort=True, time_unit="s"))
    assert trace.block_offsets is not None
    assert trace.block_hashes is not None
    assert trace.arrival_seconds.tolist() == [0, 0, 2, 4]
    assert trace.block_offsets.tolist() == [0, 0, 2, 3, 6]
    assert trace.block_hashes.tolist() == [5, 6, 4, 1, 2, 3]
