"""One backend call for requests that are equal and there at the same time: who comes first leads, the others follow.

An asyncio event loop's; nothing here waits for a lock. A leader publishes pieces as they come, so that followers can
pass them on before the answer is complete.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Generic, TypeVar

from caches.errors import SetpointError

Result = TypeVar("Result")


class LeaderGone(SetpointError):
    """Who led left without an answer and without an error of the backend. Whoever follows should try anew."""


class Flight(Generic[Result]):
    """One call on its way. `leads` is for the one that has to make it; exactly one of `finish`, `fail` and `leave`
    ends it. watched: whether anybody passes pieces on. stream: the id of the stream log that has them; None where they
    are in none."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._news = asyncio.Event()
        self._ended: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self.followers = 0
        self.watched = False
        self.stream: str | None = None
        self._give_up: Callable[[], object] | None = None
        self._keeper: Callable[[Callable[[], object]], object] | None = None

    def leave_to_followers(self, give_up: Callable[[], object]) -> None:
        """Who led goes. The work goes on for those who follow; `give_up` ends it, now or when the last of them goes."""
        self._give_up = give_up
        if self.followers == 0:
            self._alone(give_up)

    def keep_by(self, keeper: Callable[[Callable[[], object]], object] | None) -> None:
        """Each time that nobody waits any more, the keeper is handed what ends the work, and decides when. None: as
        without one, from now on."""
        self._keeper = keeper
        waited_for = self.followers > 0 or self._ended.done()
        if keeper is None and self._give_up is not None and not waited_for:
            self._give_up()

    def unfollow(self) -> None:
        """For who followed, however that ended."""
        self.followers -= 1
        if self.followers == 0 and self._give_up is not None:
            self._alone(self._give_up)

    @property
    def begun(self) -> bool:
        """Whether a piece was published."""
        return bool(self._pieces)

    def publish(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._wake()

    def finish(self, result: Result) -> None:
        if not self._ended.done():
            self._ended.set_result(result)
        self._wake()

    def fail(self, error: BaseException) -> None:
        if not self._ended.done():
            self._ended.set_exception(error)
            self._ended.exception()  # it counts as seen though nobody may follow
        self._wake()

    def leave(self) -> None:
        """The leader's client is gone: the followers try anew."""
        self.fail(LeaderGone("the request that was waited for was given up"))

    async def result(self) -> Result:
        """Raises what the leader failed with. A follower that is cancelled leaves the flight as it is."""
        return await asyncio.shield(self._ended)

    async def pieces(self) -> AsyncGenerator[list[bytes], None]:
        """All that was published, from the beginning, until the end; together what is there together. Raises what the
        leader failed with."""
        async with aclosing(self.published()) as published:
            async for new in published:
                yield new
        self._ended.result()

    async def published(self) -> AsyncGenerator[list[bytes], None]:
        """As `pieces`; it just ends where the leader failed."""
        seen = 0
        while True:
            while seen < len(self._pieces):
                new = self._pieces[seen:]
                seen += len(new)
                yield new
            if self._ended.done():
                return
            await self._news.wait()

    @property
    def error(self) -> BaseException | None:
        """What the leader of a flight that has ended failed with."""
        return self._ended.exception()

    def _alone(self, give_up: Callable[[], object]) -> None:
        if self._keeper is None:
            give_up()
        else:
            self._keeper(give_up)

    def _wake(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()


class Flights(Generic[Result]):
    """All calls on their way, by name."""

    def __init__(self) -> None:
        self._by_name: dict[bytes, Flight[Result]] = {}

    def join(self, name: bytes) -> tuple[Flight[Result], bool]:
        """(the flight of that name, whether the caller leads it). A leader calls `land` when it has ended it."""
        flight = self._by_name.get(name)
        if flight is not None:
            flight.followers += 1
            return flight, False
        flight = self._by_name[name] = Flight()
        return flight, True

    def land(self, name: bytes, flight: Flight[Result]) -> None:
        """The next of that name leads a new one, unless another has taken this one's place already."""
        if self._by_name.get(name) is flight:
            del self._by_name[name]

    def abandon(self, name: bytes) -> None:
        """Whoever follows still follows, but the next of that name leads a new one."""
        self._by_name.pop(name, None)

    def __len__(self) -> int:
        return len(self._by_name)
