"""The backend of the benchmark of techniques: slots, time by tokens, and answers that say what they answer."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from functools import lru_cache

import httpx
import orjson

from api.emulator.answers import WORDS
from api.gateway.events import DONE, json_event
from api.gateway.upstream import Client
from benchmarks.technique_traffic import Array, Body, Traffic
from envs.serving import Backend, Serving, backend_of, load_profile

PROFILE = "qwen2.5-7b-a100"
JSON, EVENTS = {"content-type": "application/json"}, {"content-type": "text/event-stream"}
CHARACTERS = 4  # of a token
PIECES = 4  # of a streamed answer
LOGPROB_TOKENS = 8
REFUSED = orjson.dumps({"error": {"message": "top_p: expected at most 1", "type": "invalid_request_error"}})
SMALLER_WORK, SMALLER_SLOTS = 0.1, 64


def model_of_costs() -> Backend:
    return backend_of(load_profile(PROFILE), Serving(profile=PROFILE))


def idle_seconds(prompt: Array | int, output: Array) -> Array:
    """That a backend takes which has nothing else to do, by request."""
    costs = model_of_costs()
    seconds: Array = prompt * costs.prefill_seconds_per_token + output * costs.decode_seconds_per_token
    return seconds


@lru_cache(maxsize=100_000)
def pieces_of(meaning: int, version: int, tokens: int) -> tuple[str, ...]:
    """Of an answer's text. The first says what is answered and which version of the truth; the others are words that
    follow from the two, so that another version reads differently."""
    drawn = random.Random(f"{meaning} {version}")
    count = max(CHARACTERS * tokens // 6, PIECES)
    words = drawn.choices(WORDS, k=count)
    size = math.ceil(count / (PIECES - 1))
    parts = (" " + " ".join(words[begin : begin + size]) for begin in range(0, count, size))
    return f"Answer {meaning}, version {version}.", *parts


class SimulatedBackend(httpx.AsyncBaseTransport):
    """In place of the connections to a backend. work: share of the time and of the GPU seconds that a smaller model
    takes. has_troubles: else it is always there and as fast as ever."""

    def __init__(
        self,
        traffic: Traffic,
        ticks: Callable[[], float],
        slots: int,
        work: float = 1.0,
        *,
        has_troubles: bool = True,
    ) -> None:
        self._traffic, self._ticks, self._work, self._has_troubles = traffic, ticks, work, has_troubles
        self._slots, self._costs = asyncio.Semaphore(slots), model_of_costs()
        self.gpu_seconds, self.calls = 0.0, 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if self._has_troubles and self._traffic.troubles.is_down(self._ticks()):
            raise httpx.ConnectError("refused")
        if request.method == "GET":
            return _answered(200, b'{"data": []}')
        self.calls += 1
        body = orjson.loads(await request.aread())
        if body.get("top_p", 0.0) > 1.0:
            return _answered(400, REFUSED)
        if body.get("stream"):
            return httpx.Response(200, headers=EVENTS, stream=_Pieces(self._streamed(body)))
        return _answered(200, await self._whole(body))

    async def _whole(self, body: Body) -> bytes:
        meaning, prompt, output = _work_of(body)
        async with self._slots:
            version = self._traffic.truth.version(meaning, self._ticks())
            await self._spend(prompt * self._costs.prefill_seconds_per_token, prompt, 0)
            await self._spend(output * self._costs.decode_seconds_per_token, 0, output)
        message = {"role": "assistant", "content": "".join(pieces_of(meaning, version, output))}
        choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": self._logprobs(body, meaning)}
        told = {**_head(body, "chat.completion"), "choices": [choice], "usage": _usage(prompt, output)}
        return orjson.dumps(told)

    async def _streamed(self, body: Body) -> AsyncGenerator[bytes, None]:
        meaning, prompt, output = _work_of(body)
        head = _head(body, "chat.completion.chunk")

        def told(delta: Body, reason: str | None = None) -> bytes:
            return json_event({**head, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]})

        async with self._slots:
            version = self._traffic.truth.version(meaning, self._ticks())
            await self._spend(prompt * self._costs.prefill_seconds_per_token, prompt, 0)
            yield told({"role": "assistant", "content": ""})
            parts = pieces_of(meaning, version, output)
            for part in parts:
                seconds = output * self._costs.decode_seconds_per_token / len(parts)
                await self._spend(seconds, 0, output / len(parts))
                yield told({"content": part})
        yield told({}, "stop")
        yield json_event({**head, "choices": [], "usage": _usage(prompt, output)})
        yield DONE

    async def _spend(self, seconds: float, prompt_tokens: float, output_tokens: float) -> None:
        """Who is given up in between has cost what was done by then. Raises where the backend goes down meanwhile."""
        costs, began = self._costs, self._ticks()
        gpu = prompt_tokens * costs.prefill_seconds_per_token + output_tokens * costs.gpu_seconds_per_output_token
        troubles = self._traffic.troubles
        lasts = seconds * self._work * (troubles.factor(began) if self._has_troubles else 1.0)
        down = troubles.next_down(began, began + lasts) if self._has_troubles else None
        try:
            await asyncio.sleep(lasts if down is None else down - began)
        finally:
            share = min((self._ticks() - began) / lasts, 1.0) if lasts else 1.0
            self.gpu_seconds += gpu * self._work * share
        if down is not None:
            raise httpx.ReadError("broke off")

    def _logprobs(self, body: Body, meaning: int) -> Body | None:
        if not body.get("logprobs") or self._traffic.logprob is None:
            return None
        logprob = float(self._traffic.logprob[meaning])
        other = math.log(max(1.0 - math.exp(logprob), 1e-9))
        top = [{"token": "a", "logprob": logprob}, {"token": "b", "logprob": other}]
        return {"content": [{"token": "a", "logprob": logprob, "top_logprobs": top}] * LOGPROB_TOKENS}


class _Pieces(httpx.AsyncByteStream):
    def __init__(self, pieces: AsyncGenerator[bytes, None]) -> None:
        self._pieces = pieces

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._pieces:
            yield piece

    async def aclose(self) -> None:
        await self._pieces.aclose()


def put_behind(client: Client, backend: SimulatedBackend) -> None:
    """The backends of a gateway's client are this one from now on."""
    for one in client.balanced.backends:
        for pool in one.pools:
            pool.transport = backend
        one.asking = backend


def _answered(status: int, body: bytes) -> httpx.Response:
    """To be read: what is watched of a backend goes by the reading of its answers."""
    return httpx.Response(status, headers=JSON, stream=httpx.ByteStream(body))


def _work_of(body: Body) -> tuple[int, int, int]:
    """What is asked, and the tokens of prompt and answer."""
    work = body["metadata"]
    return int(work["meaning"]), int(work["prompt"]), int(work["output"])


def _head(body: Body, kind: str) -> Body:
    return {"id": "chatcmpl-1", "object": kind, "created": 0, "model": body["model"]}


def _usage(prompt: int, output: int) -> Body:
    return {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output}
