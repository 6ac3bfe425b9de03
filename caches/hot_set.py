"""The hot set: the entries that are asked for most, as lines that another instance can take in.

A line is an entry (caches/entry_lines.py) with `version` and `popularity`. Its age runs from when the backend gave the
answer, wherever it is moved.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from dataclasses import dataclass

from caches.entry_lines import entry_of, fields_of, line_of, number
from caches.errors import InputError
from caches.freshness.epochs import Epochs
from caches.hot_keys import Candidate, HotKeys
from caches.keys.partitions import checked
from caches.keys.request_key import Partition, RequestKey
from caches.place import Place
from caches.tiers.tier import Answer, Found

VERSION = 1
AHEAD_SECONDS = 60.0  # that another machine's clock may be ahead of ours

PlacesOf = Callable[[Partition], Iterable[Place]]


@dataclass
class Imported:
    """Entries, by what became of them. taken: into a tier at least. there: in all tiers already. old: too old by now.
    refused: larger than every tier, or no tier could be reached."""

    taken: int = 0
    there: int = 0
    old: int = 0
    refused: int = 0


async def exported(
    candidates: Iterable[Candidate], places_of: PlacesOf, clock: Callable[[], float], epochs: Epochs
) -> AsyncGenerator[bytes, None]:
    """A line for each that a tier holds and that is neither too old nor flushed; tiers count their lookups."""
    for candidate in candidates:
        key = candidate.key
        found = await _held(key, places_of(key.partition), clock())
        if found is not None and not epochs.outdated(found.stored_by(key), found.answer.written_seconds):
            more = {"version": VERSION, "popularity": candidate.popularity}
            yield line_of(found.stored_by(key), found.answer, more)
        await asyncio.sleep(0)  # a tier in memory keeps nobody waiting, and so lets nobody in


async def take_in(line: bytes, places_of: PlacesOf, hot: HotKeys, now_seconds: float, counts: Imported) -> None:
    """Warms every tier that has no answer to this request. Raises InputError, naming the field that is wrong, before
    anything is changed."""
    fields = fields_of(line)
    if fields.get("version") != VERSION:
        raise InputError(f"version: got {str(fields.get('version'))[:40]}, expected {VERSION}")
    popularity = number(fields, "popularity")
    key, answer = entry_of(fields)
    checked(key.partition)
    if answer.written_seconds > now_seconds + AHEAD_SECONDS:
        ahead = answer.written_seconds - now_seconds
        raise InputError(
            f"written_seconds: got {ahead:,.0f} s ahead of this machine's clock, expected a time before now"
        )
    outcomes = {await _warmed(place, key, answer, now_seconds) for place in places_of(key.partition)}
    best = next(name for name in ("taken", "there", "old", "refused") if name in outcomes)
    setattr(counts, best, getattr(counts, best) + 1)
    if best in {"taken", "there"}:
        hot.learn(key, answer, popularity, now_seconds)


async def _held(key: RequestKey, places: Iterable[Place], now: float) -> Found | None:
    for place in places:
        if await place.ask(place.tier.holds, key, now):
            found = await place.ask(place.tier.lookup, key, now)
            if found is not None and found.similarity == 1.0:
                return found
    return None


async def _warmed(place: Place, key: RequestKey, answer: Answer, now: float) -> str:
    """The name of the count."""
    if answer.outlived(await place.ttl_seconds(), now):
        return "old"
    if await place.ask(place.tier.holds, key, now):
        return "there"
    return "taken" if await place.ask(place.tier.warm, key, answer, now) else "refused"
