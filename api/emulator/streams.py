"""An answer as server-sent events, tokens when the queue has them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, TypeVar

import orjson

from api.emulator.answers import Answer, Choice
from api.emulator.queueing import Queue
from api.emulator.wire import Form, usage

DONE = b"data: [DONE]\n\n"
T = TypeVar("T")


async def events(
    answer: Answer, form: Form, queue: Queue, fingerprint: str, interval: int, *, with_usage: bool
) -> AsyncGenerator[bytes, None]:
    """The body of a streamed response. interval: tokens of a chunk, the first one comes alone. Closed early, it frees
    all slots that it holds and waits for."""
    envelope = form.envelope(answer, fingerprint)
    if with_usage:
        envelope["usage"] = None
    entries = [_entries(choice, form, queue, answer.top, interval) for choice in answer.choices]
    async with aclosing(merged(entries)) as arriving:
        async for batch in arriving:
            yield b"".join(_event({**envelope, "choices": [entry]}) for entry in batch)
    if with_usage:
        yield _event({**envelope, "choices": [], "usage": usage(answer)})
    yield DONE


async def _entries(
    choice: Choice, form: Form, queue: Queue, top: int | None, interval: int
) -> AsyncGenerator[list[dict[str, Any]], None]:
    """The `choices` entries of one choice, as many at once as are due."""
    opening = form.opening(choice)
    batch = [] if opening is None else [opening]
    sent = 0
    async with aclosing(queue.stream(choice.prompt_tokens, len(choice.pieces), interval)) as counts:
        async for made in counts:
            ends = [*range(sent + (interval if sent else 1), made, interval), made]
            starts = [sent, *ends[:-1]]
            yield batch + [form.part(choice, start, end, top) for start, end in zip(starts, ends, strict=True)]
            batch, sent = [], made
    yield [*batch, form.closing(choice)]


async def merged(sources: Sequence[AsyncGenerator[T, None]]) -> AsyncGenerator[T, None]:
    """Items of all sources in the order in which they come. Closed early, it closes the sources."""
    box: asyncio.Queue[T | None] = asyncio.Queue()

    async def pump(source: AsyncGenerator[T, None]) -> None:
        try:
            async with aclosing(source):
                async for item in source:
                    box.put_nowait(item)
        finally:
            box.put_nowait(None)

    tasks = [asyncio.create_task(pump(source)) for source in sources]
    try:
        open_sources = len(tasks)
        while open_sources:
            item = await box.get()
            if item is None:
                open_sources -= 1
            else:
                yield item
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _event(value: dict[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(value) + b"\n\n"
