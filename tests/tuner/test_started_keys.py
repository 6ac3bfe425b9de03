"""A daemon that was put together from settings, with a key stream in a real Redis, beside a real gateway."""

from __future__ import annotations

import time
from pathlib import Path
from uuid import uuid4

import pytest
from redis import Redis

from tests.api.gateway.conftest import emulated
from tests.api.gateway.tuned import tuned
from tests.traces.access_records import SECRET
from traces.access.record import AccessRecord
from traces.access.secret import key_hash
from traces.access.stream_log import entry_of
from tuner.config import TunerConfig
from tuner.control import Ticked
from tuner.starting import Started, started

SECONDS = 30.0


@pytest.mark.parametrize("past_intervals", [0, 8])
def test_the_past_of_the_stream_is_known_at_the_first_tick(
    redis_server: str, tmp_path: Path, mlruns: Path, past_intervals: int
) -> None:
    """Requests of the seven intervals before now: they are fed before the first tick, but for the oldest, of which
    nobody knows whether it is whole, and those that began while this was made ready; without a past none is."""
    made, known, stream = None, list[int](), f"asked-{uuid4()}"

    def told(_ticked: Ticked, _seconds: float) -> None:
        assert made is not None
        known.append(seen_by(made))
        made.daemon.stop()

    with emulated() as backend, tuned(backend.address) as front:
        control = {
            "gateway": front.address,
            "ledger": f"sqlite:///{tmp_path / 'setpoint.db'}",
            "interval_seconds": SECONDS,
            "timeout_seconds": 15.0,
        }
        keys = {"stream": f"{redis_server}?stream={stream}", "past_intervals": past_intervals}
        tracking = {"uri": f"sqlite:///{mlruns / 'mlflow.db'}"}
        config = TunerConfig.model_validate({"control": control, "tracking": tracking, "keys": keys})
        write(redis_server, stream, time.time())
        made = started(config, tmp_path, {}, told)
        try:
            made.daemon.run()
        finally:
            made.close()
    with Redis.from_url(redis_server) as redis:
        redis.delete(stream)
    assert len(known) == 1
    assert 4 <= known[0] <= 7 if past_intervals else known == [0]


def write(url: str, stream: str, now: float) -> None:
    """A request for every third second, written when it came."""
    with Redis.from_url(url) as redis:
        for number in range(int(7 * SECONDS / 3.0)):
            arrival = now - 7 * SECONDS + 3.0 * number
            record = AccessRecord(arrival, b"%d" % (number % 5), "default", "default", "miss", 200, 100, 10, 5)
            redis.xadd(stream, entry_of(record, key_hash(SECRET)), id=f"{int(1000 * arrival)}-0")


def seen_by(made: Started) -> int:
    """Intervals of the past in which something was asked for."""
    watch = made.daemon._watch._keys
    assert watch is not None
    return watch._ghosts.past.intervals
