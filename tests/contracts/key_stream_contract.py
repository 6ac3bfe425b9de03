"""One contract for every source of the key stream: what was recorded is handed out once, in order, by time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tests.traces.access_records import BEGIN, SECRET, bypass, cached
from traces.access.record import AccessRecord
from traces.access.secret import key_hash
from tuner.keys.stream import ID_BYTES, KeyStream

Record = Callable[[Sequence[AccessRecord]], None]  # makes the source show these, beside those before

RECORDS = [
    cached(0.5, "a", "miss", ttl_seconds=60.0),
    bypass(0.6),
    cached(2.25, "b", prompt_tokens=None, size_bytes=300, arm="treatment"),
    cached(1.0, "a", arm="control"),
    cached(1.5, "c", size_bytes=None),
    cached(2.25, "c", output_tokens=None, ttl_seconds=0.0),
    cached(9.0, "d"),
]


def id_of(key: str) -> int:
    return int.from_bytes(key_hash(SECRET)(key.encode())[:ID_BYTES], "big")


class KeyStreamContract:
    """Subclass it in a test module, with a fixture `source` that gives an empty source and what records into it."""

    def test_requests_come_in_order_with_all_that_is_known(self, source: tuple[KeyStream, Record]) -> None:
        stream, record = source
        record(RECORDS)
        taken = stream.take(BEGIN + 5.0)
        requests = taken.requests
        assert requests.id.tolist() == [id_of(key) for key in "aabc"]
        assert (requests.time - BEGIN).round(6).tolist() == [0.5, 1.0, 2.25, 2.25]
        assert requests.size.tolist() == [100, 100, 300, 100]
        assert requests.prompt.tolist() == [10, 10, 0, 10]
        assert requests.output.tolist() == [5, 5, 5, 0]
        np.testing.assert_array_equal(requests.ttl, np.array([60.0, np.nan, np.nan, 1e-6], np.float32))
        assert requests.treatment.tolist() == [False, False, True, False]
        assert taken.notes == ()

    def test_what_is_later_comes_later_and_nothing_comes_twice(self, source: tuple[KeyStream, Record]) -> None:
        stream, record = source
        assert len(stream.take(BEGIN).requests) == 0
        record(RECORDS[:4])
        assert len(stream.take(BEGIN + 1.0).requests) == 1
        record(RECORDS[4:])
        record([cached(0.1, "late")])
        assert stream.take(BEGIN + 5.0).requests.id.tolist() == [id_of(key) for key in ("late", *"abc")]
        assert len(stream.take(BEGIN + 9.0).requests) == 0
        assert stream.take(BEGIN + 20.0).requests.id.tolist() == [id_of("d")]

    def test_all_keys_are_handed_out(self, source: tuple[KeyStream, Record]) -> None:
        stream, record = source
        keys = [f"key {number % 40}" for number in range(120)]
        record([cached(float(number), key) for number, key in enumerate(keys)])
        taken = stream.take(BEGIN + 200.0)
        assert taken.requests.id.tolist() == [id_of(key) for key in keys]
