"""A program that works on a tier on disk: so little is imported that several of them start soon."""

from __future__ import annotations

import asyncio
import hashlib
import resource
import sys
from pathlib import Path

from caches.keys.request_key import Partition, RequestKey
from caches.knobs import Knob, KnobSpace
from caches.tiers.disk import DiskOptions, DiskTier
from caches.tiers.tier import Answer, TierError

START = 1_000_000.0
BODY = 6_000  # of more than one page, so that half an entry could be there
SPACE = KnobSpace(
    Knob("cache_size", "bytes", 1.0, 1e7, 1e7, 1.0, "log"),
    Knob("ttl_seconds", "seconds", 1.0, 1e6, 1e6, 1.0, "log"),
    Knob("warmup_ratio", "share", 0.0, 1.0, 0.0, 1.0, "linear"),
)


def key_of(number: int) -> RequestKey:
    digest = hashlib.sha256(b"%d" % number).digest()
    return RequestKey(Partition(), digest, digest, model="m")


def answer_of(number: int) -> Answer:
    return Answer(hashlib.shake_256(b"%d" % number).digest(BODY), START)


async def store(path: Path, first: int, end: int) -> None:
    """Says which number was stored, one a line."""
    tier = DiskTier(path, SPACE, options=DiskOptions(busy_seconds=60.0))
    for number in range(first, end):
        if not await tier.store(key_of(number), answer_of(number), START):
            raise SystemExit(f"{number} was not taken")
        print(number, flush=True)  # noqa: T201
        if number % 20 == 0:
            await tier.tend(START)
    await tier.close()


async def fill(path: Path, most_bytes: int) -> None:
    """Stores until no file can grow any more, and then looks up what was stored. Says how many there are."""
    tier, number = DiskTier(path, SPACE), 0
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))
    try:
        while await tier.store(key_of(number), answer_of(number), START):
            number += 1
    except TierError as error:
        print(error, flush=True)  # noqa: T201
    found = await tier.batch_lookup([key_of(one) for one in range(number + 1)], START)
    await tier.close()
    print(sum(one is not None for one in found), found[-1])  # noqa: T201


if __name__ == "__main__":
    what, where, *numbers = sys.argv[1:]
    asyncio.run({"store": store, "fill": fill}[what](Path(where), *map(int, numbers)))
