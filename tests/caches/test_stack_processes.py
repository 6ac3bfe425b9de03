"""Stacks of several processes over one Redis: one backend call between them, whatever happens to who makes it."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import time
import uuid

import redis

from caches.flight import Flight
from caches.place import Place
from caches.stack import Served, Stack
from caches.tiers.memory import MemoryTier
from caches.tiers.redis_index import RedisIndexOptions, RedisIndexTier
from caches.tiers.redis_lease import RedisLease
from caches.tiers.tier import Answer
from tests.contracts.tier_contract import SPACE, key_of
from tests.servers import patient

CLIENTS = 500


def stack_on(url: str, prefix: str, lease_seconds: float = 5.0) -> Stack:
    connection = patient(url)
    shared = RedisIndexTier(connection, SPACE, "l2", RedisIndexOptions(prefix))
    return Stack(
        [Place(MemoryTier(SPACE, "l1")), Place(shared, 5.0)], lease=RedisLease(connection, prefix, lease_seconds)
    )


def clients(url: str, prefix: str, answers: multiprocessing.Queue[set[bytes]]) -> None:
    """Many equal requests at once; a call takes half a second and counts itself."""

    async def call(flight: Flight[Served]) -> Answer:
        with redis.Redis.from_url(url) as client:
            number = client.incr(f"{prefix}:calls")
        await asyncio.sleep(0.5)
        return Answer(b"answer %d" % number, time.time())

    async def all_of_them() -> set[bytes]:
        stack = stack_on(url, prefix)
        served = await asyncio.gather(*(stack.fetch(key_of(1), call) for _ in range(CLIENTS)))
        await stack.close()
        return {one.answer.body for one in served}

    answers.put(asyncio.run(all_of_them()))


def die_leading(url: str, prefix: str) -> None:
    async def call(flight: Flight[Served]) -> Answer:
        os._exit(1)

    asyncio.run(stack_on(url, prefix, lease_seconds=0.5).fetch(key_of(1), call))


def test_a_thousand_clients_in_two_processes_make_one_call(redis_server: str) -> None:
    spawn, prefix = multiprocessing.get_context("spawn"), f"test-{uuid.uuid4().hex}"
    answers = spawn.Queue()
    both = [spawn.Process(target=clients, args=(redis_server, prefix, answers)) for _ in range(2)]
    for process in both:
        process.start()
    found = [answers.get(timeout=60) for _ in both]
    for process in both:
        process.join()
        assert process.exitcode == 0
    assert found == [{b"answer 1"}] * 2


def test_when_the_leader_dies_another_calls(redis_server: str) -> None:
    prefix = f"test-{uuid.uuid4().hex}"
    process = multiprocessing.get_context("spawn").Process(target=die_leading, args=(redis_server, prefix))
    process.start()
    process.join()
    assert process.exitcode == 1

    async def call(flight: Flight[Served]) -> Answer:
        return Answer(b"second", time.time())

    async def follow() -> bytes:
        stack = stack_on(redis_server, prefix, lease_seconds=0.5)
        served = await stack.fetch(key_of(1), call)
        await stack.close()
        return served.answer.body

    assert asyncio.run(follow()) == b"second"


async def test_a_long_call_keeps_its_lease_and_a_short_one_gives_it_back(redis_server: str) -> None:
    prefix, calls = f"test-{uuid.uuid4().hex}", 0
    first, second = (stack_on(redis_server, prefix, lease_seconds=0.15) for _ in range(2))

    async def call(flight: Flight[Served]) -> Answer:
        nonlocal calls
        calls += 1
        await asyncio.sleep(0.6)
        return Answer(b"answer", time.time())

    leading = asyncio.ensure_future(first.fetch(key_of(1), call))
    await asyncio.sleep(0.1)
    assert (await second.fetch(key_of(1), call)).answer.body == b"answer"
    await leading
    assert calls == 1
    began = time.monotonic()
    await second.fetch(key_of(2), call)
    await first.fetch(key_of(2), call)
    assert time.monotonic() - began < 0.6 + 0.5
    for stack in (first, second):
        await stack.close()


async def test_without_redis_each_process_calls_for_itself() -> None:
    stack = stack_on("redis://127.0.0.1:1/0", "nowhere")

    async def call(flight: Flight[Served]) -> Answer:
        return Answer(b"answer", time.time())

    assert (await stack.fetch(key_of(1), call)).answer.body == b"answer"
    assert (await stack.fetch(key_of(1), call)).tier == "l1"
    await stack.close()
