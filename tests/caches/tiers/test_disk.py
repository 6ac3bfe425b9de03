"""The tier on disk, by the contract of all tiers."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from caches.keys.request_key import RequestKey
from caches.knobs import KnobSpace
from caches.tiers.disk import DiskOptions, DiskTier
from caches.tiers.selection import label_bytes
from caches.tiers.tier import Answer, Tier
from tests.contracts.tier_contract import Subject, TierContract

MEMORY = Path("/dev/shm")
FOLDER = MEMORY if MEMORY.is_dir() else None  # hundreds of new files, and a busy disk takes long to have each
OPTIONS = DiskOptions(entry_overhead_bytes=100, most_removed=3)


@asynccontextmanager
async def empty(space: KnobSpace) -> AsyncIterator[Tier]:
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        tier = DiskTier(Path(folder) / "cache.sqlite", space, options=OPTIONS)
        yield tier
        await tier.close()


def entry_bytes(key: RequestKey, answer: Answer) -> int:
    return len(answer.body) + label_bytes(key) + OPTIONS.entry_overhead_bytes


class TestDiskTier(TierContract):
    subject = Subject(empty, entry_bytes, most_removed=3)
