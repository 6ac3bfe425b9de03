"""The samples that the reader contract runs on: one per shape of file, small enough to check by hand."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from traces.access.record import AccessRecord
from traces.access.secret import key_hash
from traces.access.table import table_of
from traces.reader import ReadOptions

FOLDER = Path(__file__).parent / "samples"

CSV_COLUMNS = {
    "time": "ts",
    "key": "prompt_hash",
    "namespace": "tenant",
    "size": "bytes",
    "prompt_tokens": "in_tokens",
    "output_tokens": "out_tokens",
    "ttl": "ttl_s",
    "operation": "verb",
}
ORACLE_RECORDS = [(10, 2**64 - 1, 100, 2), (10, 5, 200, -1), (12, 2**64 - 1, 100, -1), (15, 6, 0, -1)]


@dataclass(frozen=True)
class Sample:
    """A valid file and what is known about it.

    step_back: turns the content into one whose last record is earlier than the first, None for an order-only
    format. step_back_place: how the error names that record.
    """

    name: str
    format_name: str
    requests: int
    content: bytes
    options: ReadOptions = field(default_factory=ReadOptions)
    step_back: Callable[[bytes], bytes] | None = None
    step_back_place: str = ""
    compressible: bool = True

    def __str__(self) -> str:
        return self.name


def _file(name: str) -> bytes:
    return (FOLDER / name).read_bytes()


def _replaced(old: str, new: str) -> Callable[[bytes], bytes]:
    def change(content: bytes) -> bytes:
        assert content.count(old.encode()) == 1
        return content.replace(old.encode(), new.encode())

    return change


def oracle_bytes(records: list[tuple[int, int, int, int]]) -> bytes:
    return b"".join(struct.pack("<IQIq", *record) for record in records)


def parquet_bytes(times: list[int]) -> bytes:
    sink = pa.BufferOutputStream()
    table = pa.table(
        {
            "when": pa.array(times, pa.timestamp("ms", "UTC")),
            "id": pa.array([b"x", b"y", b"x"]).dictionary_encode(),
            "bytes": pa.array([10, 20, 10], pa.int16()),
            "life": pa.array([None, 5, None], pa.int32()),
        }
    )
    pq.write_table(table, sink)
    return bytes(sink.getvalue().to_pybytes())


def access_log_bytes() -> bytes:
    """Four requests in the order of their ends, which is not that of their arrivals; the second went past the cache."""
    records = [
        AccessRecord(1_700_000_001.5, b"b", "default", "default", "memory", 200, 20, 7, 3),
        AccessRecord(1_700_000_001.75, None, "default", "default", "bypass", 200),
        AccessRecord(1_700_000_000.25, b"a", "default", "default", "miss", 200, 10, 5, 2, 1.5),
        AccessRecord(1_700_000_002.0, b"a", "acme", "shop", "miss", 200, 10, 5, 2, 1.5, ttl_seconds=60.0),
    ]
    sink = pa.BufferOutputStream()
    pq.write_table(table_of(records, key_hash(b"a secret of a sample")), sink)
    return bytes(sink.getvalue().to_pybytes())


_PARQUET_OPTIONS = ReadOptions(columns={"time": "when", "key": "id", "size": "bytes", "ttl": "life"})
_AZURE_LAST, _AZURE_EARLY = "18:15:52.9921190", "18:15:00.9921190"

SAMPLES = [
    Sample(
        "mooncake.jsonl",
        "mooncake",
        6,
        _file("mooncake.jsonl"),
        step_back=_replaced('"timestamp": 0, "input_length": 4834', '"timestamp": -1, "input_length": 4834'),
        step_back_place="line 6, timestamp",
    ),
    Sample(
        "qwen_traceX_blksz_16.jsonl",
        "mooncake",
        4,
        _file("qwen_traceX_blksz_16.jsonl"),
        step_back=_replaced('"timestamp": 61.5, "input_length": 5,', '"timestamp": 0, "input_length": 5,'),
        step_back_place="line 4, timestamp",
    ),
    Sample(
        "agent_sessions.jsonl",
        "agent_sessions",
        8,
        _file("agent_sessions.jsonl"),
        ReadOptions(sessions_per_day=1440),
    ),
    Sample(
        "twitter_published.csv",
        "twitter",
        6,
        _file("twitter_published.csv"),
        step_back=_replaced("5,nz:u:9kQ", "-1,nz:u:9kQ"),
        step_back_place="line 6, timestamp",
    ),
    Sample(
        "twitter_libcachesim.csv",
        "twitter",
        4,
        _file("twitter_libcachesim.csv"),
        step_back=_replaced("4, 130", "-4, 130"),
        step_back_place="line 5, time",
    ),
    Sample(
        "twitter_short.csv",
        "twitter",
        8,
        _file("twitter_short.csv"),
        step_back=lambda content: content.rstrip(b"\n")[: -len("1,840,53")] + b"0,840,53",
        step_back_place="line 9, t_s",
    ),
    Sample(
        "azure.csv",
        "azure",
        6,
        _file("azure.csv"),
        step_back=_replaced(_AZURE_LAST, _AZURE_EARLY),
        step_back_place="line 7, TIMESTAMP",
    ),
    Sample(
        "cachelib.csv",
        "cachelib",
        15,
        _file("cachelib.csv"),
        step_back=_replaced("604038476", "604038470"),
        step_back_place="line 10, op_time",
    ),
    Sample(
        "trace.oracleGeneral.bin",
        "oracle_general",
        4,
        oracle_bytes(ORACLE_RECORDS),
        step_back=lambda content: content[: 3 * 24] + oracle_bytes([(9, 6, 0, -1)]),
        step_back_place="record 4, time",
    ),
    Sample("order.keys", "keys", 6, _file("order.keys"), ReadOptions(requests_per_second=2)),
    Sample(
        "requests.csv",
        "csv",
        5,
        _file("requests.csv"),
        ReadOptions(columns=CSV_COLUMNS, time_unit="ms"),
        step_back=_replaced("1700000003000", "1600000003000"),
        step_back_place="line 8, ts",
    ),
    Sample(
        "requests.jsonl",
        "jsonl",
        3,
        _file("requests.jsonl"),
        ReadOptions(columns={"prompt_tokens": "usage.in", "output_tokens": "usage.out"}, time_unit="iso"),
        step_back=_replaced("09:00:01+01:00", "08:59:59+01:00"),
        step_back_place="line 4, time",
    ),
    Sample(
        "openai.jsonl",
        "openai_log",
        4,
        _file("openai.jsonl"),
        step_back=_replaced("1767600004", "1767500004"),
        step_back_place="line 4, created",
    ),
    Sample("access.parquet", "access_log", 3, access_log_bytes(), compressible=False),
    Sample(
        "requests.parquet",
        "parquet",
        3,
        _file("requests.parquet"),
        _PARQUET_OPTIONS,
        step_back=lambda content: parquet_bytes([1_700_000_000_000, 1_700_000_000_250, 1_600_000_001_000]),
        step_back_place="record 3, when",
        compressible=False,
    ),
]
