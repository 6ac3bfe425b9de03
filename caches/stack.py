"""The tiers of the live cache, one above the other, and the backend behind them.

A request goes down until a tier answers; what a lower tier had is kept in those above it, what took time to get also in
those below that answer at once and lack it (the one by meaning), what the backend answered in all. Equal requests that
are there at the same time cause one backend call, in this process and, with a lease, in all.
Nothing that a tier does wrong reaches the caller: it is left alone and counted.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass

from caches.cancelling import cancelled, heed_cancellation
from caches.flight import Flight, Flights, LeaderGone
from caches.freshness.epochs import Epochs
from caches.freshness.freshness import Freshness
from caches.invalidation import Invalidations, Passage, What
from caches.keys.request_key import Partition, RequestKey
from caches.lease_breaker import LeaseBreaker
from caches.place import Place
from caches.streams.joining import joining
from caches.streams.streams import Streams
from caches.tiers.lease import Lease
from caches.tiers.selection import Selection
from caches.tiers.stale import StaleTier
from caches.tiers.tier import Answer, Found
from caches.turns import our_turn, waited


@dataclass(frozen=True)
class StackRules:
    """ttl_jitter: largest share by which an entry's lifetime is shortened here, so that what was stored together does
    not end together. refresh_beta: how eagerly hot entries are renewed before they end; 0: never."""

    ttl_jitter: float = 0.05
    refresh_beta: float = 1.0


@dataclass(frozen=True)
class Served:
    """tier: that answered; None for the backend, also where another request's call was waited for. level: of that tier,
    as its place says; 0 for the backend. age_seconds: since the answer was written. refresh_due: whether this request
    should renew the entry, off its own path. instead: what answered in place of the backend, which could or should not;
    None for all else."""

    answer: Answer
    tier: str | None
    age_seconds: float
    similarity: float = 1.0
    refresh_due: bool = False
    level: int = 0
    instead: str | None = None


Call = Callable[[Flight[Served]], Awaitable[Answer]]
Watch = Callable[[Flight[Served]], None]
Look = Callable[[Place, RequestKey, float], Awaitable[Found | None]]


class Stack:
    """places: from the top. lease: left alone for a while when it fails. clock: Unix time. ticks: one that is never
    set. look: how a place is asked, for who wants to watch that. freshness: how long entries may be served; None: as
    long as their tier says. epochs: shared with other stacks over the same tiers.
    streams: that calls write down as they come, and where those of other gateways are joined."""

    def __init__(
        self,
        places: Sequence[Place],
        rules: StackRules = StackRules(),
        lease: Lease | None = None,
        clock: Callable[[], float] = time.time,
        seed: int = 0,
        ticks: Callable[[], float] = time.monotonic,
        look: Look = Place.lookup,
        freshness: Freshness | None = None,
        epochs: Epochs | None = None,
        streams: Streams | None = None,
    ) -> None:
        self.places, self._rules, self._ask = tuple(places), rules, look
        self._lease = None if lease is None else LeaseBreaker(lease, ticks=ticks)
        self._clock, self._random = clock, random.Random(seed)
        self._flights: Flights[Served] = Flights()
        self._streams = streams
        self._invalidations = Invalidations(self.places, self._abandon)
        self._freshness, self._epochs = freshness, Epochs() if epochs is None else epochs
        slow = [depth for depth, place in enumerate(self.places) if not place.at_once]
        self._below = [_learning(self.places, depth) for depth in range(len(self.places))]
        self._quick = min(slow, default=len(self.places))  # tiers that every request asks for itself
        self._work: set[asyncio.Future[Served]] = set()

    @property
    def epochs(self) -> Epochs:
        return self._epochs

    @property
    def stacks(self) -> tuple[Stack, ...]:
        """As of a Routing; here there is one."""
        return (self,)

    def of(self, _partition: Partition) -> Stack:
        """As of a Routing: all namespaces use these tiers."""
        return self

    async def lookup(self, key: RequestKey, max_age_seconds: float | None = None) -> Served | None:
        """The first tier's answer that is not older than the caller wants. Kept in the tiers that should have it."""
        return await self._lookup(key, max_age_seconds, range(len(self.places)))

    async def _lookup(self, key: RequestKey, max_age_seconds: float | None, depths: range) -> Served | None:
        for depth in depths:
            if depth == 0 and not self._below[depth]:  # there is nowhere to keep it
                served = await self._look(key, max_age_seconds, depth, None)
            else:
                with self.passage(key, copied=True) as passage:
                    served = await self._look(key, max_age_seconds, depth, passage)
            if served is not None:
                return served
        return None

    async def _look(
        self, key: RequestKey, max_age_seconds: float | None, depth: int, passage: Passage | None
    ) -> Served | None:
        now, place = self._clock(), self.places[depth]
        found = await self._ask(place, key, now)
        if found is None or (self._epochs and self._outdated(key, found)):
            return None
        age = now - found.answer.written_seconds
        ttl = await place.ttl_seconds() if found.ttl_seconds is None else found.ttl_seconds
        if self._freshness is not None:
            ttl = self._freshness.lifetime(key, found, ttl, now)
        lifetime = self._lifetime(key, found.answer, ttl)
        if age >= lifetime or (max_age_seconds is not None and age > max_age_seconds):
            return None
        if found.similarity == 1.0 and passage is not None:
            await passage.keep(lambda: self._copied(key, found, depth, now))
        due = self._due(found.answer, age, lifetime)
        return Served(found.answer, place.tier.name, max(age, 0.0), found.similarity, due, place.level)

    async def _copied(self, key: RequestKey, found: Found, depth: int, now_seconds: float) -> None:
        for above in self.places[:depth]:
            await above.store(found.stored_by(key), found.answer, now_seconds)
        for below in self._below[depth]:
            if not await below.ask(below.tier.holds, key, now_seconds):
                await below.store(found.stored_by(key), found.answer, now_seconds)

    async def stale(self, key: RequestKey, grace_seconds: float | None = None) -> Served | None:
        """An answer to an equal request that may be past its lifetime, for when the backend cannot give a new one; None
        where there is no such tier. grace_seconds: that the request allows, where that is less than the tier does."""
        for place in self.places:
            if not isinstance(place.tier, StaleTier):
                continue
            now = self._clock()
            found = await place.ask(place.tier.retained, key, now)
            if found is None or (self._epochs and self._outdated(key, found)):
                return None
            ttl = max([await other.ttl_seconds() for other in self.places if other is not place], default=0.0)
            if self._freshness is not None:
                ttl = self._freshness.lifetime(key, found, ttl, now)
            if not place.tier.may_serve(found.answer, ttl, now, grace_seconds):
                return None
            return Served(found.answer, place.tier.name, max(now - found.answer.written_seconds, 0.0))
        return None

    async def store(self, key: RequestKey, answer: Answer) -> None:
        """In every tier."""
        with self.passage(key) as passage:
            await passage.keep(lambda: self._stored(key, answer))

    async def _stored(self, key: RequestKey, answer: Answer) -> None:
        now = self._clock()
        await asyncio.gather(*(place.store(key, answer, now) for place in self.places))

    async def fetch(
        self, key: RequestKey, call: Call, max_age_seconds: float | None = None, watch: Watch | None = None
    ) -> Served:
        """The answer of a tier, or of one backend call for all that ask for it now; that is stored.

        Tiers that take time are asked once for all as well. call: may publish pieces to its flight as they come. watch:
        is told of each flight that this request leads or follows, so that it can pass pieces on. max_age_seconds: of an
        answer when it is asked for. Raises what the call raises, for all that wait for it; an error is not stored. And
        LeaderGone where pieces were published to a watched flight, and no more will come.
        """
        while True:
            served = await self._lookup(key, max_age_seconds, range(self._quick))
            if served is not None:
                return served
            flight, leads = self._flights.join(key.id)
            if watch is not None:
                watch(flight)
            try:
                if leads:
                    return await self._lead(self._seek(key, flight, call, max_age_seconds), flight)
                served = await flight.result()
            except LeaderGone:
                if watch is not None and flight.begun:  # no other flight brings the rest of these pieces
                    raise
                continue
            finally:
                if not leads:
                    flight.unfollow()
            # what the backend answered while this request waited is as young as an answer can be
            young = max_age_seconds is None or served.age_seconds <= max_age_seconds
            if served.tier is None or young or (watch is not None and flight.begun):
                return served

    async def renew(self, key: RequestKey, call: Call) -> None:
        """A backend call for an entry that is still there, unless one is on its way."""
        flight, leads = self._flights.join(key.id)
        if leads:
            await self._lead(self._ended(key, flight, self._called(key, flight, call)), flight)
        else:
            flight.unfollow()

    async def delete(self, key: RequestKey) -> bool:
        """From every tier; whether any had it."""
        return any((await self.clear(key)).values())

    async def clear(self, what: What) -> dict[str, int | None]:
        """An invalidation, see caches/invalidation.py: by tier, how many entries were removed. A tier that could not be
        reached (None) keeps them until it can."""
        return await self._invalidations.clear(what)

    async def count(self, what: What) -> dict[str, int | None]:
        """By tier, how many entries `clear` would remove now; None for one that could not be reached."""
        return await self._invalidations.count(what, self._clock())

    def flush(self, selection: Selection) -> float:
        """As `clear`, at once: nothing is removed, and what the selection takes of what was written until now is not
        served any more. Returns when that was, Unix time."""
        now = self._clock()
        self._invalidations.outdate(selection)
        self._epochs.begin(selection, now)
        return now

    async def tend(self) -> bool:
        """A step of housekeeping in every tier; whether any has more to do."""
        return any([await place.tend(self._clock()) for place in self.places])

    async def close(self) -> None:
        await self.end_work()
        for place in self.places:
            await place.tier.close()

    async def end_work(self) -> None:
        """Gives up the calls on their way."""
        await cancelled(*self._work)  # a lease is given back before its connection goes
        if self._streams is not None:
            await self._streams.close()

    async def _lead(self, work: Coroutine[None, None, Served], flight: Flight[Served]) -> Served:
        """In a task of its own: when this request is given up while others follow, it goes on for them."""
        task = asyncio.ensure_future(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            flight.leave_to_followers(task.cancel)
            raise

    def _seek(
        self, key: RequestKey, flight: Flight[Served], call: Call, max_age_seconds: float | None
    ) -> Coroutine[None, None, Served]:
        async def sought() -> Served:
            served = await self._lookup(key, max_age_seconds, range(self._quick, len(self.places)))
            if served is not None:
                return served
            if self._lease is None:
                return await self._called(key, flight, call)
            async with joining(self._streams, key.id, flight) as joined:
                served = await waited(self._lease, key.id, lambda: self.lookup(key, max_age_seconds))
                if served is not None:
                    await joined.ended()
                    return served
                async with our_turn(self._lease, key.id):
                    await joined.instead()
                    heed_cancellation()
                    return await self._called(key, flight, call)

        return self._ended(key, flight, sought())

    async def _ended(self, key: RequestKey, flight: Flight[Served], work: Awaitable[Served]) -> Served:
        """Tells those who follow how it ended."""
        try:
            with self.passage(key, copied=True):  # so that nobody joins it who asks after an invalidation
                served = await work
            flight.finish(served)
            return served
        except asyncio.CancelledError:
            flight.leave()
            raise
        except Exception as error:
            flight.fail(error)
            raise
        finally:
            self._flights.land(key.id, flight)

    async def _called(self, key: RequestKey, flight: Flight[Served], call: Call) -> Served:
        with self.passage(key) as passage:
            answer = await call(flight)
            await passage.keep(lambda: self._stored(key, answer))
        return self._fresh(answer)

    def passage(self, key: RequestKey, *, copied: bool = False) -> Passage:
        """For whoever brings an answer into the tiers by himself, so that no invalidation misses it."""
        return Passage(self._invalidations, key, copied=copied)

    def _abandon(self, name: bytes) -> None:
        self._flights.abandon(name)
        if self._streams is not None:
            self._streams.hide(name)

    def _fresh(self, answer: Answer) -> Served:
        return Served(answer, None, max(self._clock() - answer.written_seconds, 0.0))

    def _outdated(self, key: RequestKey, found: Found) -> bool:
        """Written in an epoch that is over."""
        return self._epochs.outdated(found.stored_by(key), found.answer.written_seconds)

    def _lifetime(self, key: RequestKey, answer: Answer, ttl_seconds: float) -> float:
        """Of this entry in a tier with that lifetime; the same for equal requests, wherever they are stored."""
        share = int.from_bytes(key.fingerprint[:4]) / 2**32
        whole = ttl_seconds if answer.ttl_seconds is None else min(ttl_seconds, answer.ttl_seconds)
        return whole * (1.0 - self._rules.ttl_jitter * share)

    def _due(self, answer: Answer, age: float, lifetime: float) -> bool:
        """Early, with a probability that rises towards the end and with what a miss takes (A. Vattani, F. Chierichetti,
        K. Lowenstein, Optimal probabilistic cache stampede prevention, VLDB 2015)."""
        early = -self._rules.refresh_beta * answer.compute_seconds * math.log(1.0 - self._random.random())
        return age + early >= lifetime


def _learning(places: Sequence[Place], depth: int) -> list[Place]:
    """Which learn of a hit at this depth, though they lie below. What answers at once was stored in all of them."""
    return [] if places[depth].at_once else [place for place in places[depth + 1 :] if place.at_once]
