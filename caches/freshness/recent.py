"""What is known of the latest keys, in bounded memory: the one that was noted longest ago is forgotten first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from caches.errors import InputError

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Recent(Generic[K, V]):
    """most: keys that are remembered."""

    def __init__(self, most: int) -> None:
        if most < 1:
            raise InputError(f"most: got {most}, expected at least 1")
        self._most = most
        self._known: OrderedDict[K, V] = OrderedDict()

    def note(self, key: K, value: V) -> None:
        self._known[key] = value
        self._known.move_to_end(key)
        if len(self._known) > self._most:
            self._known.popitem(last=False)

    def get(self, key: K) -> V | None:
        return self._known.get(key)

    def drop(self, key: K) -> None:
        self._known.pop(key, None)

    def known_or(self, key: K, make: Callable[[], V]) -> V:
        """What is known of it; else what is made, from now on. Does not count as noting what was known before."""
        value = self._known.get(key)
        if value is None:
            value = make()
            self.note(key, value)
        return value

    def items(self) -> list[tuple[K, V]]:
        """The one that was noted longest ago first."""
        return list(self._known.items())

    def __len__(self) -> int:
        return len(self._known)
