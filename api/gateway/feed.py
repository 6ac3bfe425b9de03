"""A stream to one client: pieces of a backend call while it runs, whoever made it, or a stored answer replayed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing
from typing import Any

import orjson

from api.gateway.asked import Asked
from api.gateway.errors import NotStored, Unreachable
from api.gateway.events import DONE, event, json_event, without_usages
from api.gateway.replay import replayed
from api.gateway.stream_tokens import RESUME_HEADER, Marking, Token
from api.http.errors import ApiError
from caches.flight import Flight, LeaderGone
from caches.stack import Served, Watch
from caches.stream import TooLong
from caches.streams.joining import StreamBroken, StreamComplete

Fetch = Callable[[Watch], Coroutine[Any, Any, Served]]
Pieces = AsyncGenerator[bytes, None]


class Feed:
    """`open` it, then `replay` what was served, or take its `events` once. `close` it then, and where it did not open:
    that gives up a fetch which still runs."""

    def __init__(self, asked: Asked, fetch: Fetch) -> None:
        self._asked = asked
        self._flight: asyncio.Future[Flight[Served]] = asyncio.get_running_loop().create_future()
        self._fetching = asyncio.create_task(fetch(self._watch))
        self._pieces: AsyncGenerator[list[bytes], None] | None = None
        self._first: list[bytes] = []
        self._marking: Marking | None = None
        self.served: Served | None = None  # what is replayed; None where pieces are passed on

    async def open(self) -> None:
        """Returns when there is something to send. Raises what the fetch raises before."""
        if not self._fetching.done():  # a tier in memory has answered by now
            await asyncio.wait((self._fetching, self._flight), return_when=asyncio.FIRST_COMPLETED)
        over = self._fetching.done() and not isinstance(self._fetching.exception(), LeaderGone)
        if not over and self._flight.done() and await self._begun(self._flight.result()):
            return
        self.served = await self._fetching

    def replay(self, served: Served) -> bytes:
        """All events at once: nobody gains from waiting between those of an answer that is there."""
        answer = orjson.loads(served.answer.body)
        return b"".join(replayed(self._asked.endpoint, answer, with_usage=self._asked.with_usage))

    async def events(self) -> Pieces:
        """As they come, where there is nothing to replay."""
        try:
            async with aclosing(self._passed_on()) as pieces:
                async for piece in pieces:
                    yield piece
        finally:
            await self.close()

    @property
    def resumable(self) -> dict[str, str]:
        """The header that says how to get the rest of the pieces, where they are kept. Of an open feed."""
        return {} if self._marking is None else {RESUME_HEADER: self._marking.token.text}

    @property
    def ended(self) -> Served | None:
        """The whole answer, however it was sent; None where there is none, or none yet."""
        done = self._fetching.done() and not self._fetching.cancelled()
        return self._fetching.result() if done and self._fetching.exception() is None else None

    @property
    def error(self) -> BaseException | None:
        """Why there is no answer, and none will come; None also where this feed itself was given up, or has all of the
        stream without its answer."""
        done = self._fetching.done() and not self._fetching.cancelled()
        error = self._fetching.exception() if done else None
        return None if isinstance(error, StreamComplete) else error

    async def close(self) -> None:
        self._fetching.cancel()
        await asyncio.gather(self._fetching, return_exceptions=True)
        if self._pieces is not None:
            await self._pieces.aclose()

    def _watch(self, flight: Flight[Served]) -> None:
        if not self._flight.done():
            flight.watched = True
            self._flight.set_result(flight)

    async def _begun(self, flight: Flight[Served]) -> bool:
        """Whether this flight brings pieces; else the fetch knows how it ended, or goes on with another one."""
        pieces = flight.pieces()
        try:
            self._first = await anext(pieces)
        except (StopAsyncIteration, LeaderGone, NotStored, ApiError):
            return False
        self._pieces = pieces
        if flight.stream is not None:
            self._marking = Marking(Token(flight.stream, self._asked.with_usage))
        return True

    async def _passed_on(self) -> Pieces:
        """The status has been sent already: an error can only come as one more event, as it does from OpenAI."""
        try:
            async with aclosing(self._all_pieces()) as pieces:
                async for some in pieces:
                    told = self._told(some)
                    if told:
                        yield told
            await self._fetching  # stored: whoever hangs up at the end does not undo that
        except (NotStored, ApiError, LeaderGone) as error:
            end = ending(error)
            if end is not None:
                yield end
                return
        yield DONE

    def _told(self, some: list[bytes]) -> bytes:
        if self._marking is not None:
            return self._marking.told(some)
        return b"".join(some if self._asked.with_usage else without_usages(some))

    async def _all_pieces(self) -> AsyncGenerator[list[bytes], None]:
        assert self._pieces is not None  # of an open feed without an answer
        yield self._first
        async for some in self._pieces:
            yield some


def ending(error: BaseException) -> bytes | None:
    """What those who have got pieces are told of an error. None where all of the stream came, and only the answer as a
    whole is not to be had, or not to be kept."""
    if isinstance(error, StreamComplete) or (isinstance(error, NotStored) and not error.in_stream):
        return None
    return failed_event(error)


def failed_event(error: BaseException) -> bytes:
    if isinstance(error, NotStored):
        return event(error.reply.body)
    if isinstance(error, StreamBroken) and error.why:
        return error.why
    if isinstance(error, TooLong):
        return json_event(Unreachable("The stream goes on, but is longer than what is kept of it.").as_json())
    told = error if isinstance(error, ApiError) else Unreachable("The request that was waited for was given up.")
    return json_event(told.as_json())
