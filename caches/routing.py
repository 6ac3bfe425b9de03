"""Which tiers a namespace uses: a stack for each set of them, over tiers that they may share.

What is asked of a key or a partition goes to the stack of its namespace, so it never reaches a tier that the namespace
does not use. A tier is tended and closed once, in however many stacks it is.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from caches.freshness.epochs import Epochs
from caches.invalidation import What
from caches.keys.by_name import ByName
from caches.keys.request_key import Partition, RequestKey
from caches.place import Place
from caches.stack import Call, Served, Stack, Watch
from caches.tiers.selection import Selection
from caches.tiers.tier import Answer


class Routing:
    """What a Stack is for one set of tiers. stacks: of namespaces; those that share a tier share its Place. clock: Unix
    time."""

    def __init__(self, stacks: ByName[Stack], clock: Callable[[], float] = time.time) -> None:
        self._by_name, self._clock = stacks, clock
        self.stacks = tuple(dict.fromkeys(stacks.values()))
        every = dict.fromkeys(place for stack in self.stacks for place in stack.places)
        self.places: tuple[Place, ...] = tuple(sorted(every, key=lambda place: place.level))

    @property
    def epochs(self) -> Epochs:
        """Which the stacks share."""
        return self.stacks[0].epochs

    def of(self, partition: Partition) -> Stack:
        return self._by_name.of(partition.namespace)

    async def lookup(self, key: RequestKey, max_age_seconds: float | None = None) -> Served | None:
        return await self.of(key.partition).lookup(key, max_age_seconds)

    async def stale(self, key: RequestKey, grace_seconds: float | None = None) -> Served | None:
        return await self.of(key.partition).stale(key, grace_seconds)

    async def store(self, key: RequestKey, answer: Answer) -> None:
        await self.of(key.partition).store(key, answer)

    async def fetch(
        self, key: RequestKey, call: Call, max_age_seconds: float | None = None, watch: Watch | None = None
    ) -> Served:
        return await self.of(key.partition).fetch(key, call, max_age_seconds, watch)

    async def renew(self, key: RequestKey, call: Call) -> None:
        await self.of(key.partition).renew(key, call)

    async def delete(self, key: RequestKey) -> bool:
        return await self.of(key.partition).delete(key)

    async def clear(self, what: What) -> dict[str, int | None]:
        return await self.of(what.partition).clear(what)

    async def count(self, what: What) -> dict[str, int | None]:
        return await self.of(what.partition).count(what)

    def flush(self, selection: Selection) -> float:
        return self.of(selection.partition).flush(selection)

    async def tend(self) -> bool:
        return any([await place.tend(self._clock()) for place in self.places])

    async def close(self) -> None:
        await asyncio.gather(*(stack.end_work() for stack in self.stacks))
        for place in self.places:
            await place.tier.close()
