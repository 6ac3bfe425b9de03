"""The requests of a trace, sent to a gateway when they are due."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import httpx
import numpy as np
import orjson

from api.emulator.tokens import CHARACTERS, MESSAGE_TOKENS
from api.gateway.answering import CACHE_HEADER
from api.rehearsal.clock import ReplayClock
from caches.errors import InputError
from traces.trace import Trace

AT_ONCE = 64  # requests on their way; more of them wait
FAILED = "failed"


@dataclass
class Sent:
    """What came of the requests, by the header that says who answered."""

    outcomes: Counter[str] = field(default_factory=Counter)

    @property
    def answered(self) -> int:
        return sum(self.outcomes.values()) - self.outcomes[FAILED]


class Questions:
    """Requests that cost an emulated model the tokens of a trace's rows: one for each key, so that equal keys ask the
    same. Raises InputError for a trace without tokens.

    Of a key whose rows have different tokens, the first row counts.
    """

    def __init__(self, trace: Trace, model: str) -> None:
        if trace.prompt_tokens is None or trace.output_tokens is None:
            raise InputError(f"trace {trace.info.name}: got no token counts, expected them")
        _, first = np.unique(trace.key, return_index=True)
        self._prompt, self._output = trace.prompt_tokens[first].tolist(), trace.output_tokens[first].tolist()
        self._key, self._model = trace.key, model

    def of(self, row: int) -> bytes:
        """A body that asks for as many tokens as the row has, no fewer: a cut answer would not be cached."""
        key = int(self._key[row])
        tokens = max(self._output[key], 1)
        characters = max(self._prompt[key] - MESSAGE_TOKENS, 1) * CHARACTERS
        return orjson.dumps(
            {
                "model": self._model,
                "temperature": 0,
                "stream": True,
                "stream_options": {"include_usage": True},
                "min_tokens": tokens,
                "max_tokens": tokens,
                "messages": [{"role": "user", "content": f"{key:x} ".ljust(characters, ".")}],
            }
        )


async def replay(questions: Questions, due: Mapping[int, float], clock: ReplayClock, url: str, sent: Sent) -> None:
    """due: by row, in order, the Unix time at which it is asked. `sent` tells how it goes."""
    limits = httpx.Limits(max_connections=AT_ONCE, max_keepalive_connections=AT_ONCE)
    async with httpx.AsyncClient(base_url=url, limits=limits, timeout=60.0) as client, asyncio.TaskGroup() as group:
        room = asyncio.Semaphore(AT_ONCE)
        for row, at in due.items():
            await asyncio.sleep(clock.until(at))
            await room.acquire()
            task = group.create_task(_ask(client, questions.of(row), sent))
            task.add_done_callback(lambda _task: room.release())


async def _ask(client: httpx.AsyncClient, body: bytes, sent: Sent) -> None:
    try:
        response = await client.post("/v1/chat/completions", content=body, headers={"content-type": "application/json"})
        outcome = response.headers.get(CACHE_HEADER, FAILED) if response.status_code == httpx.codes.OK else FAILED
    except httpx.HTTPError:  # counted, and shown at the end
        outcome = FAILED
    sent.outcomes[outcome] += 1
