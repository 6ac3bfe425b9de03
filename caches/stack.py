"""The tiers of the live cache, one above the other, and the backend behind them.

A request goes down until a tier answers; what a lower tier had is kept in those above it, what the backend answered in
all. Equal requests that are there at the same time cause one backend call, in this process and, with a lease, in all.
Nothing that a tier does wrong reaches the caller: it is left alone and counted.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass

from caches.flight import Flight, Flights, LeaderGone
from caches.keys.request_key import Partition, RequestKey
from caches.place import Place
from caches.tiers.lease import Claim, Lease
from caches.tiers.tier import Answer, TierError

POLL_SECONDS = 0.02


@dataclass(frozen=True)
class StackRules:
    """ttl_jitter: largest share by which an entry's lifetime is shortened here, so that what was stored together does
    not end together. refresh_beta: how eagerly hot entries are renewed before they end; 0: never."""

    ttl_jitter: float = 0.05
    refresh_beta: float = 1.0


@dataclass(frozen=True)
class Served:
    """tier: that answered; None for the backend, also where another request's call was waited for. age_seconds: since
    the answer was written. refresh_due: whether this request should renew the entry, off its own path."""

    answer: Answer
    tier: str | None
    age_seconds: float
    similarity: float = 1.0
    refresh_due: bool = False


Call = Callable[[Flight[Served]], Awaitable[Answer]]
Watch = Callable[[Flight[Served]], None]


class Stack:
    """places: from the top. clock: Unix time."""

    def __init__(
        self,
        places: Sequence[Place],
        rules: StackRules = StackRules(),
        lease: Lease | None = None,
        clock: Callable[[], float] = time.time,
        seed: int = 0,
    ) -> None:
        self.places, self._rules, self._lease = tuple(places), rules, lease
        self._clock, self._random = clock, random.Random(seed)
        self._flights: Flights[Served] = Flights()
        slow = [depth for depth, place in enumerate(self.places) if not place.at_once]
        self._quick = min(slow, default=len(self.places))  # tiers that every request asks for itself
        self._work: set[asyncio.Future[Served]] = set()

    async def lookup(self, key: RequestKey, max_age_seconds: float | None = None) -> Served | None:
        """The first tier's answer that is not older than the caller wants. Keeps it in the tiers above."""
        return await self._lookup(key, max_age_seconds, range(len(self.places)))

    async def _lookup(self, key: RequestKey, max_age_seconds: float | None, depths: range) -> Served | None:
        now = self._clock()
        for depth in depths:
            place = self.places[depth]
            found = await place.lookup(key, now)
            if found is None:
                continue
            age = now - found.answer.written_seconds
            lifetime = self._lifetime(key, found.answer, await place.ttl_seconds())
            if age >= lifetime or (max_age_seconds is not None and age > max_age_seconds):
                continue
            if found.similarity == 1.0:
                for above in self.places[:depth]:
                    await above.store(key, found.answer, now)
            due = self._due(found.answer, age, lifetime)
            return Served(found.answer, place.tier.name, max(age, 0.0), found.similarity, due)
        return None

    async def store(self, key: RequestKey, answer: Answer) -> None:
        """In every tier."""
        now = self._clock()
        await asyncio.gather(*(place.store(key, answer, now) for place in self.places))

    async def fetch(
        self, key: RequestKey, call: Call, max_age_seconds: float | None = None, watch: Watch | None = None
    ) -> Served:
        """The answer of a tier, or of one backend call for all that ask for it now; that is stored.

        Tiers that take time are asked once for all as well. call: may publish pieces to its flight as they come. watch:
        is told of each flight that this request leads or follows, so that it can pass pieces on. max_age_seconds: of an
        answer when it is asked for. Raises what the call raises, for all that wait for it; an error is not stored.
        """
        while True:
            served = await self._lookup(key, max_age_seconds, range(self._quick))
            if served is not None:
                return served
            flight, leads = self._flights.join(key.id)
            if watch is not None:
                watch(flight)
            if leads:
                return await self._lead(self._seek(key, flight, call, max_age_seconds), flight)
            try:
                served = await flight.result()
            except LeaderGone:
                continue
            finally:
                flight.unfollow()
            # what the backend answered while this request waited is as young as an answer can be
            if served.tier is None or max_age_seconds is None or served.age_seconds <= max_age_seconds:
                return served

    async def renew(self, key: RequestKey, call: Call) -> None:
        """A backend call for an entry that is still there, unless one is on its way."""
        flight, leads = self._flights.join(key.id)
        if leads:
            await self._lead(self._ended(key, flight, self._called(key, flight, call)), flight)
        else:
            flight.unfollow()

    async def delete(self, key: RequestKey) -> bool:
        """From every tier; whether any had it. A tier that cannot be reached keeps it until it can."""
        gone = [await place.ask(place.tier.delete, key) for place in self.places]
        return any(gone)

    async def clear(self, partition: Partition) -> int:
        """From every tier; the largest number that one of them held."""
        gone = [await place.ask(place.tier.clear, partition) for place in self.places]
        return max((number for number in gone if number is not None), default=0)

    async def tend(self) -> bool:
        """A step of housekeeping in every tier; whether any has more to do."""
        more = []
        for place in self.places:
            more.append(await place.ask(place.tier.tend, self._clock()))
            await place.tend_ttl()
        return any(more)

    async def close(self) -> None:
        work = list(self._work)
        for one in work:
            one.cancel()
        await asyncio.gather(*work, return_exceptions=True)  # a lease is given back before its connection goes
        for place in self.places:
            await place.tier.close()

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
            theirs = await self._waited(self._lease, key, max_age_seconds)
            return theirs or await self._called_by_one(self._lease, key, flight, call)

        return self._ended(key, flight, sought())

    async def _ended(self, key: RequestKey, flight: Flight[Served], work: Awaitable[Served]) -> Served:
        """Tells those who follow how it ended."""
        try:
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
            self._flights.land(key.id)

    async def _called(self, key: RequestKey, flight: Flight[Served], call: Call) -> Served:
        answer = await call(flight)
        await self.store(key, answer)
        return self._fresh(answer)

    async def _called_by_one(self, lease: Lease, key: RequestKey, flight: Flight[Served], call: Call) -> Served:
        """Of all processes; the lease is ours, or cannot be had."""
        keeping, done = asyncio.ensure_future(_keep(lease, key.id)), False
        try:
            served = await self._called(key, flight, call)
            done = True
            return served
        finally:
            keeping.cancel()
            with suppress(TierError):
                await lease.give(key.id, done)

    async def _waited(self, lease: Lease, key: RequestKey, max_age_seconds: float | None) -> Served | None:
        """The answer that another process made while this one asked or waited. None where the call is for us to make:
        the lease is ours, or nobody can say whose it is."""
        with suppress(TierError):
            while (claim := await lease.take(key.id)) is Claim.HELD:
                await asyncio.sleep(POLL_SECONDS)
            if claim is Claim.MINE:
                return None
            found = await self.lookup(key, max_age_seconds)
            if found is not None:
                return found
            while await lease.take(key.id, again=True) is Claim.HELD:
                await asyncio.sleep(POLL_SECONDS)
        return None

    def _fresh(self, answer: Answer) -> Served:
        return Served(answer, None, max(self._clock() - answer.written_seconds, 0.0))

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


async def _keep(lease: Lease, name: bytes) -> None:
    """Renews a lease three times in its lifetime, until cancelled or lost."""
    with suppress(TierError):
        while True:
            await asyncio.sleep(lease.lifetime_seconds / 3.0)
            if not await lease.renew(name):
                return
