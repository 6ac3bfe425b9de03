"""When an emulated backend has its tokens: the equations of envs/serving.py, played in real time.

A sequence waits, first come first served, for one of `backend.slots` slots. In its slot it takes in its prompt, which
ends with the first token, and then needs the profile's time per token until it is done.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import NamedTuple

from envs.serving import Backend

Clock = Callable[[], float]
Sleep = Callable[[float], Awaitable[object]]


class Served(NamedTuple):
    """Seconds since arrival at which a sequence began, had its first token and was done, by the profile's clock."""

    waited: float
    first_token: float
    latency: float


class Queue:
    """The slots of all replicas, and who waits for one. Use it from one event loop.

    speed: seconds of the profile that pass in one of `clock`. clock and sleep: as time.monotonic and asyncio.sleep.
    Every method takes and gives profile seconds.
    """

    def __init__(
        self, backend: Backend, speed: float = 1.0, clock: Clock = time.monotonic, sleep: Sleep = asyncio.sleep
    ) -> None:
        self.backend = backend
        self.prompt_tokens = 0  # of all sequences that had their first token
        self.generation_tokens = 0
        self._speed, self._clock, self._sleep = speed, clock, sleep
        self._free = backend.slots
        self._waiting: deque[asyncio.Future[float]] = deque()

    @property
    def running(self) -> int:
        return self.backend.slots - self._free

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def now(self) -> float:
        return self._clock() * self._speed

    async def serve(self, prompt_tokens: int, output_tokens: int) -> Served:
        """Returns when the sequence is done. Cancelled, it gives its slot, or its place in the queue, back at once."""
        arrived = self.now()
        begin = await self._take(arrived)
        first, done = self._times(begin, prompt_tokens, output_tokens)
        try:
            await self._until(done)
            self.prompt_tokens += prompt_tokens
            self.generation_tokens += output_tokens
        finally:
            self._give_back(min(self.now(), done))
        return Served(begin - arrived, first - arrived, done - arrived)

    async def stream(self, prompt_tokens: int, output_tokens: int, interval: int = 1) -> AsyncGenerator[int, None]:
        """Yields how many tokens there are by now: at the first, then whenever there are `interval` more, and at the
        end, when the sequence is done.

        Tokens that fall due together come together. Close the generator, or cancel its task, to end the sequence early.
        """
        begin = await self._take(self.now())
        first, done = self._times(begin, prompt_tokens, output_tokens)
        made, step = 0, self.backend.decode_seconds_per_token
        try:
            await self._until(first)
            self.prompt_tokens += prompt_tokens
            while made < output_tokens:
                due = int((self.now() - first) / step) + 1
                due = min(max(due, made + (interval if made else 1)), output_tokens)  # a clock may be a hair early
                self.generation_tokens += due - made
                made = due
                yield made
                await self._until(first + (min(made + interval, output_tokens) - 1) * step)
            await self._until(done)
        finally:
            self._give_back(min(self.now(), done))

    def _times(self, begin: float, prompt_tokens: int, output_tokens: int) -> tuple[float, float]:
        """When the first token is there, and when the slot is free again."""
        first = begin + prompt_tokens * self.backend.prefill_seconds_per_token
        return first, first + output_tokens * self.backend.decode_seconds_per_token

    async def _take(self, arrived: float) -> float:
        """The time at which a slot is ours: not when we learn of it, but when the one before us was due to be done.

        A loop always wakes a little late; without this the delays of a long queue would add up.
        """
        if self._free:
            self._free -= 1
            return arrived
        turn: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            return max(arrived, await turn)
        except asyncio.CancelledError:
            if turn.cancelled():
                self._waiting.remove(turn)
            else:  # the slot was ours already
                self._give_back(self.now())
            raise

    def _give_back(self, at: float) -> None:
        """To the first that waits, else to the free ones."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(at)
                return
        self._free += 1

    async def _until(self, when: float) -> None:
        """Lets others run even if it is that late already."""
        await self._sleep(max(when - self.now(), 0.0) / self._speed)
