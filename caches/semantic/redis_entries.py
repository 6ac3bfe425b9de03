"""Entries of a semantic tier in Redis or Valkey, of any version: the index mode, where each entry carries a note of the
place of its vector, which is handed over when the entry has left, for whatever reason."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from caches.keys.request_key import RequestKey
from caches.tiers import redis_scripts
from caches.tiers.redis_index import RedisIndexTier
from caches.tiers.tier import Answer


class NotedEntries(RedisIndexTier):
    """A note is 48 bytes and the id of its entry. One that has left is kept until it was taken care of, also when the
    process that removed the entry dies."""

    async def keep(self, key: RequestKey, answer: Answer, now_seconds: float, size_bytes: int, note: bytes) -> bool:
        """As `store`, for an entry that counts for so many bytes; b"" for no note."""
        return await self._keep(key, answer, now_seconds, size_bytes, note)

    async def leave(self, key: RequestKey, note: bytes) -> None:
        """Hands a note over later, unless the entry is there by then. For one that nobody knows to be there."""
        await self._run(redis_scripts.LEAVE, self._shard(key), note)

    async def hand_over(self, take: Callable[[Sequence[bytes]], Awaitable[None]]) -> bool:
        """Gives `take` the notes of entries that have left, a bounded number; returns whether there are more. Where it
        raises they are handed over again, and two processes may take the same ones."""
        most, more = self._options.most_removed, False
        for shard in range(self._options.shards):
            seen, notes = await self._run(redis_scripts.LEFT, shard, most)
            if notes:
                await take(notes)
                await self._run(redis_scripts.SEEN_TO, shard, *notes)
            more = more or seen == most
        return more
