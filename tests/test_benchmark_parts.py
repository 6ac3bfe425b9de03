"""What is pure in the benchmarks of the live cache, beside expectations by hand, brute force or a real server."""

from __future__ import annotations

import asyncio
import itertools

import numpy as np
import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.fidelity_memory import OVERHEAD_BYTES, tier_hits
from benchmarks.fidelity_redis import (
    DOCUMENTED_BYTES,
    Replayed,
    Setting,
    allocated,
    batches,
    documented_shadow_of,
    keys_of,
    shadow_hits,
    shadow_of,
    value_bytes,
)
from benchmarks.stampede import SlowBackend, stampede
from envs.serving import load_profile
from traces.trace import Trace, TraceInfo

ARRIVING = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 1)), max_size=60)


def trace_of(key: list[int], arrival: list[float], size: list[int]) -> Trace:
    """Keys are numbered as they are given."""
    columns = (np.array(arrival, float), np.array(key, np.int32), np.array(size, np.int32))
    return Trace(TraceInfo("by-hand", "by hand"), *columns, max(key) + 1)


def test_a_stretch_ends_where_a_key_comes_back_time_goes_on_or_it_is_full() -> None:
    key, arrival = np.array([1, 2, 1, 3, 4, 5, 6]), np.array([0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0])
    assert list(batches(key, arrival, 32)) == [(0, 2), (2, 5), (5, 7)]
    assert list(batches(key, arrival, 2)) == [(0, 2), (2, 4), (4, 5), (5, 7)]
    assert list(batches(key, arrival, 1)) == [(place, place + 1) for place in range(7)]
    assert list(batches(key[:0], arrival[:0], 32)) == []


@given(requests=ARRIVING, at_once=st.integers(1, 5))
def test_stretches_cover_all_requests_and_none_could_be_longer(requests: list[tuple[int, int]], at_once: int) -> None:
    key = np.array([one for one, _ in requests], np.int32)
    arrival = np.cumsum([wait for _, wait in requests]).astype(float)
    found = list(batches(key, arrival, at_once))
    assert [place for start, stop in found for place in range(start, stop)] == list(range(len(key)))

    def allowed(start: int, stop: int) -> bool:
        equal = len(set(key[start:stop].tolist())) == stop - start
        return equal and stop - start <= at_once and arrival[start] == arrival[stop - 1]

    assert all(allowed(start, stop) for start, stop in found)
    assert not any(allowed(start, stop + 1) for start, stop in found if stop < len(key))


def test_memory_is_rounded_up_as_the_allocator_does() -> None:
    """jemalloc: 16 bytes apart up to 128, then four steps between powers of two."""
    sizes = [1, 16, 17, 128, 129, 160, 161, 256, 257, 320, 1024, 1025, 5000]
    assert allocated(np.array(sizes)).tolist() == [16, 16, 32, 128, 160, 160, 192, 256, 320, 320, 1024, 1280, 5120]
    # 44 bytes lie in one piece of 64 with the object; 45 are 16 bytes of object, and 45 + 4 in 64
    assert value_bytes(np.array([44, 45])).tolist() == [64, 80]


def test_values_take_on_a_server_what_is_said_of_them(own_redis_server: str) -> None:
    """By the server's own account, of which only differences are used: it adds what is beside a value."""
    lengths = np.array([45, 60, 61, 124, 125, 252, 300, 700, 1_100, 5_000])
    with redis.Redis.from_url(own_redis_server) as client:
        client.flushall()
        if client.info("memory")["mem_allocator"].startswith("libc"):
            pytest.skip("the server has another allocator")
        for number, length in enumerate(lengths.tolist()):
            client.set(b"value:%d" % number, bytes(length))
        told = [client.memory_usage(b"value:%d" % number) for number in range(len(lengths))]
        client.flushall()
    said = value_bytes(lengths).tolist()
    assert [one - told[0] for one in told] == [one - said[0] for one in said]


def test_the_shadow_sees_when_each_request_was_asked_and_what_entries_take() -> None:
    """Room for a small and a large one to the byte, or a byte less."""
    trace = trace_of([0, 1, 0, 2, 0], [0.0] * 5, [100, 100, 100, 600, 100])
    # a value: 30 before the body, so 130 + 4 in 160, and 16; 630 + 6 in 640, and 16. Beside it 74.4, so 74.
    asked = np.array([0.0, 1.0, 2.0, 3.0, 4.0])
    small, large = 176 + 74, 656 + 74

    def replayed(room: int, ttl: float) -> Replayed:
        return Replayed(Setting(0, ttl, 1.0), asked, np.zeros(5, bool), 0, 30, 74.4, room)

    assert shadow_of(replayed(small + large, 10.0), trace).tolist() == [False, False, True, False, True]
    assert shadow_of(replayed(small + large - 1, 10.0), trace).tolist() == [False, False, True, False, False]
    assert shadow_of(replayed(small + large, 4.0), trace).tolist() == [False, False, True, False, False]
    documented = 700 + 2 * DOCUMENTED_BYTES
    assert documented_shadow_of(replayed(documented, 10.0), trace)[-1]
    assert not documented_shadow_of(replayed(documented - 1, 10.0), trace)[-1]


TRAFFIC = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 2)), min_size=1, max_size=60)


@given(traffic=TRAFFIC, room=st.floats(0.5, 5.0), ttl=st.sampled_from([1.0, 3.0, 1e6]))
async def test_the_tier_in_memory_hits_where_the_shadow_does(
    traffic: list[tuple[int, int]], room: float, ttl: float
) -> None:
    key = [one for one, _ in traffic]
    arrival = list(itertools.accumulate(float(wait) for _, wait in traffic))
    trace = trace_of(key, arrival, [50 * one for one in key])
    capacity = int(room * OVERHEAD_BYTES)
    found = await tier_hits(trace, keys_of(trace.num_keys), capacity, ttl)
    entry_bytes = trace.size_bytes + OVERHEAD_BYTES
    assert found.tolist() == shadow_hits(trace, trace.arrival_seconds, entry_bytes, capacity, ttl).tolist()


def test_a_stampede_is_one_call_where_it_is_coalesced() -> None:
    """Of 40 clients; four at a time take a hundredth of a second each."""
    profile = load_profile("qwen-7b-a100").model_copy(
        update={"max_sequences": 4, "prefill_tokens_per_second": 1e9, "seconds_per_output_token": 0.01}
    )

    async def whole(coalesced: bool) -> tuple[int, float]:
        backend = SlowBackend(profile, output_tokens=1)
        found = await stampede(backend, 40, coalesced)
        assert found.calls == backend.calls
        return found.calls, found.quantile(1.0)

    calls, longest = asyncio.run(whole(False))
    assert calls == 40
    assert longest >= 10 * 0.01
    assert asyncio.run(whole(True))[0] == 1
