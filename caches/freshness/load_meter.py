"""How much a namespace is asked for, and how often its backend fails: over whole periods, one after the other."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from caches.errors import InputError
from caches.freshness.recent import Recent

K = TypeVar("K", bound=Hashable)
PERIOD_SECONDS = 10.0
MOST_NAMES = 10_000  # clients choose them


@dataclass(frozen=True)
class Load:
    """Of a whole period. error_rate: failed calls of the backend as a share of all; None without a call."""

    qps: float
    error_rate: float | None


@dataclass
class _Counts:
    began_seconds: float
    requests: int = 0
    calls: int = 0
    failures: int = 0
    load: Load | None = None


class LoadMeter(Generic[K]):
    """By name. Time comes from the caller; a clock that is set back begins the period anew."""

    def __init__(self, period_seconds: float = PERIOD_SECONDS) -> None:
        if not period_seconds > 0.0:
            raise InputError(f"period_seconds: got {period_seconds}, expected above 0")
        self._period = period_seconds
        self._counts: Recent[K, _Counts] = Recent(MOST_NAMES)

    def asked(self, name: K, now_seconds: float) -> None:
        self._now(name, now_seconds).requests += 1

    def called(self, name: K, failed: bool, now_seconds: float) -> None:
        """A call of the backend has ended."""
        counts = self._now(name, now_seconds)
        counts.calls += 1
        counts.failures += failed

    def load(self, name: K, now_seconds: float) -> Load | None:
        """Of the latest whole period; None before one has passed, and of a name that was never asked for."""
        return None if self._counts.get(name) is None else self._now(name, now_seconds).load

    def _now(self, name: K, now_seconds: float) -> _Counts:
        counts = self._counts.get(name)
        if counts is None or now_seconds < counts.began_seconds:
            counts = _Counts(now_seconds)
            self._counts.note(name, counts)
        passed = now_seconds - counts.began_seconds
        if passed >= self._period:
            counts.load = _load(counts, self._period) if passed < 2.0 * self._period else Load(0.0, None)
            counts.began_seconds += passed // self._period * self._period
            counts.requests = counts.calls = counts.failures = 0
        return counts


def _load(counts: _Counts, period_seconds: float) -> Load:
    return Load(counts.requests / period_seconds, counts.failures / counts.calls if counts.calls else None)
