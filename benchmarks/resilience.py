"""What goes wrong in front of a backend, with and without guards: failed requests, P99, and calls of the backend."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from benchmarks.harness import Benchmark, Cell, Goal, Report, Table, at_least, at_most, main, say
from benchmarks.http_load import each_once, saturate
from benchmarks.redis_process import redis_binary, redis_version
from benchmarks.resilience_hot_key import ALONE, EARLY, ONE_CALL, PER_SECOND, TTL_SECONDS, Expiry, expiries
from benchmarks.resilience_troubles import STALE, TROUBLES, Outcomes, tried
from benchmarks.resilience_world import (
    ANSWER_SECONDS,
    DEADLINE_SECONDS,
    GUARDED,
    PLAIN,
    SLOTS,
    World,
    question,
    world,
)
from benchmarks.stack_parts import space
from benchmarks.stack_traffic import key_of
from caches.tiers.disk import DiskTier
from caches.tiers.memory import MemoryTier
from caches.tiers.redis_connection import connect
from caches.tiers.redis_index import RedisIndexTier

ROUNDS, SECONDS, KEYS, LOOKUPS = 3, 10.0, 1_500, 3_000
BLOOM_BITS, BLOOM_HASHES = 1 << 24, 7


def measure(quick: bool) -> Report:
    binary = redis_binary()
    if binary is None:
        sys.exit("benchmarks/resilience.py needs redis-server on the PATH")
    rounds, seconds, keys = (1, 1.5, 40) if quick else (ROUNDS, SECONDS, KEYS)
    found = tried(rounds, seconds, keys)
    with tempfile.TemporaryDirectory() as folder, world(Path(folder), "", STALE) as here:
        upstream, redis = f"http://127.0.0.1:{here.upstream_port}", f"redis://127.0.0.1:{here.redis_port}/0"
        hot = expiries(upstream, redis, rounds, max(seconds, 1.5 * TTL_SECONDS))
        absent = asyncio.run(_absent(Path(folder), redis, 100 if quick else LOOKUPS))
        speeds = _hits(here, rounds, min(seconds, 3.0))
    return Report(
        [
            f"An emulated backend of {SLOTS} slots that takes {ANSWER_SECONDS:g} s for an answer, so "
            f"{SLOTS / ANSWER_SECONDS:.0f} a second; Redis {redis_version(binary)}; gateways with a deadline of "
            f"{DEADLINE_SECONDS:g} s, one without `[resilience]` and one with, in turn; all of them processes of this "
            "machine. The settings are in benchmarks/resilience_troubles.py.",
            f"{rounds} rounds of {seconds:g} s each, new questions in each round, asked once before it. The trouble "
            "lasts from a fifth of the run to four fifths. Figures are medians over rounds, with least and most.",
            "Failed: a status 429 or from 500 on. P99: of all responses, failed or not, from when a request was due. "
            "Instead: answered by what was stale or by the smaller model.",
        ],
        [_troubles_table(found), _hot_table(hot), _absent_table(absent), _speed_table(speeds)],
        _goals(found, hot, speeds),
    )


def _troubles_table(found: Outcomes) -> Table:
    rows: list[list[Cell]] = []
    for trouble in TROUBLES:
        for name in (PLAIN, GUARDED):
            runs = found[trouble.name][name]
            rows.append(
                [
                    f"{trouble.name}: {trouble.what}" if name == PLAIN else "",
                    name,
                    _spread([100.0 * one.failed for one in runs]),
                    _spread([one.p99_seconds for one in runs]),
                    _spread([one.calls for one in runs]),
                    _spread([100.0 * one.instead for one in runs]),
                ]
            )
    rates = "; ".join(f"{one.name}: {one.keys} keys, {one.per_second:g} requests/s" for one in TROUBLES)
    header = ("trouble", "guards", "failed, %", "P99, s", "backend calls for 1,000 requests", "instead, %")
    return Table("Troubles", header, rows, f"{rates}.")


def _hot_table(hot: dict[str, list[Expiry]]) -> Table:
    rows: list[list[Cell]] = [
        [name, _spread([one.p99_seconds for one in runs]), _spread([float(one.calls) for one in runs])]
        for name, runs in hot.items()
    ]
    note = f"{PER_SECOND:g} requests/s for one key, whose lifetime is {TTL_SECONDS:g} s, in this process over Redis."
    return Table("A hot key whose lifetime ends", ("misses", "P99, s", "backend calls"), rows, note)


def _absent_table(absent: dict[str, float]) -> Table:
    rows: list[list[Cell]] = [
        [what, microseconds, 100.0 * microseconds / (1e6 * ANSWER_SECONDS)] for what, microseconds in absent.items()
    ]
    note = (
        f"Medians. The last column: of the {1000.0 * ANSWER_SECONDS:.0f} ms that the miss costs then; a filter in "
        "front of the tier could save no more."
    )
    return Table("To look for a key that is not there", ("where", "us", "of a miss, %"), rows, note)


def _speed_table(speeds: dict[str, list[float]]) -> Table:
    rows: list[list[Cell]] = [[name, _spread(runs)] for name, runs in speeds.items()]
    return Table("A hit in memory", ("guards", "processor time, us"), rows)


def _goals(found: Outcomes, hot: dict[str, list[Expiry]], speeds: dict[str, list[float]]) -> list[Goal]:
    goals = [
        at_most(f"{name}: failed with guards", 0.5, 100.0 * _median([one.failed for one in found[name][GUARDED]]), "%")
        for name in ("flush", "slow", "killed", "hangs")
    ]
    flood = found["absent keys"]
    share = _median([one.calls for one in flood[GUARDED]]) / _median([one.calls for one in flood[PLAIN]])
    goals.append(at_most("absent keys: backend calls with guards", 10.0, 100.0 * share, "% of those without"))
    ratio = _median([float(one.calls) for one in hot[ALONE]]) / _median([float(one.calls) for one in hot[ONE_CALL]])
    goals.append(at_least("hot key: calls saved by making one for all", 5.0, ratio, "x"))
    early = _median([one.p99_seconds for one in hot[EARLY]]) / _median([one.p99_seconds for one in hot[ONE_CALL]])
    goals.append(at_most("hot key: P99 where it is renewed early", 0.5, early, "of that with one call"))
    same = statistics.median(a / b for a, b in zip(speeds[GUARDED], speeds[PLAIN], strict=True))
    goals.append(at_most("processor time of a hit in memory with guards", 1.03, same, "of that without"))
    return goals


async def _absent(folder: Path, redis_url: str, lookups: int) -> dict[str, float]:
    """Microseconds of a lookup by place."""
    tiers = {
        "memory": MemoryTier(space(1 << 28)),
        "disk": DiskTier(folder / "cache.sqlite", space(1 << 28)),
        "Redis": RedisIndexTier(connect(redis_url, 5.0), space(1 << 28)),
    }
    keys, bits = [key_of(f"absent {number}") for number in range(lookups)], bytearray(BLOOM_BITS // 8)
    found: dict[str, float] = {}
    for name, tier in tiers.items():
        say(f"absent keys in {name}")

        async def look(place: int, tier: MemoryTier | DiskTier | RedisIndexTier = tier) -> object:
            return await tier.lookup(keys[place], time.time())

        found[name] = await _microseconds(look, lookups)
        await tier.close()

    async def bloom(place: int) -> object:
        return _maybe(bits, keys[place].id)

    found["a Bloom filter, in Python"] = await _microseconds(bloom, lookups)
    return found


def _maybe(bits: bytearray, name: bytes) -> bool:
    """Whether a name may be among those that were put in: 7 bits of 16 million, by double hashing."""
    digest = hashlib.blake2b(name, digest_size=16).digest()
    first, step = int.from_bytes(digest[:8]), int.from_bytes(digest[8:]) | 1
    places = [(first + number * step) % BLOOM_BITS for number in range(BLOOM_HASHES)]
    return sum(bits[place >> 3] >> (place & 7) & 1 for place in places) == BLOOM_HASHES


async def _microseconds(work: Callable[[int], Awaitable[object]], number: int) -> float:
    taken = []
    for place in range(number):
        began = time.perf_counter()
        await work(place)
        taken.append(time.perf_counter() - began)
    return 1e6 * statistics.median(taken)


def _hits(here: World, rounds: int, seconds: float) -> dict[str, list[float]]:
    """Processor time of a hit in microseconds, by whether there are guards, in turn."""
    asks, found = [question(f"hit {number}") for number in range(20)], dict[str, list[float]]()
    for number in range(rounds):
        for name in (PLAIN, GUARDED):
            say(f"hits in memory, round {number + 1} of {rounds}, {name}")
            gateway = here.gateways[name]
            each_once(gateway.port, asks)
            before = gateway.cpu_seconds()
            load = saturate(gateway.port, itertools.cycle(asks), 16, seconds)
            used = gateway.cpu_seconds() - before
            found.setdefault(name, []).append(1e6 * used / len(load.latencies_seconds))
    return found


def _median(values: Sequence[float]) -> float:
    return float(statistics.median(values))


def _spread(values: Sequence[float]) -> str:
    middle = _median(values)
    digits = 0 if middle >= 100 else 1 if middle >= 10 else 2
    return f"{middle:,.{digits}f} [{min(values):,.{digits}f}, {max(values):,.{digits}f}]"


if __name__ == "__main__":
    main(
        Benchmark(
            "resilience",
            "Resilience: troubles with and without guards",
            ("fastapi", "httpx", "redis", "uvicorn"),
            measure,
        )
    )
