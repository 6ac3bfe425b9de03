"""What each format makes of its sample, number by number."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from caches.errors import BadRecord, InputError
from tests.traces.trace_samples import FOLDER, ORACLE_RECORDS, oracle_bytes
from traces.catalog import read_trace
from traces.modelled import SIZE_FROM_OUTPUT
from traces.reader import ReadOptions
from traces.trace import Operation

READ, WRITE, DELETE = Operation.READ, Operation.WRITE, Operation.DELETE
NAN = float("nan")


def refused(path: Path, content: str | bytes, message: str, options: ReadOptions | None = None) -> None:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(InputError) as caught:
        read_trace(path, None, options)
    assert str(caught.value) == f"{path}{message}"


def test_mooncake() -> None:
    trace = read_trace(FOLDER / "mooncake.jsonl")
    assert trace.info.block_size_tokens == 512
    assert trace.info.assumptions == (SIZE_FROM_OUTPUT,)
    assert trace.prompt_tokens is not None
    assert trace.output_tokens is not None
    assert trace.prompt_tokens.tolist() == [6758, 7322, 7236, 2290, 6760, 4834]
    assert trace.output_tokens.tolist() == [500, 490, 794, 316, 3, 173]
    assert trace.size_bytes.tolist() == [2000, 1960, 3176, 1264, 12, 692]
    assert trace.key.tolist() == [0, 1, 2, 3, 4, 5]
    assert trace.block_offsets is not None
    assert trace.block_hashes is not None
    # ceil(prompt tokens / 512) blocks each: 14, 15, 15, 5, 14, 10.
    assert trace.block_offsets.tolist() == [0, 14, 29, 44, 49, 63, 73]
    assert trace.block_hashes[14:17].tolist() == [0, 14, 15]


def test_qwen_bailian_has_seconds_and_the_block_size_of_its_name(tmp_path: Path) -> None:
    trace = read_trace(FOLDER / "qwen_traceX_blksz_16.jsonl")
    assert trace.info.block_size_tokens == 16
    # Times 0.25, 1, 61.5, 61.5 s; the first two prompts have the same chain.
    assert trace.arrival_seconds.tolist() == [0, 0.75, 61.25, 61.25]
    assert trace.key.tolist() == [0, 0, 1, 2]
    assert trace.block_offsets is not None
    assert trace.block_offsets.tolist() == [0, 3, 6, 11, 11]
    other = tmp_path / "chat_blksz_64.jsonl"
    other.write_bytes((FOLDER / "qwen_traceX_blksz_16.jsonl").read_bytes())
    assert read_trace(other).info.block_size_tokens == 64


def test_mooncake_keys_tell_lengths_and_chains_apart(tmp_path: Path) -> None:
    rows = [(100, [1, 2]), (101, [1, 2]), (100, [1, 3]), (100, [2, 1]), (100, [1, 2])]
    path = tmp_path / "m.jsonl"
    path.write_text(
        "".join(
            f'{{"timestamp": 0, "input_length": {length}, "output_length": 1, "hash_ids": {ids}}}\n'
            for length, ids in rows
        )
    )
    assert read_trace(path).key.tolist() == [0, 1, 2, 3, 0]


def test_mooncake_refuses_what_is_no_chain(tmp_path: Path) -> None:
    head = '{"timestamp": 0, "input_length": 1, "output_length": 1, '
    path = tmp_path / "m.jsonl"
    good = head + '"hash_ids": [1]}\n'
    refused(path, good + head + '"hash_ids": [1.5]}', ", line 2, hash_ids: got [1.5], expected a list of integers")
    refused(path, good + head + '"hash_ids": 7}', ", line 2, hash_ids: got 7, expected a list of integers")
    refused(path, good + head + '"x": 7}', ", line 2, hash_ids: got None, expected a list of integers")
    too_large = ", line 2, hash_ids: got [9223372036854775808], expected integers of at most 63 bits"
    refused(path, good + head + '"hash_ids": [9223372036854775808]}', too_large)
    refused(
        path,
        good.replace('"input_length": 1', '"input_length": "1"'),
        ", line 1, input_length: got '1', expected an integer",
    )
    refused(
        path,
        good.replace('"input_length": 1', '"input_length": -1'),
        ", line 1, input_length: got -1, expected an integer from 0 to 2147483647",
    )
    refused(
        path,
        good.replace('"timestamp": 0', '"timestamp": true'),
        ", line 1, timestamp: got True, expected a number",
    )
    refused(path, good + "[1]\n", ", line 2: got [1], expected a JSON object")


def test_cut_json_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_bytes((FOLDER / "mooncake.jsonl").read_bytes()[:-20])
    with pytest.raises(BadRecord, match=r"m\.jsonl, line 6: got .* expected JSON \(") as caught:
        read_trace(path)
    assert caught.value.line == 6


def test_twitter_as_published() -> None:
    trace = read_trace(FOLDER / "twitter_published.csv")
    assert trace.arrival_seconds.tolist() == [0, 0, 1, 1, 2, 5]
    assert trace.key.tolist() == [0, 1, 0, 2, 1, 1]
    assert trace.size_bytes.tolist() == [22 + 304, 8 + 120, 22 + 304, 8 + 0, 8 + 1, 8 + 120]
    assert trace.ttl_seconds is not None
    np.testing.assert_array_equal(trace.ttl_seconds, np.float32([NAN, 86400, NAN, NAN, 43200, NAN]))
    assert trace.operation is not None
    assert trace.operation.tolist() == [READ, WRITE, READ, DELETE, WRITE, READ]
    assert trace.prompt_tokens is None


def test_twitter_copies_with_headers() -> None:
    libcachesim = read_trace(FOLDER / "twitter_libcachesim.csv")
    # 42 and 0042 are two keys: what looks like a number may be a name.
    assert libcachesim.key.tolist() == [0, 1, 2, 0]
    assert libcachesim.size_bytes.tolist() == [737, 248, 567, 737]
    assert libcachesim.arrival_seconds.tolist() == [0, 0, 3, 4]
    short = read_trace(FOLDER / "twitter_short.csv")
    assert short.key.tolist() == [0, 1, 2, 3, 4, 5, 6, 3]
    assert short.size_bytes.tolist() == [290, 503, 54, 53, 54, 231, 54, 53]
    assert short.operation is None


def test_twitter_refuses_bad_records(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    good = "0,k,1,10,1,get,0\n"
    known = "get, gets, set, add, replace, cas, append, prepend, incr, decr, delete"
    refused(path, good + "0,k,1,10,1,got,0\n", f", line 2, operation: got 'got', expected one of {known}")
    refused(path, good + "0,k,1,ten,1,get,0\n", ", line 2, value_size: got 'ten', expected an integer")
    refused(path, good + "0,k,1,10,1,set,-5\n", ", line 2, ttl: got -5.0, expected a finite number above 0")
    refused(path, good + "nan,k,1,10,1,get,0\n", ", line 2, timestamp: got nan, expected a finite time")
    refused(path, good + "0,,1,10,1,get,0\n", ", line 2, key: got '', expected a value")
    cells = "7 cells (timestamp, key, key_size, value_size, client_id, operation, ttl)"
    refused(path, good * 3 + "0,k,1,10\n" + good, f", line 4: got '0,k,1,10', expected {cells}")
    refused(
        path,
        good.encode() + b"0,\xff,1,1,1,get,0\n",
        ", line 2: got b'0,\\xff,1,1,1,get,0', expected UTF-8 text",
    )
    too_large = ", line 2, key_size + value_size: got 2147483648, expected an integer from 0 to 2147483647"
    refused(path, good + "0,k,1,2147483647,1,get,0\n", too_large)
    refused(path, good + "0,k,-9,1,1,get,0\n", too_large.replace("2147483648", "-8"))


def test_oracle_general(tmp_path: Path) -> None:
    path = tmp_path / "x.oracleGeneral"
    path.write_bytes(oracle_bytes(ORACLE_RECORDS))
    trace = read_trace(path)
    assert trace.arrival_seconds.tolist() == [0, 0, 2, 5]
    assert trace.key.tolist() == [0, 1, 0, 2]
    assert trace.size_bytes.tolist() == [100, 200, 100, 0]
    message = ": the record at offset 96 has 23 bytes, expected 24"
    refused(path, oracle_bytes(ORACLE_RECORDS) + b"x" * 23, message)
    size = ", record 2, size: got 4294967295, expected an integer from 0 to 2147483647"
    refused(path, oracle_bytes([(0, 1, 1, -1), (0, 1, 2**32 - 1, -1)]), size)


def test_azure() -> None:
    trace = read_trace(FOLDER / "azure.csv")
    # 18:15:46.6805900 to :50.9951690 is 4.314579 s; the 100 ns digits survive.
    assert trace.arrival_seconds.tolist() == [0, 4.314579, 4.541877, 4.710427, 5.892655, 6.311529]
    # 2023-11-16 18:15:46 UTC
    assert trace.info.start_unix_seconds == pytest.approx(1_700_158_546.68059, abs=1e-6)
    assert trace.num_keys == 6
    assert trace.size_bytes.tolist() == [176, 436, 220, 64, 64, 336]
    assert len(trace.info.assumptions) == 2


def test_cachelib_rows_expand() -> None:
    trace = read_trace(FOLDER / "cachelib.csv")
    # op_count 1, 3, 1, 3, 2, 1, 1, 1, 2
    assert trace.key.tolist() == [0, 1, 1, 1, 1, 2, 2, 2, 2, 2, 3, 4, 5, 6, 6]
    assert trace.size_bytes.tolist() == [135] + [24] * 4 + [95] * 5 + [132, 133, 148, 65, 65]
    assert trace.arrival_seconds.tolist() == [0] * 10 + [2, 3, 4, 5, 5]
    assert trace.ttl_seconds is not None
    assert trace.ttl_seconds[10:13].tolist() == [7200, 10800, 21600]
    assert np.isnan(trace.ttl_seconds[:10]).all()
    assert trace.operation is not None
    assert trace.operation.tolist() == [READ] * 10 + [WRITE] * 3 + [DELETE] * 2


def test_cachelib_without_times_or_counts(tmp_path: Path) -> None:
    path = tmp_path / "c.csv"
    path.write_text("key,op,size,op_count,key_size\na,GET,5,2,1\nb,SET,6,1,1\n")
    trace = read_trace(path, None, ReadOptions(requests_per_second=4))
    assert trace.arrival_seconds.tolist() == [0, 0.25, 0.5]
    assert trace.size_bytes.tolist() == [6, 6, 7]
    message = ", line 2, op_count: got '0', expected an integer of at least 1"
    refused(path, "key,op,size,op_count,key_size\na,GET,5,0,1\n", message)


def test_keys_are_whole_lines() -> None:
    trace = read_trace(FOLDER / "order.keys", None, ReadOptions(requests_per_second=2))
    # -268435455, 7, 7, 007, "key, with ...", 7
    assert trace.key.tolist() == [0, 1, 1, 2, 3, 1]
    assert trace.arrival_seconds.tolist() == [0, 0.5, 1, 1.5, 2, 2.5]
    assert trace.size_bytes.tolist() == [1] * 6
    assert trace.info.assumptions == (
        "The source has no arrival times: requests are spaced evenly, 2 per second.",
        "The source has no sizes: every response counts as 1, so a capacity is a number of entries.",
    )


def test_recorded_traces_have_the_counts_of_their_readme(shared_traces: Path) -> None:
    spaced = ReadOptions(requests_per_second=1)
    sized = ReadOptions(requests_per_second=1, columns={"key": "key", "size": "size_b"})
    for name, options, requests, keys, span in (
        ("llm/mooncake_conversation.part1.jsonl.gz", None, 6848, None, 2121),
        ("llm/agent_taubench_text.jsonl.gz", None, 471, 183, None),
        ("llm/azure_llm_2023_conv.csv.gz", None, 19_366, 19_366, 3501.721937),
        ("kv/meta_kvcache_sample1.csv", None, 691, 52, 8),
        ("kv/cache2k_web07.keys.zst", spaced, 76_118, 20_484, None),
        ("kv/adaptsize_cdn_sample.csv.zst", sized, 66_987, 36_815, None),
    ):
        trace = read_trace(shared_traces / name, None, options)
        assert len(trace) == requests, name
        assert keys is None or trace.num_keys == keys, name
        assert span is None or trace.span_seconds == span, name


@pytest.mark.slow
def test_twitter_part_1_has_the_counts_of_its_readme(shared_traces: Path) -> None:
    trace = read_trace(shared_traces / "kv" / "twitter_cluster52.part1.csv.zst")
    assert (len(trace), trace.num_keys, trace.span_seconds) == (5_936_997, 595_016, 3175)
    first = np.unique(trace.key, return_index=True)[1]
    assert round(int(trace.size_bytes[first].sum()) / 1e6) == 118
    assert trace.size_bytes.max() == 4985
