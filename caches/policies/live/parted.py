"""What a cache holds, in the order of touches, while it is gone through from its oldest end in steps.

An OrderedDict can be gone through at once only, which takes too long where it holds a million entries, or from the
start again after each change. So it is taken apart: what was gone through, what is still to be, what was touched since.
Put together they are in the order of touches all the time, and in the end they are one OrderedDict again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, ItemsView, Iterator, MutableMapping
from itertools import chain
from typing import TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class _Items(ItemsView[K, V]):
    """Those of each part, without a look-up for each."""

    def __init__(self, parted: PartedOrder[K, V]) -> None:
        super().__init__(parted)
        self._parts = parted.parts

    def __iter__(self) -> Iterator[tuple[K, V]]:
        return chain.from_iterable(part.items() for part in self._parts)


class PartedOrder(MutableMapping[K, V]):
    """What an OrderedDict does, as far as a cache needs it. held: nobody else's from now on."""

    def __init__(self, held: OrderedDict[K, V]) -> None:
        self.seen: OrderedDict[K, V] = OrderedDict()
        self.unseen = held
        self.since: OrderedDict[K, V] = OrderedDict()

    @property
    def parts(self) -> tuple[OrderedDict[K, V], ...]:
        return self.seen, self.unseen, self.since

    def see_next(self) -> tuple[K, V]:
        """The least recently touched one that is still to be seen; there must be one."""
        key, value = self.unseen.popitem(last=False)
        self.seen[key] = value
        return key, value

    def joined(self, most: int) -> OrderedDict[K, V] | None:
        """A step towards one part, which moves at most so many; what it is in the end. New touches never delay it."""
        for _ in range(most):
            part = self.unseen or self.seen
            if not part:
                break
            key, value = part.popitem()
            self.since[key] = value
            self.since.move_to_end(key, last=False)
        return None if self.unseen or self.seen else self.since

    def move_to_end(self, key: K) -> None:
        """It was touched."""
        self.since[key] = self.pop(key)

    def items(self) -> ItemsView[K, V]:
        return _Items(self)

    def __getitem__(self, key: K) -> V:
        return self._part_of(key)[key]

    def __setitem__(self, key: K, value: V) -> None:
        """As touched, where it is new."""
        self._part_of(key)[key] = value

    def __delitem__(self, key: K) -> None:
        del self._part_of(key)[key]

    def __contains__(self, key: object) -> bool:
        return key in self.unseen or key in self.seen or key in self.since

    def __iter__(self) -> Iterator[K]:
        return chain.from_iterable(self.parts)

    def __len__(self) -> int:
        return len(self.seen) + len(self.unseen) + len(self.since)

    def _part_of(self, key: K) -> OrderedDict[K, V]:
        """The latest where it is in none."""
        return self.unseen if key in self.unseen else self.seen if key in self.seen else self.since
