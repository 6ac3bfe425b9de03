"""Replies that say no and would say no again: kept for a short while, so that asking again costs nothing.

A backend answers some requests with an error that lies in the request: no such model, too long a prompt, a field that
it does not know. Such a request is absent from the cache for ever, and each repetition of it goes all the way. So the
error is kept, for seconds, by an exact name; least recently kept go first.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Generic, TypeVar

Reply = TypeVar("Reply")
# What RFC 9110, section 15.1, lets a cache keep by itself of the errors of a client, and what OpenAI-compatible servers
# use for a request that is wrong as it stands. Not 401, 403, 408, 409, 425, 429: another try may go otherwise.
LASTING_STATUSES = frozenset({400, 404, 405, 410, 413, 414, 415, 422})


@dataclass(frozen=True)
class _Kept(Generic[Reply]):
    reply: Reply
    size_bytes: int
    until_seconds: float


class Negatives(Generic[Reply]):
    """life_seconds: of each. capacity_bytes: of what is kept, names included. Time is an argument and does not go
    back."""

    def __init__(self, life_seconds: float, capacity_bytes: int = 4 * 2**20, largest_bytes: int = 16 * 2**10) -> None:
        self._life, self._capacity, self._largest = life_seconds, capacity_bytes, largest_bytes
        self._kept: OrderedDict[bytes, _Kept[Reply]] = OrderedDict()
        self.used_bytes = self.served = 0

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, name: bytes, now_seconds: float) -> Reply | None:
        self._expire(now_seconds)
        kept = self._kept.get(name)
        if kept is None:
            return None
        self.served += 1
        return kept.reply

    def keep(self, name: bytes, reply: Reply, size_bytes: int, now_seconds: float) -> None:
        self._expire(now_seconds)
        size = size_bytes + len(name)
        if size > min(self._largest, self._capacity):
            return
        self._drop(name)
        self._kept[name] = _Kept(reply, size, now_seconds + self._life)
        self.used_bytes += size
        while self.used_bytes > self._capacity:
            self._drop(next(iter(self._kept)))

    def clear(self) -> None:
        """When something was invalidated: what was wrong may be right now."""
        self._kept.clear()
        self.used_bytes = 0

    def _expire(self, now_seconds: float) -> None:
        """All live equally long, so the oldest end first."""
        while self._kept and next(iter(self._kept.values())).until_seconds <= now_seconds:
            self._drop(next(iter(self._kept)))

    def _drop(self, name: bytes) -> None:
        kept = self._kept.pop(name, None)
        self.used_bytes -= 0 if kept is None else kept.size_bytes
