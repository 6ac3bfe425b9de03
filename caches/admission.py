"""Requests for each key within a window: what the second hit goes by. Off unless a place or a cache is given it.

LRU-K, K = 2 (E. J. O'Neil, P. E. O'Neil and G. Weikum, The LRU-K page replacement algorithm for database disk
buffering, SIGMOD 1993), as a rule of admission: what was asked for once pushes nothing out. As there, requests are
remembered beyond what the tier holds, and all of them count, hits and misses: an entry that ended comes back at once.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

from caches.keys.by_name import ByName
from caches.keys.request_key import RequestKey
from caches.policies.settings import SecondHit

K = TypeVar("K", bound=Hashable)


class SecondHitCounts(Generic[K]):
    """Of one place or cache. One event loop's; no locks."""

    def __init__(self, rule: SecondHit = SecondHit()) -> None:
        self._rule = rule
        self._times: OrderedDict[K, tuple[float, ...]] = OrderedDict()  # of the last K requests

    def __len__(self) -> int:
        """Keys remembered now."""
        return len(self._times)

    def asked(self, name: K, now_seconds: float) -> None:
        """One more request for this key, whether it hits or misses."""
        times = self._times.get(name, ())
        self._times[name] = (*times, now_seconds)[-self._rule.requests :]
        self._times.move_to_end(name)
        if len(self._times) > self._rule.remembered:
            self._times.popitem(last=False)

    def admits(self, name: K, now_seconds: float) -> bool:
        """Whether the K-th latest request for it is at most a window ago. Changes nothing."""
        times = self._times.get(name, ())
        return len(times) == self._rule.requests and now_seconds - times[0] <= self._rule.window_seconds


class Doorkeeper:
    """Of a place: which answers it takes in, by namespace. None for all answers of a namespace."""

    def __init__(self, by_namespace: ByName[SecondHitCounts[bytes] | None]) -> None:
        self._counts = by_namespace

    @classmethod
    def alike(cls, rule: SecondHit) -> Doorkeeper:
        """One rule, and one memory of requests, for all namespaces."""
        return cls(ByName({}, SecondHitCounts(rule)))

    def asked(self, key: RequestKey, now_seconds: float) -> None:
        """One more request for this key, whether it hits or misses."""
        counts = self._counts.of(key.partition.namespace)
        if counts is not None:
            counts.asked(key.id, now_seconds)

    def admits(self, key: RequestKey, now_seconds: float) -> bool:
        """Whether its answer is taken in where none is held."""
        counts = self._counts.of(key.partition.namespace)
        return counts is None or counts.admits(key.id, now_seconds)
