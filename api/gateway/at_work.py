"""A gateway's tiers from its start to its stop: what has to be there is looked at, and what is kept comes back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from api.gateway.building import Built
from api.gateway.building_resilience import STALE, stale_stated
from api.gateway.config_tiers import CASSANDRA, DISK, SEMANTIC
from caches.errors import InputError
from caches.place import Place
from caches.semantic.shared import SharedSemanticTier
from caches.semantic.snapshot import load_tier, save_tier
from caches.semantic.tier import SemanticTier
from caches.tiers.cassandra import CassandraTier
from caches.tiers.redis_server import RedisServerTier
from caches.tiers.retaining import inside
from caches.tiers.tier import TierError

OWNER_ONLY = 0o700
FIELD = "tiers.semantic.folder"


@asynccontextmanager
async def at_work(built: Built) -> AsyncIterator[list[str]]:
    """Yields what an operator should know, in sentences. Saves the semantic tier at the end, however that comes, after
    what serves it has stopped.

    Raises InputError for a tier that is set up wrongly, and TierError for a Redis of the mode server that is not there.
    """
    tiers, tier = built.config.tiers, built.semantic
    remarks, folder = [], tiers.semantic.folder
    kept = {DISK: tiers.disk.stated, **{name: section.stated for name, section in tiers.redis.items()}}
    kept[CASSANDRA] = tiers.cassandra.stated
    kept[STALE] = stale_stated(built.config.resilience, tiers)
    if tiers.semantic.shared:
        kept[SEMANTIC] = tiers.semantic.stated
    for name, stated in kept.items():
        if name in built.places:
            remarks += await _settled(built.places[name], stated, built.service.clock())
    if folder is None or not isinstance(tier, SemanticTier):
        yield remarks
        return
    with _alone_in(folder):
        taken = await load_tier(tier, folder, built.service.clock())
        remarks.append(f"Semantic entries from {folder}: {taken:,}.")
        try:
            yield remarks
        finally:
            await asyncio.to_thread(save_tier, tier, folder)


async def _settled(place: Place, stated: Mapping[str, Any], now_seconds: float) -> list[str]:
    """Such a tier keeps its settings: what is stated here is applied, what is not stays as somebody set it."""
    unreached = [f"Tier {place.tier.name} cannot be reached now; it is tried again while the gateway runs."]
    tier = inside(place.tier)
    if isinstance(tier, RedisServerTier):
        await tier.begin()
    if isinstance(tier, SharedSemanticTier | CassandraTier):
        try:
            await tier.begin()
        except TierError:
            return unreached
    found = await place.ask(place.tier.settings)
    if found is None:
        return unreached
    if stated:
        await place.ask(place.tier.apply, replace(found, **stated), now_seconds)
    return []


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """No other gateway saves to this folder, and nothing is left in it of one that was killed while it saved."""
    lock = FileLock(folder / ".lock", timeout=0)
    try:
        folder.mkdir(OWNER_ONLY, parents=True, exist_ok=True)
        lock.acquire()
        for half in folder.glob(".*.partial"):
            half.unlink()
    except Timeout as error:
        raise InputError(f"{FIELD}: got {folder}, which another gateway uses, expected one of its own") from error
    except OSError as error:
        raise InputError(f"{FIELD}: got {folder}, which cannot be used: {error.strerror}") from error
    try:
        yield
    finally:
        lock.release()
