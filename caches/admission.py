"""Which answers a tier takes in: those that were asked for twice lately. Off unless a place is given one.

LRU-K, K = 2 (E. J. O'Neil, P. E. O'Neil and G. Weikum, The LRU-K page replacement algorithm for database disk
buffering, SIGMOD 1993), as a rule of admission: what was asked for once pushes nothing out. As there, requests are
remembered beyond what the tier holds, and all of them count, hits and misses: an entry that ended comes back at once.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from caches.errors import InputError


@dataclass(frozen=True)
class AdmissionRule:
    """requests: for one key, within window_seconds, before its answer is taken in (K). remembered: keys at most; the
    least recently asked for are forgotten."""

    requests: int = 2
    window_seconds: float = 3_600.0
    remembered: int = 65_536

    def __post_init__(self) -> None:
        for name in ("requests", "remembered"):
            if getattr(self, name) < 1:
                raise InputError(f"{name}: got {getattr(self, name)}, expected 1 or more")
        if not self.window_seconds > 0:
            raise InputError(f"window_seconds: got {self.window_seconds}, expected above 0")


class Admission:
    """Of one place. One event loop's; no locks."""

    def __init__(self, rule: AdmissionRule = AdmissionRule()) -> None:
        self._rule = rule
        self._times: OrderedDict[bytes, tuple[float, ...]] = OrderedDict()  # of the last K requests

    def __len__(self) -> int:
        """Keys remembered now."""
        return len(self._times)

    def asked(self, name: bytes, now_seconds: float) -> None:
        """One more request for this key, whether it hits or misses."""
        times = self._times.get(name, ())
        self._times[name] = (*times, now_seconds)[-self._rule.requests :]
        self._times.move_to_end(name)
        if len(self._times) > self._rule.remembered:
            self._times.popitem(last=False)

    def admits(self, name: bytes, now_seconds: float) -> bool:
        """Whether the K-th latest request for it is at most a window ago. Changes nothing."""
        times = self._times.get(name, ())
        return len(times) == self._rule.requests and now_seconds - times[0] <= self._rule.window_seconds
