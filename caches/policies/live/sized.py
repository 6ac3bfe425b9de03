"""A queue of keys that knows how many bytes it holds."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import TypeVar

K = TypeVar("K", bound=Hashable)


class SizedQueue(OrderedDict[K, int]):
    """Sizes in bytes; the oldest, or least recently used, first."""

    def __init__(self) -> None:
        super().__init__()
        self.size_bytes = 0

    def add(self, key: K, size_bytes: int) -> None:
        self[key] = size_bytes
        self.size_bytes += size_bytes

    def take(self, key: K) -> int:
        size_bytes = self.pop(key)
        self.size_bytes -= size_bytes
        return size_bytes

    @property
    def oldest(self) -> K:
        return next(iter(self))
