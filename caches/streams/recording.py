"""Writing a flight down while it flies: a reader of its pieces like any other, which nobody waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from caches.attempt import patiently
from caches.cancelling import cancelled
from caches.flight import Flight
from caches.stream import Fenced, StreamLog, TooLong
from caches.tiers.tier import TierError

# What an error is to tell those who read the stream; None where it has come to its end all the same.
Told = Callable[[BaseException], bytes | None]
# Makes a call of the log, unless it is left alone: then raises TierError.
Ask = Callable[[Callable[[], Awaitable[Any]]], Awaitable[Any]]


@dataclass(frozen=True)
class RecordingRules:
    """grace_seconds: that a flight goes on when nobody waits for it any more. told: of the error that ends one. timed:
    is told what each append took, s. ticks: a clock that is never set."""

    grace_seconds: float
    told: Told
    timed: Callable[[float], None]
    ticks: Callable[[], float]


class Recording:
    """From the first event of a flight to its end. lost: why the log does not have all of it, if so.

    The flight goes on after the last that waited for it has gone: for the grace, and again as long as somebody reads
    the log. While the log cannot be reached, what comes waits for as long as a lease, then the recording is lost.
    """

    def __init__(self, log: StreamLog, stream_id: str, name: bytes, rules: RecordingRules, ask: Ask) -> None:
        self.id, self.name, self._log, self._rules, self._ask = stream_id, name, log, rules, ask
        self._leaving: asyncio.Task[None] | None = None
        self._opened = asyncio.Event()
        self.lost: str | None = None

    async def run(self, flight: Flight[Any]) -> None:
        """Ends with the flight. What goes wrong with the log ends the recording only."""
        flight.keep_by(lambda give_up: self._keep(flight, give_up))
        keeping = asyncio.ensure_future(self._renew())
        try:
            await self._surely(lambda: self._log.open(self.id, self.name))
            self._opened.set()
            await self._write(flight)
        except (TierError, Fenced) as error:
            self.lost = type(error).__name__
        finally:
            self._opened.set()
            tasks = [keeping] if self._leaving is None else [keeping, self._leaving]
            await cancelled(*tasks)
            flight.keep_by(None)

    async def hide(self) -> None:
        """Nobody new joins it."""
        await self._opened.wait()
        await self._ask(lambda: self._log.hide(self.id, self.name))

    async def _write(self, flight: Flight[Any]) -> None:
        offset = 0
        try:
            async with aclosing(flight.published()) as pieces:
                async for some in pieces:
                    await self._append(offset, some)
                    offset += len(some)
            error = flight.error
        except TooLong as reason:
            self.lost, error = type(reason).__name__, reason
        why = None if error is None else self._rules.told(error)
        if why is None:
            await self._surely(lambda: self._log.finish(self.id, self.name))
        else:
            told = why
            await self._surely(lambda: self._log.fail(self.id, self.name, told))

    async def _append(self, offset: int, events: Sequence[bytes]) -> None:
        async def timed() -> None:
            began = self._rules.ticks()
            await self._log.append(self.id, offset, events)
            self._rules.timed(self._rules.ticks() - began)

        await self._surely(timed)

    async def _surely(self, call: Callable[[], Awaitable[None]]) -> None:
        """All that a writer says may be said again."""
        await patiently(lambda: self._ask(call), self._log.rules.lease_seconds, self._rules.ticks)

    async def _renew(self) -> None:
        """Three times in a lease. That one fails says nothing yet: the next may be in time."""
        await self._opened.wait()
        while True:
            await asyncio.sleep(self._log.rules.lease_seconds / 3.0)
            try:
                await self._ask(lambda: self._log.renew(self.id, self.name))
            except TierError:
                continue
            except Fenced:  # the next append finds out as well, and ends the recording
                return

    def _keep(self, flight: Flight[Any], give_up: Callable[[], object]) -> None:
        if self._leaving is not None:
            self._leaving.cancel()
        self._leaving = asyncio.ensure_future(self._leave(flight, give_up))

    async def _leave(self, flight: Flight[Any], give_up: Callable[[], object]) -> None:
        """Whoever comes in the meantime and goes again begins this anew."""
        this = asyncio.current_task()
        while True:
            await asyncio.sleep(self._rules.grace_seconds)
            if flight.followers:
                return
            try:
                wanted = await self._ask(lambda: self._log.wanted(self.id))
            except TierError:
                wanted = False
            if self._leaving is not this:
                return
            if not wanted:
                give_up()
                return
