"""Invalidating what tiers hold, and keeping out what was asked for before that.

An answer that was asked for before an invalidation must not be stored after it, whether it comes from the backend or is
a copy of what a lower tier held. So everything that is on its way into a tier is known here, and an invalidation first
marks what it takes of that as outdated, then lets stores that have begun already end, and only then clears the tiers.
What begins while it clears is outdated as well. So when it is over, nothing older is in the tiers of this process, and
nothing older will be.

Of this process only: another one has copies of its own and answers on their way, and has to be told by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from caches.keys.request_key import RequestKey
from caches.place import Place
from caches.tiers.selection import Selection

What = Selection | RequestKey  # a key: the one entry of equal requests
Takes = Callable[[RequestKey], bool]


class Passage:
    """An answer on its way, from before it is asked for until it is stored. copied: from another tier, so that nobody
    knows its tags before it is there. outdated: an invalidation came in between."""

    def __init__(self, invalidations: Invalidations, key: RequestKey, *, copied: bool) -> None:
        self._invalidations, self.key, self.copied = invalidations, key, copied
        self.outdated = False
        self._stored: asyncio.Future[None] | None = None

    def __enter__(self) -> Passage:
        self._invalidations.begin(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._invalidations.end(self)

    async def keep(self, storing: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Stores, unless it is outdated."""
        if self.outdated:
            return
        self._stored = asyncio.get_running_loop().create_future()
        try:
            await storing()
        finally:
            self._stored.set_result(None)

    async def stored(self) -> None:
        """When a store that has begun has ended."""
        if self._stored is not None:
            await asyncio.shield(self._stored)


class Invalidations:
    """Of one stack, whose places these are. abandon: told the id of each request whose answer on its way is outdated,
    so that nobody waits for it who asks from now on."""

    def __init__(self, places: Sequence[Place], abandon: Callable[[bytes], object]) -> None:
        self._places, self._abandon = places, abandon
        self._passages: set[Passage] = set()
        self._under_way: list[What] = []

    def begin(self, passage: Passage) -> None:
        passage.outdated = any(_takes(what, passage) for what in self._under_way)
        self._passages.add(passage)

    def end(self, passage: Passage) -> None:
        self._passages.discard(passage)

    async def clear(self, what: What) -> dict[str, int | None]:
        """By tier, how many entries were removed; None for one that failed or was left alone, which may have removed a
        part. Can be repeated, and should be where it failed or was given up."""
        async with self._under_way_with(what):
            found = await asyncio.gather(*(_cleared(place, what) for place in self._places))
        return self._by_tier(found)

    def outdate(self, what: What) -> list[Passage]:
        """Of what is on its way, nothing that this takes is stored, and nobody who asks from now on waits for it.
        Returns that, as stores of it may have begun already."""
        taken = [passage for passage in self._passages if _takes(what, passage)]
        for passage in taken:
            passage.outdated = True
            self._abandon(passage.key.id)
        return taken

    async def count(self, what: What, now_seconds: float) -> dict[str, int | None]:
        """By tier, how many `clear` would remove now."""
        return self._by_tier(await asyncio.gather(*(_counted(place, what, now_seconds) for place in self._places)))

    def _by_tier(self, found: Sequence[int | None]) -> dict[str, int | None]:
        return {place.tier.name: number for place, number in zip(self._places, found, strict=True)}

    @asynccontextmanager
    async def _under_way_with(self, what: What) -> AsyncIterator[None]:
        self._under_way.append(what)
        try:
            for passage in self.outdate(what):
                await passage.stored()
            yield
        finally:
            self._under_way.remove(what)


def _takes(what: What, passage: Passage) -> bool:
    if isinstance(what, RequestKey):
        return what.id == passage.key.id
    return (replace(what, tag=None) if passage.copied else what).takes(passage.key)


async def _cleared(place: Place, what: What) -> int | None:
    if isinstance(what, Selection):
        return await place.ask_in_steps(place.tier.clear, what)
    gone = await place.ask(place.tier.delete, what)
    return None if gone is None else int(gone)


async def _counted(place: Place, what: What, now_seconds: float) -> int | None:
    if isinstance(what, Selection):
        return await place.ask_in_steps(place.tier.count, what)
    held = await place.ask(place.tier.holds, what, now_seconds)
    return None if held is None else int(held)
