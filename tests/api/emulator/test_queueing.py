"""Times computed by hand, on a clock that the tests move."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import numpy as np
import pytest

from api.emulator.queueing import Queue, Served
from envs.serving import Backend, Load, Serving, ServingProfile, backend_of, serve
from tests.api.emulator.fake_time import FakeTime, settle

# 100 prompt tokens a second, 0.5 s per output token, one sequence at a time
PROFILE = ServingProfile(
    name="slow",
    vram_gib=80,
    weights_gib=10,
    kv_bytes_per_token=1000,
    prefill_tokens_per_second=100,
    seconds_per_output_token=0.5,
    max_sequences=1,
    hit_seconds=1e-9,
)


def backend(sequences: int = 1, replicas: int = 1) -> Backend:
    return backend_of(PROFILE.model_copy(update={"max_sequences": sequences}), Serving(replicas=replicas))


def queue_on(fake: FakeTime, slots: Backend | None = None, speed: float = 1.0) -> Queue:
    return Queue(slots or backend(), speed, fake.clock, fake.sleep)


async def test_alone_it_takes_its_prompt_and_its_tokens() -> None:
    """200 prompt tokens are 2 s, 4 output tokens 2 s more."""
    fake = FakeTime()
    task = asyncio.create_task(queue_on(fake).serve(200, 4))
    await fake.run_until(3.99)
    assert not task.done()
    await fake.run_until(4.0)
    assert task.result() == Served(waited=0.0, first_token=2.0, latency=4.0)


async def test_first_come_first_served() -> None:
    """Each takes 1 s of prompt and 1 s of tokens: the second begins at 2 and the third at 4."""
    fake = FakeTime()
    queue = queue_on(fake)
    tasks = [asyncio.create_task(queue.serve(100, 2)) for _ in range(3)]
    await fake.run_until(1.5)
    assert (queue.running, queue.waiting) == (1, 2)
    await fake.run_until(10.0)
    assert [task.result() for task in tasks] == [Served(0, 1, 2), Served(2, 3, 4), Served(4, 5, 6)]
    assert (queue.running, queue.waiting) == (0, 0)


async def test_slots_are_those_of_all_replicas() -> None:
    fake = FakeTime()
    queue = queue_on(fake, backend(sequences=2, replicas=3))
    tasks = [asyncio.create_task(queue.serve(100, 0)) for _ in range(7)]
    await fake.run_until(5.0)
    assert [task.result().waited for task in tasks] == [0, 0, 0, 0, 0, 0, 1]


async def test_speed_shortens_the_sleep_and_not_the_times() -> None:
    fake = FakeTime()
    task = asyncio.create_task(queue_on(fake, speed=4.0).serve(200, 4))
    await fake.run_until(1.0)
    assert task.result() == Served(0, 2, 4)


async def test_a_loop_that_wakes_late_does_not_delay_those_who_wait() -> None:
    """Every sleep is 0.1 s late. The fifth still begins at 8 s, not at 8.4."""
    fake = FakeTime(late=0.1)
    queue = queue_on(fake)
    tasks = [asyncio.create_task(queue.serve(100, 2)) for _ in range(5)]
    await fake.run_until(12.0)
    assert tasks[4].result() == Served(8, 9, 10)


async def test_stream_yields_the_first_token_after_the_prompt() -> None:
    """Tokens at 2, 2.5 and 3; the slot is free at 3.5."""
    fake = FakeTime()
    queue = queue_on(fake)
    seen: list[tuple[float, int]] = []

    async def listen() -> None:
        async with aclosing(queue.stream(200, 3)) as counts:
            seen.extend([(fake.now, made) async for made in counts])
        seen.append((fake.now, -1))

    task = asyncio.create_task(listen())
    await fake.run_until(10.0)
    await task
    assert seen == [(2.0, 1), (2.5, 2), (3.0, 3), (3.5, -1)]
    assert (queue.prompt_tokens, queue.generation_tokens) == (200, 3)


async def test_tokens_that_are_due_come_together() -> None:
    """Sleeps end 1.2 s late: at 2 + 1.2 the tokens of 2, 2.5 and 3 are due."""
    fake = FakeTime(late=1.2)
    queue = queue_on(fake)

    async def counts() -> list[int]:
        return [made async for made in queue.stream(200, 5)]

    task = asyncio.create_task(counts())
    await fake.run_until(20.0)
    assert task.result() == [3, 5]


async def test_stream_without_tokens_takes_in_its_prompt() -> None:
    fake = FakeTime()
    queue = queue_on(fake)

    async def counts() -> list[int]:
        return [made async for made in queue.stream(200, 0)]

    task = asyncio.create_task(counts())
    await fake.run_until(2.0)
    assert task.result() == []
    assert (queue.running, queue.prompt_tokens) == (0, 200)


async def test_cancelled_while_served_frees_the_slot() -> None:
    """The second begins when the first gives up, at 1.5 s."""
    fake = FakeTime()
    queue = queue_on(fake)
    first, second = (asyncio.create_task(queue.serve(100, 2)) for _ in range(2))
    await fake.run_until(1.5)
    first.cancel()
    await fake.run_until(10.0)
    assert second.result() == Served(1.5, 2.5, 3.5)
    assert queue.running == 0


async def test_cancelled_while_waiting_leaves_the_queue() -> None:
    fake = FakeTime()
    queue = queue_on(fake)
    tasks = [asyncio.create_task(queue.serve(100, 2)) for _ in range(3)]
    await fake.run_until(1.0)
    tasks[1].cancel()
    await settle()
    assert queue.waiting == 1
    await fake.run_until(10.0)
    assert tasks[2].result().waited == 2.0


async def test_cancelled_as_its_turn_comes_passes_the_slot_on() -> None:
    fake = FakeTime()
    queue = queue_on(fake)
    tasks = [asyncio.create_task(queue.serve(100, 2)) for _ in range(3)]
    await fake.run_until(1.0)
    tasks[0].cancel()
    await asyncio.sleep(0)  # the slot goes to the second, which has not run yet
    tasks[1].cancel()
    await fake.run_until(10.0)
    assert tasks[1].cancelled()
    assert tasks[2].result() == Served(1, 2, 3)
    assert queue.running == 0


async def test_closed_stream_frees_the_slot() -> None:
    fake = FakeTime()
    queue = queue_on(fake)
    stream = queue.stream(100, 10)
    waking = asyncio.create_task(anext(stream))
    await fake.run_until(1.0)
    assert await waking == 1
    await stream.aclose()
    assert queue.running == 0


@pytest.mark.parametrize("seed", range(3))
async def test_agrees_with_the_serving_model(seed: int) -> None:
    """The same random load, through envs/serving.py and through the queue."""
    random = np.random.default_rng(seed)
    slots = backend(sequences=3)
    load = Load(
        np.cumsum(random.exponential(0.8, 60)),
        random.integers(1, 300, 60).astype(np.int32),
        random.integers(1, 8, 60).astype(np.int32),
    )
    ttft, latency = np.empty(60, np.float32), np.empty(60, np.float32)
    heap = np.array([0.0] * 3 + [np.inf])
    serve(slots, load, np.arange(60, dtype=np.int32), heap, 1.0, (ttft, latency))

    fake = FakeTime()
    queue = queue_on(fake, slots)
    tasks = []
    for when, prompt, output in zip(*load, strict=True):
        await fake.run_until(float(when))
        tasks.append(asyncio.create_task(queue.serve(int(prompt), int(output))))
        await settle()
    await fake.run_until(1000.0)
    served = [task.result() for task in tasks]
    np.testing.assert_allclose([one.first_token for one in served], ttft, rtol=1e-5)
    np.testing.assert_allclose([one.latency for one in served], latency, rtol=1e-5)
    assert max(one.waited for one in served) > 1.0  # the load does queue
