"""A hot key whose lifetime ends, under requests that all want it: over a real Redis, in front of a real backend."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import httpx
import numpy as np

from benchmarks.harness import say
from benchmarks.resilience_world import OUTPUT_TOKENS, PATH
from benchmarks.stack_traffic import key_of
from caches.flight import Flight
from caches.knobs import Knob, KnobSpace
from caches.place import Place
from caches.stack import Served, Stack, StackRules
from caches.tiers.memory import MemoryTier
from caches.tiers.redis_connection import connect
from caches.tiers.redis_index import RedisIndexOptions, RedisIndexTier
from caches.tiers.tier import Answer

TTL_SECONDS, PER_SECOND = 2.0, 200.0
ALONE, ONE_CALL, EARLY = "each for itself", "one call for all", "one call, and renewed early"
BODY = {
    "model": "small",
    "temperature": 0,
    "max_tokens": OUTPUT_TOKENS,
    "ignore_eos": True,
    "messages": [{"role": "user", "content": "What does everybody ask?"}],
}


@dataclass(frozen=True)
class Expiry:
    """Of one run. calls: of the backend, in all."""

    p99_seconds: float
    calls: int


class _Run:
    def __init__(self, url: str, redis_url: str, name: str, eager: float) -> None:
        space = KnobSpace(
            Knob("cache_size", "bytes", 2.0**16, 2.0**30, 2.0**26, 0.1, "log"),
            Knob("ttl_seconds", "seconds", 1.0, 3_600.0, TTL_SECONDS, 0.1, "log"),
            Knob("warmup_ratio", "share", 0.0, 1.0, 0.0, 0.25, "linear"),
        )
        redis = RedisIndexTier(connect(redis_url, 5.0), space, options=RedisIndexOptions(name))
        self.stack = Stack([Place(MemoryTier(space)), Place(redis, 5.0)], StackRules(0.0, eager))
        self._client, self._key = httpx.AsyncClient(base_url=url, timeout=60.0), key_of("What does everybody ask?")
        self._renewals: set[asyncio.Task[None]] = set()
        self.calls = 0

    async def call(self, _flight: Flight[Served] | None = None) -> Answer:
        self.calls += 1
        began = time.perf_counter()
        response = await self._client.post(PATH, json=BODY)
        response.raise_for_status()
        return Answer(response.content, time.time(), compute_seconds=time.perf_counter() - began)

    async def alone(self) -> None:
        if await self.stack.lookup(self._key) is None:
            await self.stack.store(self._key, await self.call())

    async def together(self) -> None:
        served = await self.stack.fetch(self._key, self.call)
        if served.refresh_due:
            renewal = asyncio.create_task(self.stack.renew(self._key, self.call))
            self._renewals.add(renewal)
            renewal.add_done_callback(self._renewals.discard)

    async def close(self) -> None:
        await asyncio.gather(*self._renewals)
        await self.stack.close()
        await self._client.aclose()


def expiries(url: str, redis_url: str, rounds: int, seconds: float) -> dict[str, list[Expiry]]:
    """In turn."""
    found: dict[str, list[Expiry]] = {ALONE: [], ONE_CALL: [], EARLY: []}
    for number in range(rounds):
        for place, name in enumerate(found):
            say(f"hot key, round {number + 1} of {rounds}, {name}")
            prefix = f"hot-{number}-{place}"
            found[name].append(asyncio.run(_expiry(url, redis_url, prefix, name, seconds)))
    return found


async def _expiry(url: str, redis_url: str, prefix: str, name: str, seconds: float) -> Expiry:
    run = _Run(url, redis_url, prefix, 1.0 if name == EARLY else 0.0)
    one: Callable[[], Awaitable[None]] = run.alone if name == ALONE else run.together
    await one()  # so that it is there
    run.calls = 0
    waited: list[float] = []
    began, asking = time.perf_counter(), set[asyncio.Task[None]]()

    async def ask(due: float) -> None:
        await one()
        waited.append(time.perf_counter() - due)

    for number in range(int(seconds * PER_SECOND)):
        due = began + number / PER_SECOND
        await asyncio.sleep(max(due - time.perf_counter(), 0.0))
        task = asyncio.create_task(ask(due))
        asking.add(task)
        task.add_done_callback(asking.discard)
    await asyncio.gather(*asking)
    await run.close()
    return Expiry(float(np.quantile(waited, 0.99)), run.calls)
