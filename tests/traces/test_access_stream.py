"""The access log as a Redis stream, on a real server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from redis import Redis

from caches.errors import InputError
from caches.tiers.redis_connection import connect
from caches.tiers.tier import TierError
from tests.contracts.reader_contract import assert_same_trace
from tests.servers import free_port, patient, redis_running
from tests.traces.access_records import BEGIN, SECRET, bypass, cached
from traces.access import stream_reading
from traces.access.log import AccessLog, NotWritten
from traces.access.parquet_log import ParquetAccessLog
from traces.access.record import AccessRecord
from traces.access.secret import key_hash
from traces.access.stream_log import RedisStreamAccessLog, StreamPlace, stream_place
from traces.access.stream_reading import read_stream
from traces.catalog import load_trace
from traces.reader import ReadOptions


@pytest.fixture
def place(redis_server: str) -> Iterator[StreamPlace]:
    """A stream of this test's own."""
    stream = f"log-{uuid4()}"
    yield StreamPlace(redis_server, stream)
    with Redis.from_url(redis_server) as redis:
        redis.delete(stream, f"{stream}:secret")


@contextmanager
def log_to(place: StreamPlace, max_length: int = 1_000_000, secret: bytes | None = SECRET) -> Iterator[AccessLog]:
    log = AccessLog(RedisStreamAccessLog(patient(place.url), place.stream, max_length, secret), every_seconds=0.01)
    log.start()
    yield log
    log.close()


def test_an_entry_has_what_is_known(place: StreamPlace) -> None:
    with log_to(place) as log:
        log.add(cached(0.25, "k", "miss", compute_seconds=1.5, ttl_seconds=60.0, arm="control"))
        log.add(bypass(1.0))
    with Redis.from_url(place.url, decode_responses=True) as redis:
        (_, miss), (_, past) = redis.xrange(place.stream)
    common = {"tenant": "default", "namespace": "default", "status": "200"}
    numbers = {"size": "100", "prompt_tokens": "10", "output_tokens": "5", "compute_seconds": "1.5", "ttl": "60.0"}
    key = {"key": key_hash(SECRET)(b"k").hex()}
    assert miss == {"time": f"{BEGIN + 0.25:.6f}", "outcome": "miss", **common, **numbers, **key, "arm": "control"}
    assert past == {"time": f"{BEGIN + 1.0:.6f}", "outcome": "bypass", **common}
    assert (log.recorded, log.dropped, log.last_error) == (2, 0, None)


def test_the_trace_is_that_of_a_folder_with_the_same_records(
    place: StreamPlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_reading, "PAGE", 7)  # several pages
    records: list[AccessRecord] = []
    for index in range(100):
        late = cached(index - 3.0 * (index % 5 == 0), f"k{index % 9}", size_bytes=index, similarity=0.5)
        records.append(bypass(index) if index % 11 == 0 else late._replace(namespace=f"n{index % 2}"))
    with log_to(place) as log:
        for one in records:
            log.add(one)
    folder = ParquetAccessLog(tmp_path, secret=SECRET)
    folder.write(records, BEGIN)
    folder.close()
    assert_same_trace(read_stream(place, ReadOptions()), load_trace(tmp_path))
    assert len(read_stream(place, ReadOptions(limit=10))) == 10


async def test_a_cluster_keeps_a_log_too(redis_cluster: str) -> None:
    place = StreamPlace(redis_cluster, f"log-{uuid4()}")
    await asyncio.to_thread(fill_and_read, place)
    connection = patient(redis_cluster)
    assert await connection.delete(place.stream) == await connection.delete(f"{place.stream}:secret") == 1
    await connection.aclose()


def fill_and_read(place: StreamPlace) -> None:
    with log_to(place, secret=None) as log:
        for index in range(20):
            log.add(cached(float(index), f"k{index % 3}"))
    assert (log.dropped, log.last_error) == (0, None)
    assert read_stream(place, ReadOptions()).key.tolist() == [index % 3 for index in range(20)]


def test_the_stream_keeps_its_latest_entries(place: StreamPlace) -> None:
    """About as many as asked for: Redis removes whole nodes, of 100 entries by default."""
    with log_to(place, max_length=500) as log:
        for index in range(2_000):
            log.add(cached(float(index), size_bytes=index))
    trace = read_stream(place, ReadOptions())
    assert 500 <= len(trace) <= 600
    assert trace.size_bytes.tolist() == list(range(2_000 - len(trace), 2_000))


def test_logs_of_one_stream_share_a_secret(place: StreamPlace) -> None:
    for _ in range(2):
        with log_to(place, secret=None) as log:
            log.add(cached(0.0, "same"))
    assert read_stream(place, ReadOptions()).key.tolist() == [0, 0]


def test_records_wait_for_a_server_that_is_away_while_there_is_room() -> None:
    away = connect(f"redis://127.0.0.1:{free_port()}/0", 0.05)
    log = AccessLog(RedisStreamAccessLog(away, "log", secret=SECRET), most_waiting=3, every_seconds=0.001)
    log.start()
    for index in range(5):
        log.add(cached(float(index)))
    assert (log.recorded, log.dropped) == (5, 2)
    log.close()  # what waits now will never be written
    assert (log.recorded, log.dropped) == (5, 5)
    assert log.last_error is not None
    assert "access log" in log.last_error


def test_what_a_server_did_not_take_is_lost_and_counted(tmp_path: Path) -> None:
    with redis_running(tmp_path / "one") as port:
        url = f"redis://127.0.0.1:{port}/0"
        destination = RedisStreamAccessLog(patient(url), "log", secret=SECRET)
        assert destination.ready()
        destination.write([cached(0.0)], BEGIN)
    assert not destination.ready()
    with pytest.raises(NotWritten, match="access log") as caught:
        destination.write([cached(1.0)] * 3, BEGIN)
    assert caught.value.records == 3
    destination.close()


def test_where_a_stream_is() -> None:
    assert stream_place("redis://h:1/2?stream=a:b") == StreamPlace("redis://h:1/2", "a:b")
    assert stream_place("redis://h:1/2") == StreamPlace("redis://h:1/2", "setpoint:access")
    assert stream_place("redis://h:1/2?ssl=1&stream=a").url == "redis://h:1/2?ssl=1"
    with pytest.raises(InputError, match="stream: got no name"):
        stream_place("redis://h:1/2?stream=")
    with pytest.raises(InputError, match="max_length: got 0, expected at least 1"):
        RedisStreamAccessLog(connect("redis://h:1/2"), "a", max_length=0)


def test_what_is_no_access_log_is_bad_input(place: StreamPlace) -> None:
    with pytest.raises(InputError, match="got no records, expected at least one"):
        read_stream(place, ReadOptions())
    with Redis.from_url(place.url) as redis:
        redis.xadd(place.stream, {"temperature": "12"}, id="1-1")
        with pytest.raises(InputError, match=r"entry 1-1: got no namespace, expected an entry of an access log"):
            read_stream(place, ReadOptions())
        redis.delete(place.stream)
        entry = {"time": "now", "tenant": "a", "namespace": "b", "outcome": "miss", "status": "200"}
        redis.xadd(place.stream, {**entry}, id="1-2")
    with pytest.raises(InputError, match=r"entry 1-2, time: got b'now', expected as the gateway writes it"):
        read_stream(place, ReadOptions())


def test_a_server_that_is_away_is_named() -> None:
    with pytest.raises(TierError, match="access log"):
        read_stream(StreamPlace(f"redis://127.0.0.1:{free_port()}/0"), ReadOptions())
