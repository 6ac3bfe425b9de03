"""Bodies of requests that were asked lately, in memory and nowhere else, so that they can be asked again."""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

import orjson

from api.gateway.asked import Asked, Wishes
from caches.keys.fields import Endpoint
from caches.keys.request_key import RequestKey

OVERHEAD_BYTES = 1_024  # of an entry, beside its body and the text of its question
LARGEST_SHARE = 0.05  # of the room, for one body


class _Kept(NamedTuple):
    """ttl_seconds: what the client wished for the answer."""

    endpoint: Endpoint
    raw: bytes
    key: RequestKey
    ttl_seconds: float | None

    @property
    def size_bytes(self) -> int:
        return len(self.raw) + len(self.key.question or "") + OVERHEAD_BYTES


class HotBodies:
    """At most so many bytes; the least recently asked go first. Neither logs nor tells them."""

    def __init__(self, most_bytes: int) -> None:
        self._most, self.used_bytes = most_bytes, 0
        self._kept: OrderedDict[bytes, _Kept] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, asked: Asked) -> None:
        name = asked.key.id
        if name in self._kept:
            self._kept.move_to_end(name)
            return
        kept = _Kept(asked.endpoint, asked.raw, asked.key, asked.wishes.ttl_seconds)
        if kept.size_bytes > LARGEST_SHARE * self._most:
            return
        self._kept[name] = kept
        self.used_bytes += kept.size_bytes
        while self.used_bytes > self._most:
            self.used_bytes -= self._kept.popitem(last=False)[1].size_bytes

    def asked(self, key: RequestKey) -> Asked | None:
        """The request again, with no wish but for its lifetime."""
        kept = self._kept.get(key.id)
        if kept is None:
            return None
        return Asked(kept.endpoint, kept.raw, orjson.loads(kept.raw), kept.key, Wishes(ttl_seconds=kept.ttl_seconds))
