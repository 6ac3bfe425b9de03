"""Equal requests that are there at the same time, and clients that go."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from redis import Redis

from caches.place import Place
from caches.tiers.memory import MemoryTier
from caches.tiers.redis_index import RedisIndexOptions, RedisIndexTier
from caches.tiers.redis_lease import RedisLease
from tests.api.gateway.conftest import (
    CHAT,
    SPACE,
    Backend,
    Front,
    ask,
    chat,
    emulated,
    gateway,
    outcome,
    shared_gateway,
)
from tests.servers import patient

LONG = {"max_tokens": 10_000, "ignore_eos": True}  # two minutes


@pytest.fixture(scope="module")
def slow() -> Iterator[Backend]:
    """One sequence at once, in real time."""
    with emulated(speed=1.0, slots=1) as one:
        yield one


@pytest.fixture(scope="module")
def shared_slow_front(slow: Backend) -> Iterator[Front]:
    with shared_gateway(slow.address) as one:
        yield one


@pytest.fixture
def slow_front(slow: Backend, shared_slow_front: Front) -> str:
    slow.calls.clear()
    return shared_slow_front.emptied()


@asynccontextmanager
async def client_at(address: str) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=address, timeout=20) as one:
        yield one


async def until(true: Any) -> None:
    async with asyncio.timeout(10):
        while not true():
            await asyncio.sleep(0.005)


def text_of(answer: httpx.Response) -> str:
    if not answer.headers["content-type"].startswith("text/event-stream"):
        return str(answer.json()["choices"][0]["message"]["content"])
    lines = [line.removeprefix("data: ") for line in answer.text.split("\n\n") if line]
    assert lines[-1] == "[DONE]"
    chunks = [json.loads(line) for line in lines[:-1]]
    return "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks)


@pytest.mark.parametrize("leader", [False, True])
async def test_equal_misses_make_one_call(slow_front: str, slow: Backend, leader: bool) -> None:
    """Streamed and whole, whoever leads; 20 tokens take a quarter of a second."""
    async with client_at(slow_front) as client:
        first = asyncio.create_task(client.post(CHAT, json=chat(max_tokens=20, stream=leader)))
        await until(lambda: slow.calls)
        rest = [client.post(CHAT, json=chat(max_tokens=20, stream=bool(i % 2))) for i in range(10)]
        answers = await asyncio.gather(first, *rest)
        assert len(slow.calls) == 1
        assert {outcome(answer) for answer in answers} == {"miss"}
        assert len({text_of(answer) for answer in answers}) == 1
        assert outcome(await client.post(CHAT, json=chat(max_tokens=20))) == "hit-l1"


async def test_who_wants_a_new_answer_shares_the_call_that_is_on_its_way(slow_front: str, slow: Backend) -> None:
    headers = {"cache-control": "max-age=0"}
    async with client_at(slow_front) as client:
        asked = [client.post(CHAT, json=chat(max_tokens=20), headers=headers) for _ in range(5)]
        answers = await asyncio.gather(*asked)
    assert {outcome(answer) for answer in answers} == {"miss"}
    assert len(slow.calls) == 1


async def test_pieces_come_before_the_answer_is_complete(slow_front: str, slow: Backend) -> None:
    """To who leads and to who follows."""
    body = chat(stream=True, **LONG)
    async with client_at(slow_front) as client, client.stream("POST", CHAT, json=body) as leader:
        leading = leader.aiter_text()  # held: httpx closes a response whose iterator nobody holds
        assert "role" in await anext(leading)
        async with client.stream("POST", CHAT, json=body) as follower:
            following = follower.aiter_text()
            assert '"role":"assistant"' in await anext(following)
        assert "content" in await anext(leading)
        assert slow.queue.running == 1
    await until(lambda: slow.queue.running == 0)
    assert len(slow.calls) == 1


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("temperature", [0, 1])
async def test_client_that_goes_frees_the_slot(slow_front: str, slow: Backend, stream: bool, temperature: int) -> None:
    """Cached or passed through."""
    async with client_at(slow_front) as client:
        body = chat(stream=stream, temperature=temperature, **LONG)
        asking = asyncio.create_task(client.post(CHAT, json=body))
        await until(lambda: slow.queue.running == 1)
        asking.cancel()
        await until(lambda: slow.queue.running == 0)


async def test_client_that_waits_for_a_slot_and_goes_leaves_the_queue(slow_front: str, slow: Backend) -> None:
    async with client_at(slow_front) as client:
        first = asyncio.create_task(client.post(CHAT, json=chat(**LONG)))
        await until(lambda: slow.queue.running == 1)
        second = asyncio.create_task(client.post(CHAT, json=chat("another", stream=True)))
        await until(lambda: slow.queue.waiting == 1)
        second.cancel()
        await until(lambda: slow.queue.waiting == 0)
        first.cancel()
    await until(lambda: slow.queue.running == 0)


@pytest.mark.parametrize("stream", [False, True])
async def test_others_still_get_what_a_client_that_went_had_asked_for(
    slow_front: str, slow: Backend, stream: bool
) -> None:
    async with client_at(slow_front) as client:
        first = asyncio.create_task(client.post(CHAT, json=chat(max_tokens=30, stream=stream)))
        await until(lambda: slow.queue.running == 1)
        second = asyncio.create_task(client.post(CHAT, json=chat(max_tokens=30, stream=not stream)))
        await asyncio.sleep(0.05)
        first.cancel()
        assert len(text_of(await second)) > 100
    assert len(slow.calls) == 1


async def test_when_the_last_goes_the_call_ends(slow_front: str, slow: Backend) -> None:
    """Who led goes first."""
    async with client_at(slow_front) as client:
        first = asyncio.create_task(client.post(CHAT, json=chat(stream=True, **LONG)))
        await until(lambda: slow.queue.running == 1)
        second = asyncio.create_task(client.post(CHAT, json=chat(**LONG)))
        await asyncio.sleep(0.1)
        first.cancel()
        await asyncio.sleep(0.1)
        assert slow.queue.running == 1
        second.cancel()
        await until(lambda: slow.queue.running == 0)
    assert len(slow.calls) == 1


async def test_two_gateways_share_answers_and_calls(slow: Backend, redis_server: str) -> None:
    """Through Redis: ten clients of each make one call together, and what one of them stored is a hit for the other."""
    slow.calls.clear()

    def shared() -> dict[str, Any]:
        connection = patient(redis_server)
        tier = RedisIndexTier(connection, SPACE, options=RedisIndexOptions(prefix="test-gateway"))
        places = [Place(MemoryTier(SPACE)), Place(tier, 1.0)]
        return {"places": places, "lease": RedisLease(connection, "test-gateway")}

    try:
        with gateway(slow.address, **shared()) as one, gateway(slow.address, **shared()) as two:
            async with client_at(one) as ones, client_at(two) as twos:
                asked = [client.post(CHAT, json=chat(max_tokens=20)) for client in (ones, twos) for _ in range(10)]
                answers = await asyncio.gather(*asked)
            assert len({answer.content for answer in answers}) == 1
            assert len(slow.calls) == 1
            await asyncio.to_thread(ask, one, chat("later", max_tokens=2, stream=True))
            later = await asyncio.to_thread(ask, two, chat("later", max_tokens=2))
            assert outcome(later) == "hit-l2"
            assert outcome(await asyncio.to_thread(ask, two, chat("later", max_tokens=2))) == "hit-l1"
    finally:
        with Redis.from_url(redis_server) as redis:
            for key in redis.scan_iter("test-gateway*"):
                redis.delete(key)
