"""A stretch of traffic through the Redis tier on a real server, and what the shadow cache says of the same.

Redis has a clock of its own: it expires by it, and knows the order of touches to its second. So requests come when they
did in the recording, or so many times as fast, and the shadow is told the times at which each was really asked: where
the machine is late, both see it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from multiprocessing import get_context
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.redis_process import redis_process
from caches.keys.request_key import Partition, RequestKey
from caches.knobs import Knob, KnobSpace
from caches.shadow.cache import ShadowCache, requests_of
from caches.shadow.kernel import HIT
from caches.tiers.redis_connection import connect
from caches.tiers.redis_server import AT_ONCE, RedisServerOptions, RedisServerTier
from caches.tiers.tier import Answer
from traces.trace import Trace

Array = NDArray[Any]
WORKERS = 2
TIMEOUT_SECONDS = 30.0
SPARE_BYTES = 1 << 18
DOCUMENTED_BYTES = RedisServerOptions().entry_overhead_bytes
EMBEDDED = 44  # bytes of a value that Redis keeps in one piece with its object
OBJECT_BYTES = 16
NAME = b"setpoint:entry:"


@dataclass(frozen=True)
class Setting:
    """maxmemory_bytes: of the server. ttl_seconds: of the server's time. speed: times as fast as recorded; None for as
    fast as it goes. samples: `maxmemory-samples`. at_once: lookups in one call of the tier."""

    maxmemory_bytes: int
    ttl_seconds: float
    speed: float | None
    samples: int = RedisServerOptions().samples
    at_once: int = AT_ONCE


@dataclass(frozen=True)
class Replayed:
    """What the server did. asked_seconds, hit: of each request. entries, head_bytes, overhead_bytes: held in the end,
    before each body in its value, and of memory for each entry beside its value. room_bytes: of `maxmemory` for
    entries."""

    setting: Setting
    asked_seconds: Array
    hit: Array
    entries: int
    head_bytes: int
    overhead_bytes: float
    room_bytes: int

    @property
    def hit_ratio(self) -> float:
        return float(self.hit.mean())

    @property
    def seconds(self) -> float:
        return float(self.asked_seconds[-1])


def replay_side_by_side(binary: str, trace: Trace, settings: Sequence[Setting]) -> list[Replayed]:
    """At the same time, each on a server of its own, driven by two processes."""
    parts = [settings[start::WORKERS] for start in range(min(WORKERS, len(settings)))]
    found: list[Replayed] = []
    with ProcessPoolExecutor(WORKERS, get_context("fork")) as pool:
        for part in pool.map(partial(_replay_all, binary, trace), parts):
            found += part
    return sorted(found, key=lambda one: settings.index(one.setting))


def _replay_all(binary: str, trace: Trace, settings: Sequence[Setting]) -> list[Replayed]:
    keys = keys_of(trace.num_keys)

    async def whole() -> list[Replayed]:
        with ExitStack() as servers:
            urls = [servers.enter_context(redis_process(binary)) for _ in settings]
            pairs = zip(urls, settings, strict=True)
            return list(await asyncio.gather(*(_replay(url, trace, keys, setting) for url, setting in pairs)))

    return asyncio.run(whole())


def keys_of(count: int) -> list[RequestKey]:
    digests = [sha256(b"%d" % number).digest() for number in range(count)]
    return [RequestKey(Partition(), digest, digest) for digest in digests]


def batches(key: Array, arrival: Array, at_once: int) -> Iterator[tuple[int, int]]:
    """Stretches of requests that came at the same time and of which no two are equal, so that looking up all before any
    miss is stored finds what one after the other would, but for what the stores of the stretch itself push out."""
    start, seen = 0, set[int]()
    for place, (one, when) in enumerate(zip(key.tolist(), arrival.tolist(), strict=True)):
        if place > start and (one in seen or place - start == at_once or when != arrival[start]):
            yield start, place
            start, seen = place, set()
        seen.add(one)
    if len(key):
        yield start, len(key)


async def _replay(url: str, trace: Trace, keys: Sequence[RequestKey], setting: Setting) -> Replayed:
    connection: Any = connect(url, TIMEOUT_SECONDS)
    options = RedisServerOptions(spare_bytes=SPARE_BYTES, samples=setting.samples)
    tier = RedisServerTier(connection, _space(setting), options=options)
    await tier.begin()
    await tier.store(keys[0], Answer(bytes(int(trace.size_bytes.max())), time.time()), time.time())
    await tier.batch_lookup(keys[: setting.at_once], time.time())  # so that connection and buffers are there
    await tier.delete(keys[0])
    base = (await connection.info("memory"))["used_memory"]
    asked, hit = await _drive(tier, trace, keys, setting)
    held = await _held(connection, trace, keys)
    await tier.close()
    room = setting.maxmemory_bytes - int(base)
    overhead = (held.used_bytes - base) / held.entries - held.mean_value_bytes
    return Replayed(setting, asked, hit, held.entries, held.head_bytes, overhead, room)


async def _drive(
    tier: RedisServerTier, trace: Trace, keys: Sequence[RequestKey], setting: Setting
) -> tuple[Array, Array]:
    """When each request was asked, from the first on, and whether it hit."""
    asked, hit = np.zeros(len(trace)), np.zeros(len(trace), bool)
    key, size, arrival = (column.tolist() for column in (trace.key, trace.size_bytes, trace.arrival_seconds))
    bodies, begun = [bytes(size) for size in range(int(trace.size_bytes.max()) + 1)], time.time()
    for start, stop in batches(trace.key, trace.arrival_seconds, setting.at_once):
        if setting.speed is not None:
            due = begun + (arrival[start] - arrival[0]) / setting.speed
            await asyncio.sleep(max(due - time.time(), 0.0))
        now = time.time()
        asked[start:stop] = now - begun
        found = await tier.batch_lookup([keys[one] for one in key[start:stop]], now)
        for place, one in enumerate(found, start):
            hit[place] = one is not None
            if one is None:
                await tier.store(keys[key[place]], Answer(bodies[size[place]], now), now)
    return asked, hit


@dataclass(frozen=True)
class _Held:
    entries: int
    used_bytes: int
    head_bytes: int
    mean_value_bytes: float


async def _held(connection: Any, trace: Trace, keys: Sequence[RequestKey]) -> _Held:
    """What lies in the server: a scan touches nothing, but removes what has expired, so memory is read before."""
    used, entries = int((await connection.info("memory"))["used_memory"]), int(await connection.dbsize()) - 1
    body = np.zeros(trace.num_keys, np.int64)
    body[trace.key] = trace.size_bytes
    number_of = {NAME + key.id: number for number, key in enumerate(keys)}
    names = [name async for name in connection.scan_iter(match=NAME + b"*", count=1_000)]
    numbers = np.array([number_of[name] for name in names])
    head = int(await connection.strlen(names[-1])) - int(body[numbers[-1]])
    return _Held(entries, used, head, float(value_bytes(head + body[numbers]).mean()))


def _space(setting: Setting) -> KnobSpace:
    """The lifetime's ceiling is the lifetime, so that the server removes what is too old."""
    size, ttl = float(setting.maxmemory_bytes), setting.ttl_seconds
    return KnobSpace(
        Knob("cache_size", "bytes", size, 2.0 * size, size, 1.0, "log"),
        Knob("ttl_seconds", "seconds", 0.5 * ttl, ttl, ttl, 1.0, "log"),
        Knob("warmup_ratio", "share", 0.0, 1.0, 0.0, 1.0, "linear"),
    )


# The shadow's side


def value_bytes(length: Array) -> Array:
    """Memory of values of these lengths: object, header, and the allocator's rounding."""
    alone = OBJECT_BYTES + allocated(length + np.where(length < 256, 4, 6))
    return np.where(length <= EMBEDDED, allocated(OBJECT_BYTES + 4 + length), alone)


def allocated(size: Array) -> Array:
    """As jemalloc rounds up: to 16 bytes, beyond 128 to a quarter of the power of two below."""
    step = 2.0 ** np.maximum(np.ceil(np.log2(np.maximum(size, 1))) - 3, 4)
    return np.asarray(np.ceil(size / step) * step, np.int64)


def shadow_hits(trace: Trace, asked_seconds: Array, entry_bytes: Array, capacity_bytes: int, ttl: float) -> Array:
    """Of each request. entry_bytes: of each request's answer. ttl: in seconds."""
    requests = requests_of(trace.key, asked_seconds, entry_bytes)
    shadow = ShadowCache(requests, trace.num_keys, capacity_bytes, ttl)
    return np.asarray(shadow.run_recording(len(trace)).outcome == HIT)


def shadow_of(replayed: Replayed, trace: Trace) -> Array:
    """Hits with the bytes that entries took in this server."""
    entry_bytes = value_bytes(replayed.head_bytes + trace.size_bytes) + round(replayed.overhead_bytes)
    return _shadow(replayed, trace, entry_bytes)


def documented_shadow_of(replayed: Replayed, trace: Trace) -> Array:
    """Hits with the constant overhead that the tier states."""
    return _shadow(replayed, trace, trace.size_bytes + DOCUMENTED_BYTES)


def _shadow(replayed: Replayed, trace: Trace, entry_bytes: Array) -> Array:
    ttl = replayed.setting.ttl_seconds
    return shadow_hits(trace, replayed.asked_seconds, entry_bytes, replayed.room_bytes, ttl)
