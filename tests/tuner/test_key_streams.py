"""The key stream out of this process, a folder and a Redis stream."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow.parquet as pq
import pytest
from redis import Redis

from tests.contracts.key_stream_contract import RECORDS, KeyStreamContract, Record, id_of
from tests.servers import free_port, patient
from tests.traces.access_records import BEGIN, SECRET, cached
from traces.access.log import AccessLog
from traces.access.parquet_log import ParquetAccessLog
from traces.access.record import AccessRecord
from traces.access.secret import key_hash
from traces.access.stream_log import RedisStreamAccessLog, StreamPlace, entry_of
from tuner.keys import redis_stream as key_stream_redis
from tuner.keys.in_process import InProcessKeys
from tuner.keys.parquet_files import ParquetKeys
from tuner.keys.redis_stream import RedisKeys
from tuner.keys.stream import KeyStream, KeysUnavailable

PATIENCE_SECONDS = 15.0
FAR = 4e9


class TestInProcessKeys(KeyStreamContract):
    @pytest.fixture
    def source(self) -> tuple[KeyStream, Record]:
        keys = InProcessKeys(SECRET)

        def record(records: Sequence[AccessRecord]) -> None:
            for one in records:
                keys.add(one)

        return keys, record

    def test_what_finds_no_room_is_counted_and_said_once(self) -> None:
        keys = InProcessKeys(SECRET, most_waiting=3)
        for number in range(5):
            keys.add(cached(float(number), "k"))
        taken = keys.take(BEGIN + 100.0)
        assert len(taken.requests) == 3
        assert keys.dropped == 2
        assert taken.notes == ("2 requests were not seen: more than 3 waited.",)
        keys.add(cached(6.0, "k"))
        taken = keys.take(BEGIN + 100.0)
        assert (len(taken.requests), taken.notes) == (1, ())


def write(folder: Path, records: Sequence[AccessRecord], now_seconds: float = BEGIN) -> None:
    log = ParquetAccessLog(folder, secret=SECRET)
    log.write(records, now_seconds)
    log.close()


class TestParquetKeys(KeyStreamContract):
    @pytest.fixture
    def source(self, tmp_path: Path) -> tuple[KeyStream, Record]:
        return ParquetKeys(tmp_path, BEGIN), lambda records: write(tmp_path, records)

    def test_files_outside_of_what_is_asked_for_are_not_opened(self, tmp_path: Path) -> None:
        """Of one file only the latter half is wanted; that of a day before and that of a day after are no files."""
        write(tmp_path, RECORDS)
        for day in (13, 15):
            (tmp_path / f"access-202311{day}T120000Z-0123abcd-000001.parquet").write_bytes(b"nothing")
        keys = ParquetKeys(tmp_path, BEGIN + 2.0)
        assert keys.take(BEGIN + 5.0).requests.id.tolist() == [id_of("b"), id_of("c")]
        taken = keys.take(BEGIN + 200_000.0)
        assert taken.requests.id.tolist() == [id_of("d")]
        assert len(taken.notes) == 1
        assert taken.notes[0].startswith("access-20231115T120000Z-0123abcd-000001.parquet cannot be read:")
        assert keys.take(BEGIN + 300_000.0).notes == ()

    def test_a_folder_that_is_away_loses_nothing(self, tmp_path: Path) -> None:
        folder = tmp_path / "log"
        keys = ParquetKeys(folder, BEGIN)
        with pytest.raises(KeysUnavailable, match="No such file"):
            keys.take(BEGIN + 5.0)
        write(folder, RECORDS)
        assert len(keys.take(BEGIN + 5.0).requests) == 4

    def test_a_log_from_before_there_were_arms_is_the_control_arms(self, tmp_path: Path) -> None:
        write(tmp_path, RECORDS)
        (path,) = tmp_path.glob("*.parquet")
        table = pq.read_table(path)
        pq.write_table(table.drop_columns("arm"), path)
        assert ParquetKeys(tmp_path, BEGIN).take(BEGIN + 5.0).requests.treatment.tolist() == [False] * 4

    def test_it_is_as_late_as_its_files(self, tmp_path: Path) -> None:
        assert ParquetKeys(tmp_path, BEGIN, 600.0).delay_seconds == 660.0


@pytest.fixture
def far(monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries are named by the server's clock, which is years later than the requests of these tests."""
    monkeypatch.setattr(key_stream_redis, "AHEAD_SECONDS", FAR)


@pytest.fixture
def place(redis_server: str) -> Iterator[StreamPlace]:
    stream = f"keys-{uuid4()}"
    yield StreamPlace(redis_server, stream)
    with Redis.from_url(redis_server) as redis:
        redis.delete(stream)


def add(place: StreamPlace, records: Sequence[AccessRecord], max_length: int | None = None) -> None:
    """As the gateway does it, but trimmed to the entry, and written when they came."""
    with Redis.from_url(place.url) as redis:
        for one in records:
            redis.xadd(place.stream, entry_of(one, key_hash(SECRET)), maxlen=max_length, approximate=False)


def keys_at(place: StreamPlace, since_seconds: float = 0.0) -> RedisKeys:
    return RedisKeys(place, since_seconds, PATIENCE_SECONDS)


def server_seconds(place: StreamPlace) -> float:
    """Later than all that was written, and not later than what will be."""
    time.sleep(0.002)
    with Redis.from_url(place.url) as redis:
        seconds, microseconds = redis.time()
    return float(seconds + microseconds / 1e6)


class TestRedisKeys(KeyStreamContract):
    @pytest.fixture
    def source(
        self, place: StreamPlace, far: None, monkeypatch: pytest.MonkeyPatch
    ) -> Iterator[tuple[KeyStream, Record]]:
        monkeypatch.setattr(key_stream_redis, "PAGE", 7)  # several pages
        keys = keys_at(place)
        yield keys, lambda records: add(place, records)
        keys.close()

    @pytest.mark.usefixtures("far")
    def test_what_was_written_before_the_beginning_is_left_out(self, place: StreamPlace) -> None:
        add(place, RECORDS[:4])
        since = server_seconds(place)
        keys = keys_at(place, since)
        assert len(keys.take(BEGIN + 20.0).requests) == 0
        add(place, RECORDS[4:])
        taken = keys.take(BEGIN + 20.0)
        assert taken.requests.id.tolist() == [id_of("c"), id_of("d")]
        assert taken.notes == ()
        keys.close()

    @pytest.mark.usefixtures("far")
    def test_what_the_stream_lets_go_of_unread_is_said(self, place: StreamPlace) -> None:
        """Ten entries, three of which are kept; later three more, then nine, of which the same many are."""
        keys = keys_at(place)
        add(place, [cached(float(number), "k") for number in range(10)], max_length=3)
        taken = keys.take(BEGIN + 50.0)
        assert len(taken.requests) == 3
        assert taken.notes == ("The key stream does not reach back to where it was to be read from.",)
        add(place, [cached(float(number), "k") for number in range(3)], max_length=3)
        assert keys.take(BEGIN + 50.0).notes == ()
        add(place, [cached(float(number), "k") for number in range(9)], max_length=3)
        assert keys.take(BEGIN + 50.0).notes == (
            "6 requests are missing: the key stream let go of them before they were read.",
        )
        keys.close()

    def test_that_it_does_not_reach_back_is_said_once(self, place: StreamPlace) -> None:
        """However often it is asked before what is there comes to be read."""
        add(place, RECORDS[:3], max_length=2)
        keys = keys_at(place, 1.0)
        assert len(keys.take(100.0).notes) == 1
        assert keys.take(200.0).notes == ()
        keys.close()

    @pytest.mark.usefixtures("far")
    def test_a_stream_that_was_flushed_is_read_from_its_beginning(self, place: StreamPlace) -> None:
        keys = keys_at(place)
        add(place, RECORDS[:3])
        assert len(keys.take(BEGIN + 5.0).requests) == 2
        with Redis.from_url(place.url) as redis:
            redis.delete(place.stream)
        add(place, RECORDS[:1])
        taken = keys.take(BEGIN + 5.0)
        assert len(taken.requests) == 1
        assert taken.notes == ("The key stream begins anew: it ends before what was read of it.",)
        keys.close()

    @pytest.mark.usefixtures("far")
    def test_entries_of_another_kind_are_left_out_and_said(self, place: StreamPlace) -> None:
        with Redis.from_url(place.url) as redis:
            redis.xadd(place.stream, {"time": "soon", "key": "00"})
            redis.xadd(place.stream, {"other": "thing"})
        add(place, RECORDS[:1])
        keys = keys_at(place)
        taken = keys.take(BEGIN + 5.0)
        assert len(taken.requests) == 1
        assert taken.notes == ("2 entries of the key stream are none of an access log.",)
        keys.close()

    def test_reading_stops_where_nothing_older_can_follow(self, place: StreamPlace, monkeypatch: Any) -> None:
        """Entries are named by when they were written: what comes long after need not be read yet."""
        add(place, RECORDS[:1])
        keys = keys_at(place)
        assert len(keys.take(BEGIN + 5.0).requests) == 0
        monkeypatch.setattr(key_stream_redis, "AHEAD_SECONDS", FAR)
        assert len(keys.take(BEGIN + 5.0).requests) == 1
        keys.close()

    def test_a_server_that_is_away_is_said_to_be(self) -> None:
        keys = RedisKeys(StreamPlace(f"redis://127.0.0.1:{free_port()}/0"), 0.0, 0.5)
        with pytest.raises(KeysUnavailable, match="ConnectionError"):
            keys.take(BEGIN)
        keys.close()

    @pytest.mark.usefixtures("far")
    def test_a_reading_that_fails_loses_nothing(self, place: StreamPlace) -> None:
        """Something else is in the stream's place for a while."""
        keys = keys_at(place)
        add(place, RECORDS[:4])
        assert len(keys.take(BEGIN + 5.0).requests) == 3
        with Redis.from_url(place.url) as redis:
            redis.rename(place.stream, f"{place.stream}:aside")
            redis.set(place.stream, "a text")
            with pytest.raises(KeysUnavailable, match="WRONGTYPE"):
                keys.take(BEGIN + 20.0)
            redis.rename(f"{place.stream}:aside", place.stream)
        add(place, RECORDS[4:])
        assert keys.take(BEGIN + 20.0).requests.id.tolist() == [id_of("c"), id_of("d")]
        keys.close()

    @pytest.mark.usefixtures("far")
    def test_a_cluster_keeps_it_too(self, redis_cluster: str) -> None:
        place = StreamPlace(redis_cluster, f"keys-{uuid4()}")
        log = AccessLog(RedisStreamAccessLog(patient(place.url), place.stream, secret=SECRET), every_seconds=0.01)
        log.start()
        for one in RECORDS:
            log.add(one)
        log.close()
        keys = keys_at(place)
        taken = keys.take(BEGIN + 20.0)
        assert taken.requests.treatment.tolist() == [False, False, True, False, False]
        assert taken.notes == ()
        keys.close()
