"""The tier on disk: what a lookup takes, alone and while it is written to, and how large the file is."""

from __future__ import annotations

import asyncio
import hashlib
import random
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.harness import Benchmark, Cell, Report, Table, at_most, main, say
from caches.keys.request_key import Partition, RequestKey
from caches.knobs import Knob, KnobSettings, KnobSpace
from caches.tiers import disk_file, disk_reads
from caches.tiers.disk import DiskOptions, DiskTier
from caches.tiers.disk_touches import Touches
from caches.tiers.memory import MemoryTier
from caches.tiers.tier import Answer, Tier

ROOM = 1e12
SPACE = KnobSpace(
    Knob("cache_size", "bytes", 1.0, ROOM, ROOM, 1.0, "log"),
    Knob("ttl_seconds", "seconds", 1.0, 1e6, 1e6, 1.0, "log"),
    Knob("warmup_ratio", "share", 0.0, 1.0, 0.0, 1.0, "linear"),
)
BODY_BYTES, NOW = 2_500, 1e9
OVERHEAD = DiskOptions().entry_overhead_bytes
BUSY = "lookup, disk, while it is stored to and tended all the time"
Sizes = Callable[[random.Random], int]
SIZES: dict[str, Sizes] = {
    "all 200 bytes": lambda _: 200,
    "all 2,100 bytes": lambda _: 2_100,
    "mean 1,000 bytes, exponential": lambda generator: int(generator.expovariate(1 / 1_000)),
    "mean 2,500 bytes, exponential": lambda generator: int(generator.expovariate(1 / 2_500)),
    "mean 8,000 bytes, exponential": lambda generator: int(generator.expovariate(1 / 8_000)),
}


def measure(quick: bool) -> Report:
    entries, lookups = (300, 300) if quick else (20_000, 20_000)
    say("lookups")
    taken = asyncio.run(_times(entries, lookups))
    times = {
        what: [quantile * 1e6 for quantile in statistics.quantiles(seconds, n=100)] for what, seconds in taken.items()
    }
    say("sizes")
    held = 200 if quick else 5_000
    files = [asyncio.run(_file(name, sizes, held)) for name, sizes in SIZES.items()]
    return Report(
        [
            f"{entries:,} entries with bodies of {BODY_BYTES:,} bytes; {lookups:,} lookups one after the other, of "
            "keys at random.",
            f"Sizes: as many entries as {held:,} fit, kept under four times as many different requests, half of them "
            "asked for by Zipf's law; then the log is written back.",
        ],
        [
            Table(
                "Microseconds for each call",
                ("what", "p50", "p99"),
                [[what, of[49], of[98]] for what, of in times.items()],
            ),
            Table("Size of the file", ("bodies", "file / bytes counted", "bytes beside a body"), files),
        ],
        [
            at_most(f"p{percent} of a lookup on disk while it is written to", bound, times[BUSY][percent - 1], "us")
            for percent, bound in ((50, 1_000), (99, 5_000))
        ],
    )


async def _times(entries: int, lookups: int) -> dict[str, list[float]]:
    """Seconds of each call."""
    generator, every = random.Random(1), [_key(number) for number in range(entries)]
    asked = [generator.choice(every) for _ in range(lookups)]
    taken = {}
    with _path() as path:
        disk, memory = DiskTier(path, SPACE), MemoryTier(SPACE)
        await _each(lambda key: memory.store(key, _answer(BODY_BYTES), NOW), every)
        taken["lookup, memory"] = await _looked_up(memory, asked)
        taken["store, disk"] = await _each(lambda key: disk.store(key, _answer(BODY_BYTES), NOW), every)
        taken["read of the file, in no thread of its own"] = _read(path, asked)
        taken["lookup, disk"] = await _looked_up(disk, asked)
        writing = asyncio.create_task(_write(disk, entries))
        taken[BUSY] = await _looked_up(disk, asked)
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        await disk.close()
    return taken


async def _looked_up(tier: Tier, keys: list[RequestKey]) -> list[float]:
    return await _each(lambda key: tier.lookup(key, NOW), keys)


async def _each(call: Callable[[RequestKey], Awaitable[object]], keys: list[RequestKey]) -> list[float]:
    taken = []
    for key in keys:
        began = time.perf_counter()
        await call(key)
        taken.append(time.perf_counter() - began)
    return taken


def _read(path: Path, keys: list[RequestKey]) -> list[float]:
    database, touches, taken = disk_file.opened(path, 5.0), Touches(), []
    for key in keys:
        began = time.perf_counter()
        disk_reads.look_up(database, [key.id], NOW, touches)
        taken.append(time.perf_counter() - began)
    database.close()
    return taken


async def _write(tier: DiskTier, first: int) -> None:
    """A store after the other, and housekeeping every hundred of them."""
    number = first
    while True:
        await tier.store(_key(number), _answer(BODY_BYTES), NOW)
        if number % 100 == 0:
            await tier.tend(NOW)
        number += 1


async def _file(name: str, sizes: Sizes, held: int) -> list[Cell]:
    generator = random.Random(1)
    mean = sum(sizes(generator) for _ in range(1_000)) / 1_000 + OVERHEAD
    with _path() as path:
        tier = DiskTier(path, SPACE)
        await tier.apply(KnobSettings(held * mean, 1e6, 0.0), NOW)
        for turn in range(4 * held):
            number = int(generator.paretovariate(1.0)) if turn % 2 else held * 100 + turn
            if await tier.lookup(_key(number), NOW) is None:
                await tier.store(_key(number), _answer(sizes(generator)), NOW)
            if turn % 500 == 0:
                await tier.tend(NOW)
        while await tier.tend(NOW):
            continue
        found = await tier.stats()
        await tier.close()
        size = path.stat().st_size
    bodies = found.used_bytes - found.entries * OVERHEAD
    return [name, size / found.used_bytes, (size - bodies) / found.entries]


@contextmanager
def _path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder) / "cache.sqlite"


def _key(number: int) -> RequestKey:
    digest = hashlib.sha256(b"%d" % number).digest()
    return RequestKey(Partition(), digest, digest)


def _answer(size: int) -> Answer:
    return Answer(b"." * size, NOW)


if __name__ == "__main__":
    main(Benchmark("disk_tier", "The tier on disk: lookups, and the size of the file", ("setpoint",), measure))
