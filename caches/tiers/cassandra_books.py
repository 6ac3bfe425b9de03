"""How the tier in Cassandra keeps its capacity: what each slice of the bookkeeping holds, and what has to go."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, replace

from caches.errors import InputError
from caches.knobs import KnobSettings
from caches.tiers.cassandra_rows import Entry, plan
from caches.tiers.cassandra_slices import Amount, Slices
from caches.tiers.cassandra_store import CassandraStore
from caches.tiers.cassandra_touches import CassandraTouches, Place


@dataclass(frozen=True)
class CassandraOptions:
    """cache: the name that its rows are under. slices: parts of the bookkeeping, each with an equal share of the
    capacity; the same for all processes, and for as long as the cache lives. 64 are good for some million entries;
    order is exact within each. spare_share: of a slice that a sweep makes free beyond what it must, so that the next
    stores need none, and that a process stores at most before it tells the others. sweep_seconds: after so long a slice
    is swept in any case, for what is too old and what others stored. touch_seconds: for which touches are gathered
    before they are written. most_removed, most_read: entries in one call of `tend`, the latter but for the last slice;
    most_swept: slices; most_written: touches. Each is a journey or two, and a call should be done within the time that
    a lookup is given, or the tier looks dead. most_touches: that may wait. largest_body_bytes: Cassandra refuses a
    write of half a commit log segment, 16 MiB by default. entry_overhead_bytes: counted for each entry beside its body
    and labels (`label_bytes`)."""

    cache: str = "setpoint"
    slices: int = 64
    spare_share: float = 1 / 32
    sweep_seconds: float = 300.0
    touch_seconds: float = 30.0
    most_removed: int = 250
    most_read: int = 10_000
    most_swept: int = 16
    most_written: int = 500
    most_touches: int = 10_000
    largest_body_bytes: int = 8 << 20
    entry_overhead_bytes: int = 512

    def __post_init__(self) -> None:
        if self.slices < 1:
            raise InputError(f"slices: got {self.slices}, expected 1 or more")
        if not 0 <= self.spare_share < 1:
            raise InputError(f"spare_share: got {self.spare_share}, expected in [0, 1)")


class CassandraBooks:
    """aim: the settings that were applied last, as far as this process knows. counts: its counters of expirations and
    evictions are ours."""

    def __init__(
        self, store: CassandraStore, aim: KnobSettings, options: CassandraOptions, counts: Counter[str]
    ) -> None:
        self.aim, self._store, self._options, self._counts = aim, store, options, counts
        self.slices, self.touches = Slices(options.slices), CassandraTouches()
        self._sweeping = [asyncio.Lock() for _ in range(options.slices)]
        self._next = 0

    @property
    def share_bytes(self) -> int:
        """Of the capacity, for one slice; no entry can be larger."""
        return int(self.aim.cache_size) // self._options.slices

    def take(self, settings: KnobSettings) -> None:
        """They were applied, here or elsewhere: what is there now goes step by step."""
        if settings != self.aim:
            self.aim = settings
            self.slices.bind()

    def binding(self) -> KnobSettings:
        """What may be there now."""
        share = self.share_bytes
        size = sum(self.slices.binding_bytes(number, share) for number in range(self._options.slices))
        return replace(self.aim, cache_size=float(size))

    async def learn(self) -> None:
        """What others applied and found."""
        self.take(await self._store.settings(self.aim))
        for row in await self._store.sums():
            self.slices.heard(*row)
        self.slices.looked()

    def change(self, place: Place, entries: int, used_bytes: int) -> None:
        """What this process stored or removed."""
        self.slices.change(self._store.slice_of(place), entries, used_bytes)
        self.touches.forget(place)

    async def make_room(self, place: Place, now: float) -> None:
        """Where the slice of an entry that was just stored holds more than it may."""
        number, options = self._store.slice_of(place), self._options
        limit = self.slices.binding_bytes(number, self.share_bytes)
        if self.slices.last(number) is not None and self.slices.now(number).used_bytes <= limit:
            return
        async with self._sweeping[number]:
            last, held = self.slices.last(number), self.slices.now(number)
            if last is None:
                await self._sweep(number, now, limit, options.most_removed)
            elif held.used_bytes > limit:  # nobody swept it while we waited
                await self._sweep(number, now, limit, max(held.entries, options.most_removed))

    async def tend(self, now: float) -> bool:
        """Sweeps slices that need it, and writes touches that have waited."""
        options = self._options
        await self.learn()
        since = now if len(self.touches) > options.most_touches else now - options.touch_seconds
        await self.write_touches(since, options.most_written)
        removed = read = swept = 0
        for step in range(options.slices):
            number = (self._next + step) % options.slices
            if not self._is_due(number, now):
                continue
            if removed >= options.most_removed or read >= options.most_read or swept >= options.most_swept:
                self._next = number  # where the next call goes on, so that none waits for ever
                return True
            async with self._sweeping[number]:
                gone, rows = await self._sweep(number, now, self._soft_bytes, options.most_removed - removed)
            removed, read, swept = removed + gone, read + rows, swept + 1
        return bool(self.touches.due(since, 1)) or any(self._is_due(number, now) for number in range(options.slices))

    async def write_touches(self, before_seconds: float, most: int | None = None) -> None:
        """As `CassandraTouches.due`."""
        due = self.touches.due(before_seconds, most)
        await self._store.touch(due)
        self.touches.written(due)

    @property
    def _soft_bytes(self) -> float:
        """From where `tend` makes room in a slice, so that stores need not."""
        return self.share_bytes * (1 - self._options.spare_share / 2)

    def _is_due(self, number: int, now: float) -> bool:
        last, share = self.slices.last(number), self.share_bytes
        return (
            last is None
            or last.unfinished
            or self.slices.now(number).used_bytes > self._soft_bytes
            or self.slices.binding_bytes(number, share) > share
            or self.slices.untold_bytes(number) > share * self._options.spare_share
            or now > last.swept_seconds + self._options.sweep_seconds
        )

    async def _sweep(self, number: int, now: float, limit_bytes: float, most: int) -> tuple[int, int]:
        """Reads a slice and removes what has to go; returns how many it removed and read. Another process that does so
        at the same time plans from the same rows, so that together they remove hardly more."""
        before, ttl = self.slices.changed(number), self.aim.ttl_seconds
        rows = [entry async for page in self._store.entries(number) for entry in page]
        self.touches.begin_after(max((entry.touched or 0 for entry in rows), default=0))
        target = max(limit_bytes, self.share_bytes) * (1 - self._options.spare_share)
        done = plan(rows, lambda answer: answer.outlived(ttl, now), self._touch_of, limit_bytes, target, most)
        await self._store.remove_all([*done.remnants, *done.expired, *done.evicted])
        for entry in (*done.expired, *done.evicted):
            self.touches.forget(entry.place)
        self._counts.update(expirations=len(done.expired), evictions=len(done.evicted))
        self.slices.swept(number, Amount(done.entries, done.used_bytes), now, before, done.more)
        await self._store.keep_sum(number, done.entries, done.used_bytes, now)
        return len(done.expired) + len(done.evicted), len(rows)

    def _touch_of(self, entry: Entry) -> int:
        return max(entry.touched or 0, self.touches.noted(entry.place))
